"""The core against a cloud that goes wrong at random, and then heals (I1 to I9).

``HYPOTHESIS_PROFILE=deep`` for a long search.
"""

from __future__ import annotations

import os
from collections import Counter

from attrs import evolve
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from poolsm.commands import (
    ATTRIBUTED,
    SERVERPOOL_ID,
    ClaimServer,
    CreateServer,
    DeleteServer,
    FetchImage,
    FindServer,
    RenameServer,
    StartServer,
    StopServer,
)
from poolsm.events import AttributionDeclared, LossConfirmed, PoolAcknowledged, PoolReset
from poolsm.words import is_off_day
from tests.properties.invariants import check_step
from tests.rules.ingredients import hold, pause, resume, unhold
from tests.unit.world import IMAGE, QUOTA, TIMEOUT, World, refusal

BOOT_TIMEOUT_S = 60
HEAL_S = BOOT_TIMEOUT_S + 300
NAMES = ("a", "b", "c", "warm")
DAYS = ("monday", "tuesday")
KINDS = (
    CreateServer,
    DeleteServer,
    ClaimServer,
    RenameServer,
    StopServer,
    StartServer,
    FindServer,
    FetchImage,
)
ANSWERS = (
    TIMEOUT,
    {"transport_error": "not_sent"},
    {"http_status": 202},
    refusal(502),
    refusal(503, retry_after_s=20),
    refusal(429, retry_after_s=15),
    refusal(401),
    refusal(400, "Can not find requested image"),
    refusal(400, "Invalid input"),
    refusal(403, QUOTA),
    refusal(403, "Policy doesn't allow it to be performed."),
    refusal(404, "Instance could not be found."),
    {"http_status": 404, "message": "no such page"},
    refusal(409, "task_state is not None"),
    {"unmet": "expected reattrib=false, found true"},
)
_SETTINGS = {"quick": (50, 30), "deep": (400, 60)}
_EXAMPLES, _STEPS = _SETTINGS[os.environ.get("HYPOTHESIS_PROFILE", "quick")]
_DEEP = _EXAMPLES > 100


