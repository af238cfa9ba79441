"""The simulated cloud: requests in, answers out, time from outside."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from attrs import evolve

from poolsm.records import ServerRecord
from poolsm.testing.config import VM, CloudConfig
from poolsm.testing.faults import AFTER, BEFORE, Fault
from poolsm.testing.hands import Hands
from poolsm.testing.inspection import CallRecord, Ledger, ServerStory, story_of
from poolsm.testing.lifecycle import STEPS
from poolsm.testing.replies import SimReply, proxy_error, service_error
from poolsm.testing.routes import Call, parse, perform, subject_of_call
from poolsm.testing.takeup import take_up
from poolsm.testing.world import Step, make_world


class SimulatedCloud:
    """An OpenStack with two projects, as its API shows it.

    It has no clock: every request brings the time (milliseconds since 1970 UTC), and what
    was due until then happens first. The same seed and the same requests at the same times
    give the same answers, on any machine.

    Attributes:
        hands: what people and other programs do to the cloud behind its API's back.
        calls: how many calls there were, by (operation, HTTP status); status 0 is no answer.
        writes: every call that could change something, in order.
        recent: the last calls of all kinds.
    """

    def __init__(self, config: CloudConfig | None = None, seed: int = 0) -> None:
        self.config = config or CloudConfig()
        self._world = make_world(self.config, seed)
        self._ledger = Ledger()
        self._late: dict[int, Call] = {}
        self.hands = Hands(self._world)
        self.calls = self._ledger.calls
        self.writes = self._ledger.writes
        self.recent = self._ledger.recent

    def take_up(self, records: Iterable[ServerRecord]) -> None:
        """Begin with these servers, as a log last saw them."""
        take_up(self._world, records)

    # --- the API ----------------------------------------------------------------------------

    def request(  # noqa: PLR0917 - a request line, in the order in which it is written
        self,
        now_ms: int,
        project: str,
        service: str,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> SimReply:
        """Answer one request that arrives now; what it causes is done when this returns.

        ``project`` (``vm`` or ``infra``) is whose token the request has, ``service`` is
        ``compute``, ``image``, ``network`` or ``identity``, ``path`` is below the service's
        versioned root, with its query; names in ``headers`` are lower case.
        """
        self.advance(now_ms)
        now_ms = self._world.now_ms
        call = parse(project, service, method, path, body=body, headers=headers or {})
        reply = self._answer(call, now_ms)
        status = 0 if reply.hang or reply.cut or reply.unreachable else reply.status
        self._ledger.note(CallRecord(now_ms, project, call.operation, method, path, status))
        return reply

    def advance(self, now_ms: int) -> None:
        """Let happen what is due until now; time never goes back."""
        world = self._world
        while world.due and world.due[0].at_ms <= now_ms:
            step = heapq.heappop(world.due)
            world.now_ms = max(world.now_ms, step.at_ms)
            self._happen(step)
        world.now_ms = max(world.now_ms, now_ms)

    def next_ms(self) -> int | None:
        """When something will next happen by itself; None if nothing is under way."""
        return self._world.due[0].at_ms if self._world.due else None

    def _happen(self, step: Step) -> None:
        world = self._world
        if step.action == "late":
            perform(world, self._late.pop(step.number), step.at_ms)
        elif step.action == "hands":
            self.hands.carry_out(step.argument)
        else:
            server = world.servers[step.server_id]
            if server.plan == step.plan and not server.gone:
                STEPS[step.action](world, server, step.at_ms, step.argument)

    def _answer(self, call: Call, now_ms: int) -> SimReply:
        faults = self._world.faults
        if not faults.active:
            return self._timed(call, perform(self._world, call, now_ms))
        subject = subject_of_call(self._world, call)
        fault = faults.strike(BEFORE, now_ms, call.operation, call.project, subject)
        if fault is not None:
            return self._timed(call, self._before(call, fault, now_ms))
        reply = self._timed(call, perform(self._world, call, now_ms))
        fault = faults.strike(AFTER, now_ms, call.operation, call.project, subject)
        return reply if fault is None else _after(call, fault, reply)

    def _before(self, call: Call, fault: Fault, now_ms: int) -> SimReply:
        if fault.kind == "refuse":
            return _error(call, fault)
        if fault.kind == "drop":
            return SimReply(0, cut=True)
        if fault.kind == "unreachable":
            return SimReply(0, unreachable=True)
        if fault.kind == "late":
            self._world.schedule(now_ms + fault.delay_ms, "late")
            self._late[self._world.steps] = call
        return SimReply(0, hang=True)

    def _timed(self, call: Call, reply: SimReply) -> SimReply:
        speeds = self.config.speeds
        creating = call.operation == "create" and reply.status == 202
        spread = speeds.create_answer_ms if creating else speeds.answer_ms
        delay_ms = self._world.answers_in(spread)
        if call.operation == "list" and speeds.list_us_per_server:
            delay_ms += speeds.list_us_per_server * self.live_count(call.project) // 1000
        headers = {**reply.headers, "x-openstack-request-id": f"req-{UUID(int=self._ledger.count)}"}
        return evolve(reply, delay_ms=delay_ms, headers=headers)

    # --- faults -----------------------------------------------------------------------------

    def add_fault(self, fault: Fault) -> None:
        """Set one more fault."""
        self._world.faults.add(fault)

    def set_faults(self, faults: tuple[Fault, ...]) -> None:
        """Replace all faults."""
        self._world.faults.clear()
        for fault in faults:
            self._world.faults.add(fault)

    def remove_faults(self, name: str) -> int:
        """Remove the faults of a name; returns how many there were."""
        return self._world.faults.remove(name)

    def heal(self) -> None:
        """Remove all faults. What they did to servers so far stays."""
        self._world.faults.clear()

    def faults(self) -> list[tuple[Fault, int]]:
        """The faults that are set, and how often each has happened."""
        return [(one.fault, one.happened) for one in self._world.faults.active]

    # --- from the cloud's side --------------------------------------------------------------

    def servers(self, project: str = "") -> list[ServerStory]:
        """Every server ever created, gone ones too, oldest first."""
        return [
            story_of(server)
            for server in self._world.servers.values()
            if project in ("", server.project)
        ]

    def server(self, server_id: str) -> ServerStory:
        """One server ever created; raises KeyError."""
        return story_of(self._world.servers[server_id])

    def live_servers(self, project: str = VM) -> list[ServerStory]:
        """The servers that exist now, hidden ones too, oldest first."""
        servers = self._world.servers
        return [story_of(servers[key[-1]]) for key in self._world.live[project]]

    def live_count(self, project: str = VM) -> int:
        """How many servers exist now, hidden ones too."""
        return len(self._world.live[project])

    def creates_by_command(self) -> Counter[str]:
        """How many servers each create command made: more than 1 is a broken promise (I2)."""
        ids = (server.command_id for server in self._world.servers.values())
        return Counter(command_id for command_id in ids if command_id)

    def deletes_by_server(self) -> dict[str, int]:
        """The accepted DELETE calls of each server that had any."""
        servers = self._world.servers.values()
        return {server.server_id: server.deletes for server in servers if server.deletes}

    def call_count(self, operation: str, status: int | None = None) -> int:
        """How many calls of an operation there were (with one answer status)."""
        return sum(
            count
            for (name, code), count in self.calls.items()
            if name == operation and status in (None, code)
        )


def _after(call: Call, fault: Fault, reply: SimReply) -> SimReply:
    match fault.kind:
        case "refuse_after":
            return evolve(_error(call, fault), delay_ms=reply.delay_ms)
        case "hang_after":
            return SimReply(0, hang=True)
        case "drop_after":
            return SimReply(0, cut=True, delay_ms=reply.delay_ms)
        case "cut":
            return evolve(reply, cut=True)
        case _:
            return evolve(reply, delay_ms=reply.delay_ms + fault.delay_ms)


def _error(call: Call, fault: Fault) -> SimReply:
    if fault.html:
        return proxy_error(fault.status, fault.message, fault.retry_after_s)
    # Without a text of its own a 401 has the service's.
    message = fault.message or (
        "" if fault.status == 401 else f"simulated fault {fault.name or fault.kind}"
    )
    accept = call.headers.get("accept", "")
    return service_error(call.service, fault.status, message, fault.retry_after_s, accept=accept)