class CoreMachine(RuleBasedStateMachine):
    """Pools, people, faults and time in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World
        self.requests = 0
        self.images = 1

    @initialize(limit=st.sampled_from((2, 5, 40)), reach=st.sampled_from((0.5, 7.0)))
    def begin(self, limit: int, reach: float) -> None:
        self.world = World(after_step=check_step, creations_limit=limit)
        self.world.listing_takes_s = reach
        self.world.declare("a", min_vm=2, boot_timeout_s=BOOT_TIMEOUT_S)

    # --- pools and people ---------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        min_vm=st.integers(0, 4),
        more=st.sampled_from((None, 0, 1, 3)),
        days=st.sampled_from(((), DAYS, ("sunday",))),
        reuse=st.booleans(),
        respect=st.booleans(),
    )
    def declare(
        self,
        *,
        name: str,
        min_vm: int,
        more: int | None,
        days: tuple[str, ...],
        reuse: bool,
        respect: bool,
    ) -> None:
        warm = name == "warm"
        self.world.declare(
            name,
            min_vm=min_vm,
            max_vm=0 if more is None else min_vm + more,
            warm=warm,
            off_days=() if warm else days,
            reuse=reuse,
            respect_user_stop=respect,
            boot_timeout_s=BOOT_TIMEOUT_S,
        )

    @rule(name=st.sampled_from(NAMES), assigned=st.booleans())
    def remove(self, name: str, assigned: bool) -> None:
        if any(key[0] == name for key in self.world.fleet.state.pools):
            self.world.remove(name, include_assigned=assigned)

    @rule(name=st.sampled_from(("", *NAMES)), on=st.booleans())
    def pause(self, name: str, on: bool) -> None:
        if not name or any(key[0] == name for key in self.world.fleet.state.pools):
            (pause if on else resume)(self.world, name)

    @rule(n=st.integers(0, 50), on=st.booleans())
    def hold_a_vm(self, n: int, on: bool) -> None:
        vms = sorted(self.world.fleet.state.vms)
        if vms:
            (hold if on else unhold)(self.world, vms[n % len(vms)])

    @rule(name=st.sampled_from(NAMES), within_s=st.sampled_from((1, 60, 10_000)))
    def ask(self, name: str, within_s: int) -> None:
        self.requests += 1
        self.world.ask(f"r{self.requests}", name, within_s=within_s)

    @rule(number=st.integers(1, 6))
    def release(self, number: int) -> None:
        self.world.release(f"r{number}")

    @rule()
    def new_image(self) -> None:
        self.images += 1
        name = f"img-{self.images}"
        self.world.images["vm"] = (evolve(IMAGE, image_id=name),)
        self.world.later(15, self.world.list_images)

    # --- faults -------------------------------------------------------------------------

    @rule(
        kind=st.sampled_from(KINDS),
        answer=st.sampled_from(ANSWERS),
        times=st.integers(1, 6),
        done=st.booleans(),
        later_s=st.sampled_from((0, 0, 30, 200)),
    )
    def answer(
        self, kind: type, answer: dict[str, object], times: int, done: bool, later_s: float
    ) -> None:
        # what Nova itself refuses was not done
        done = done and not answer.get("error_kind") and "unmet" not in answer
        done = done and answer.get("transport_error") != "not_sent"
        self.world.answer(kind, answer, times=times, done=done, later_s=later_s)

    @rule(how=st.sampled_from(("ACTIVE", "hang", "No valid host was found.", QUOTA)))
    def boots(self, how: str) -> None:
        self.world.cloud.boot = how

    @rule(quota=st.sampled_from((None, 0, 3)))
    def quota(self, quota: int | None) -> None:
        self.world.cloud.quota = quota

    @rule(work=st.booleans())
    def deletes(self, work: bool) -> None:
        self.world.cloud.deletes_work = work

    @rule(mode=st.sampled_from(("complete", "complete", "failing", "paused")))
    def listings(self, mode: str) -> None:
        self.world.listings = mode

    @rule(deaf=st.booleans())
    def deaf(self, deaf: bool) -> None:
        self.world.cloud.deaf = deaf

    def _server(self, n: int) -> object:
        found = sorted(self.world.cloud.servers.values(), key=lambda s: s.server_id)
        return found[n % len(found)]

    @precondition(lambda self: self.world.cloud.servers)
    @rule(
        n=st.integers(0, 50),
        how=st.sampled_from(("blank", "hidden", "unlisted")),
        on=st.booleans(),
    )
    def shown(self, n: int, how: str, on: bool) -> None:
        setattr(self._server(n), how, on)

    @rule(share=st.sampled_from((1, 2)), how=st.sampled_from(("hidden", "unlisted")))
    def many_lost(self, share: int, how: str) -> None:
        for server in list(self.world.cloud.servers.values())[::share]:
            setattr(server, how, True)

    @precondition(lambda self: self.world.cloud.servers)
    @rule(
        n=st.integers(0, 50),
        status=st.sampled_from(
            ("ACTIVE", "SHUTOFF", "ERROR", "PAUSED", "SOFT_DELETED", "DELETED", "SOMETHING")
        ),
    )
    def status(self, n: int, status: str) -> None:
        server = self._server(n)
        if server.status not in ("DELETED", "SOFT_DELETED"):
            server.status = status
            if status in ("DELETED", "SOFT_DELETED"):
                self.world.later(30, lambda: self.world.cloud.servers.pop(server.server_id, None))

    @precondition(lambda self: self.world.cloud.servers)
    @rule(n=st.integers(0, 50))
    def deleted_by_others(self, n: int) -> None:
        self.world.cloud.servers.pop(self._server(n).server_id)

    @precondition(lambda self: self.world.cloud.servers)
    @rule(
        n=st.integers(0, 50),
        tag=st.sampled_from(
            (
                {ATTRIBUTED: "true"},
                {ATTRIBUTED: "false"},
                {SERVERPOOL_ID: "b"},
                {SERVERPOOL_ID: "nowhere"},
                {},
            )
        ),
    )
    def tagged_by_others(self, n: int, tag: dict[str, str]) -> None:
        server = self._server(n)
        server.metadata = {**server.metadata, **tag} if tag else {}

    @precondition(lambda self: self.world.cloud.servers)
    @rule(n=st.integers(0, 50), attributed=st.booleans())
    def said_by_its_former_keeper(self, n: int, attributed: bool) -> None:
        world = self.world
        world.feed(
            AttributionDeclared(
                at_ms=world.now_ms,
                server_id=self._server(n).server_id,
                attributed=attributed,
                claimant="prof" if attributed else "",
                origin="test",
            )
        )

    @rule(name=st.sampled_from(NAMES), log=st.sampled_from((None, "other")))
    def former_server(self, name: str, log: str | None) -> None:
        tags = {"poolsm_log": log, ATTRIBUTED: None}
        self.world.cloud.add("the old service's", (name, "prof"), tags=tags)

    @rule(name=st.sampled_from(NAMES), log=st.sampled_from((None, "other")), flag=st.booleans())
    def foreign(self, name: str, log: str | None, flag: bool) -> None:
        tags = {"poolsm_log": log, ATTRIBUTED: str(flag).lower()}
        self.world.cloud.add("someone's", (name, "prof"), tags=tags)

    # --- time and runners ---------------------------------------------------------------

    @rule(seconds=st.sampled_from((1, 3, 10, 30, 100, 300)))
    def passes(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(hours=st.sampled_from((6, 16)))
    def jumps(self, hours: int) -> None:
        """The machine slept: monotonic time went on, nothing was observed."""
        self.world.now_ms += hours * 3_600_000
        self.world.run(1)

    @rule(seconds=st.sampled_from((-7200, -40, 40, 90_000)))
    def clock_stepped(self, seconds: float) -> None:
        self.world.step_clock(seconds)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @rule(holding=st.booleans())
    def hold(self, holding: bool) -> None:
        if self.world.holding and not holding:
            self.world.crash()  # what was held is lost with its runner
        self.world.holding = holding

    @invariant()
    def ids_are_unique(self) -> None:
        if hasattr(self, "world"):
            ids = Counter(command.command_id for _, command in self.world.commands)
            assert not ids or max(ids.values()) == 1

    # --- and then it heals --------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        if world.holding:
            world.crash()
        world.behave()
        for server in world.cloud.servers.values():
            if server.status in ("PAUSED", "SOMETHING"):
                server.status = "ACTIVE"
        world.run(30)
        self._operators_do_their_part()
        world.run(HEAL_S)
        self._check_healed()
        # what was left on the agenda of the healed fleet: repeats, quiet deadlines
        world.run(2 * HEAL_S)
        self._check_silent()
        world.verify()

    def _operators_do_their_part(self) -> None:
        world = self.world
        state = world.fleet.state
        resume(world, "")
        for key in sorted(state.pools):
            resume(world, key.serverpool_id)
        for key in sorted(state.vms):
            unhold(world, key)
        if state.loss is not None:
            world.feed(LossConfirmed(at_ms=world.now_ms, origin="test"))
        for key, pool in sorted(state.pools.items()):
            if pool.second_manager or pool.disputed:
                world.feed(PoolAcknowledged(at_ms=world.now_ms, pool=key, origin="test"))
            if pool.invalid:
                world.feed(PoolReset(at_ms=world.now_ms, pool=key, origin="test"))

    def _check_healed(self) -> None:
        state = self.world.fleet.state
        assert not state.ops, f"I7: in flight: {state.ops}"
        for key, pool in state.pools.items():
            where = f"I7: {key}: {pool.conditions.get('Provisioned')}"
            if pool.state == "draining":
                held = [vm for vm in state.all_vms(pool) if vm.attribution is None]
                assert not held, where
                continue
            ceiling = pool.spec.max_vm
            room = ceiling == 0 or pool.owned < ceiling
            assert pool.capacity >= pool.spec.min_vm or not room, where
            assert not pool.leaving, where
            assert not pool.booting, where
            assert not pool.tagging, where
            off = is_off_day(pool, state)
            for vm in state.all_vms(pool):
                asleep = vm.state == "SHUTOFF" and vm.power_cause == "user"
                kept = pool.spec.respect_user_stop and asleep
                wrong = "ACTIVE" if off else "SHUTOFF"
                assert vm.state != wrong or kept, f"{where}: {vm}"
                assert vm.attribution or vm.state in ("ACTIVE", "SHUTOFF"), f"{where}: {vm}"
        ours = {
            server.server_id
            for server in self.world.cloud.servers.values()
            if (server.metadata.get(SERVERPOOL_ID), server.metadata.get("user_id")) in state.pools
        }
        # gone, then shown again: what we had not deleted, or is somebody's, is left alone
        told = {
            key
            for key, record in state.strays.items()
            if key in state.tombstones
            and (not state.tombstones[key].deleted or record.metadata.get(ATTRIBUTED) != "false")
        }
        assert ours == set(state.by_server) | (told & ours), "I2: unaccounted for"

    def _check_silent(self) -> None:
        """A day of nothing new: no commands but the day's (I6), one for each VM (I9)."""
        world = self.world
        state, position = world.fleet.state, world.fleet.position
        before, deadlines = len(world.commands), len(state.heap)
        sleepers = any(pool.spec.off_days for pool in state.pools.values())
        waiting = bool(state.waiting)
        world.after_step = None
        world.pace = 4
        world.run(86_400)
        commands = [command for _, command in world.commands[before:]]
        if waiting:
            return  # on another day a parked VM may do
        assert sleepers or not commands, f"I6: {commands}"
        switched = [c.server_id for c in commands if isinstance(c, StopServer | StartServer)]
        assert len(set(switched)) == len(switched), f"I9: {commands}"
        # a surplus that slept goes when it wakes: only ACTIVE ones are deleted (R8)
        rules = {command.reason.rule for command in commands}
        assert rules <= {"R9 power", "R8 scale_down"}, f"I6: {commands}"
        # an old deadline that comes is one tick, and one summary of the quiet before it
        grown = world.fleet.position - position
        assert sleepers or grown <= 2 * deadlines, "I6: the log grows"


CoreMachine.TestCase.settings = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=_STEPS,
    deadline=None,
    derandomize=not _DEEP,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,) if _DEEP else (Phase.generate, Phase.shrink),
)
TestCore = CoreMachine.TestCase
