"""A fleet at rest behind a lying proxy, and what one fault does to it, from the cloud's side.

    settle   declare the pools, wait until all is as it should be
    suffer   one fault for some seconds, while pools change and people ask for VMs; then the truth
    verdict  what was created, deleted and touched; what the operator saw; how long it took to heal

One runner lives through any number of faults. Nothing is restarted and no operator helps.
"""

import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from attrs import define, field, frozen

from poolsm.conditions import concerns
from poolsm_runners.control_requests import Assign, Release
from tests.chaos.killing import CloudSide, Wanted, unrest
from tests.integration.running import RunnerProcess, WaitedInVainError, pool_file, until
from tests.lying.lies import Lie
from tests.lying.proxied import Proxied
from tests.lying.proxy import Exchange

SIZES = (3, 5)  # of the two pools that grow and shrink in turn
SILENCE_S = 3.5  # longer than a rename takes to be repeated
HEALING_S = 40.0
SHUT = "shut"


@frozen(kw_only=True)
class Scenario:
    """One row of the table of faults.

    Attributes:
        name: what goes wrong, for the table.
        lies: what the proxy does; with ``shut`` it refuses connections instead.
        shows: reasons of conditions of which the operator must see one; none: nothing must be seen.
        fault_s: how long it lasts.
        page_limit: servers per page of Nova's listings; 0 for as many as there are.
        lab: whether it is one of the few that run on a real OpenStack in the ordinary suite.
    """

    name: str
    lies: tuple[Lie, ...] = ()
    shut: bool = False
    shows: tuple[str, ...] = ()
    fault_s: float = 4.0
    page_limit: int = 0
    lab: bool = False


@define
class Seen:
    """What an operator could see while the fault lasted and until all was well again."""

    conditions: dict[str, str] = field(factory=dict)  # kind (reason): message
    log_lines: Counter[str] = field(factory=Counter)
    metrics: Counter[str] = field(factory=Counter)


@define(kw_only=True)
class Verdict:
    """What one fault did. Counts are of what reached the cloud, after the fault began.

    Attributes:
        happened: how often the proxy lied.
        created, deleted, touched: servers (touched: claimed, renamed, switched).
        needed: how many creates and deletes the orders alone call for.
        calls: requests of the runner while the fault lasted, answered or not.
        recovered_s: from the truth to rest.
    """

    name: str
    happened: int
    created: int
    deleted: int
    touched: int
    needed: tuple[int, int]
    calls: int
    fault_s: float
    recovered_s: float
    seen: Seen


@define
class Town:
    """Four pools, a runner, a proxy and a cloud.

    Attributes:
        prefix: with which the pools' names begin.
        holders: request id -> server id of those who have a VM.
    """

    folder: Path
    side: CloudSide
    proxied: Proxied
    runner: RunnerProcess
    metrics_url: str
    common: dict[str, object]
    prefix: str = ""
    holders: dict[str, str] = field(factory=dict)
    number: int = 0
    _sizes: tuple[int, int] = SIZES
    _released: set[str] = field(factory=set)
    _ever_held: set[str] = field(factory=set)

    # --- orders -----------------------------------------------------------------------------

    def pool(self, name: str) -> str:
        """The full name of one of the pools."""
        return f"{self.prefix}{name}"

    def declare(self) -> None:
        """What the pools should be now."""
        tiny = {**self.common, "flavor": "m1.tiny"}
        small = {**self.common, "flavor": "m1.small"}
        one, other = self._sizes
        pools: list[dict[str, object]] = [
            {"id": self.pool("warm"), "user": "admin", "min_vm": 2, "warm": True, **tiny},
            {"id": self.pool("drawn"), "user": "a", "min_vm": 2, "max_vm": 9, **tiny},
            {"id": self.pool("one"), "user": "b", "min_vm": one, "max_vm": one, **small},
            {"id": self.pool("other"), "user": "b", "min_vm": other, "max_vm": other, **small},
        ]
        self.runner.apply(pool_file(self.folder / "pools.toml", *pools))

    def wanted(self) -> tuple[Wanted, ...]:
        """The same, for the reckoning."""
        one, other = self._sizes
        return (
            Wanted(self.pool("warm"), 2),
            Wanted(self.pool("drawn"), 2, 9),
            Wanted(self.pool("one"), one, one),
            Wanted(self.pool("other"), other, other),
        )

    def _churn(self) -> None:
        """One pool grows by two, another shrinks by two, one person comes, one goes."""
        self.number += 1
        self._sizes = (self._sizes[1], self._sizes[0])
        self.declare()
        for request, server_id in list(self.holders.items())[:1]:
            del self.holders[request]
            self._released.add(server_id)
            self.runner.ask(Release(server_id))
        request = f"request-{self.prefix}{self.number}"
        self.runner.ask(Assign(f"a/{self.pool('drawn')}", request, f"student-{self.number}", 120.0))
        self.holders[request] = ""

    def _note_grants(self) -> None:
        for asked in self.runner.standing().fleet.assignments:
            if asked.request_id in self.holders and asked.state == "granted":
                self.holders[asked.request_id] = asked.server_id
                self._ever_held.add(asked.server_id)

    # --- life -------------------------------------------------------------------------------

    def begin(self, within_s: float = HEALING_S) -> None:
        """Start the runner; at rest afterwards, and somebody has a VM already."""
        self.runner.start()
        self.runner.wait_listed(60)
        self.declare()
        self.settle(within_s)
        self._churn()
        self.settle(within_s)

    def settle(self, within_s: float = HEALING_S) -> float:
        """Until all is as wanted; the seconds that it took."""
        began = time.monotonic()
        try:
            until("rest", lambda: not self.unrest(), within_s, 0.25)
        except WaitedInVainError:
            found = self.unrest()
            raise WaitedInVainError(f"no rest within {within_s:.0f} s: {found}") from None
        self._note_grants()
        return time.monotonic() - began

    def unrest(self) -> list[str]:
        """What is not as it should be, at all."""
        found = unrest(self.runner, self.side, self.wanted())
        fleet = self.runner.standing().fleet
        found += [f"{c.type} ({c.reason}): {c.message}" for c in concerns(fleet.conditions)]
        found += [
            f"pool {pool.key}: {c.type} ({c.reason}): {c.message}"
            for pool in fleet.pools
            for c in concerns(pool.conditions)
            if c.type not in {"Provisioned", "LastFailure"}
        ]
        return found

    def suffer(self, scenario: Scenario) -> Verdict:
        """One fault, from rest to rest; raises AssertionError for what does not hold."""
        assert not self.unrest()
        seen, before = Seen(), _Before.of(self)
        self.proxied.set_page_limit(scenario.page_limit)
        self._begin(scenario)
        self._churn()
        ends = time.monotonic() + scenario.fault_s
        while time.monotonic() < ends:
            self._look(seen, before)
            time.sleep(0.25)
        calls = len(self.proxied.exchanges(before.exchanges))
        happened = self.proxied.happened()
        recovered_s = self._heal(seen, before)
        exchanges = self.proxied.exchanges(before.exchanges)
        self._hold_account(exchanges)
        self._read(seen, before)
        return Verdict(
            name=scenario.name,
            happened=happened,
            **_counts(exchanges),
            needed=(2 + 1, 2 + 1),
            calls=calls,
            fault_s=scenario.fault_s,
            recovered_s=recovered_s,
            seen=seen,
        )

    def _begin(self, scenario: Scenario) -> None:
        if scenario.shut:
            self.proxied.shut()
        self.proxied.tell(*scenario.lies)

    def _heal(self, seen: Seen, before: "_Before") -> float:
        self.proxied.truth()
        self.proxied.open()
        self.proxied.set_page_limit(0)
        began = time.monotonic()

        def rests() -> bool:
            self._look(seen, before)
            return not self.unrest()

        while True:
            try:
                until("rest", rests, HEALING_S - (time.monotonic() - began), 0.25)
            except WaitedInVainError:
                raise WaitedInVainError(
                    f"no rest {HEALING_S:.0f} s after the fault: {self.unrest()}"
                ) from None
            healed_s = time.monotonic() - began
            if self._is_silent():
                self._note_grants()
                return healed_s

    def _is_silent(self) -> bool:
        """No call that changes anything for longer than the pause between two attempts (I6)."""
        count = len(self.proxied.writes())
        time.sleep(SILENCE_S)
        return len(self.proxied.writes()) == count and not self.unrest()

    # --- the verdict ------------------------------------------------------------------------

    def _look(self, seen: Seen, before: "_Before") -> None:
        """One look at the cloud and at what the runner says; ceilings hold all the time."""
        assert self.runner.running, self.runner.output()[-2000:]
        self._note_grants()
        fleet = self.runner.standing().fleet
        for found in concerns(fleet.conditions):
            seen.conditions[f"{found.type} ({found.reason})"] = found.message
        for pool in fleet.pools:
            if pool.reason not in {"Satisfied", "Provisioning", "Transferring", "NotPlannedYet"}:
                seen.conditions[pool.reason] = pool.message
            for found in concerns(pool.conditions):
                fresh = found.since_ms is None or found.since_ms >= before.at_ms
                if found.type == "Suspended":
                    seen.conditions[found.reason] = found.message
                elif fresh and found.type != "Provisioned":
                    seen.conditions[f"{found.type} ({found.reason})"] = found.message
        there = Counter(server.pool for server in self.side.live())
        for pool in (self.pool("one"), self.pool("other")):
            assert there[pool] <= max(self._sizes), f"I1: {there[pool]} servers in {pool}"

    def _hold_account(self, exchanges: Iterable[Exchange]) -> None:
        """I2 and I3, by the cloud's own account and by what was sent to it."""
        twice = {key: count for key, count in self.side.creates().items() if count > 1}
        assert not twice, f"I2: more than one server of a create command: {twice}"
        deleted = {e.server_id for e in exchanges if e.forwarded and e.operation == "delete"}
        stolen = (deleted & self._ever_held) - self._released
        assert not stolen, f"I3: deleted though somebody's: {stolen}"
        there = {server.server_id: server for server in self.side.live()}
        for request, server_id in self.holders.items():
            assert server_id in there, f"I3: the VM {server_id} of {request} is gone"
            assert there[server_id].attributed, f"I4: {server_id} is nobody's any more"
        known = {vm.server_id for vm in self.runner.vms()}
        assert known == set(there), f"I2: log {known - set(there)}, cloud {set(there) - known}"

    def _read(self, seen: Seen, before: "_Before") -> None:
        """Log lines of weight, and what the counters say."""
        for line in self.runner.log_lines(before.lines):
            if line.get("level") in {"warning", "error"}:
                kind = f" {line['kind']}" if line["event"] == "anomaly" else ""
                seen.log_lines[line["event"] + kind] += 1
        now = scrape(self.metrics_url)
        for name, value in now.items():
            grown = value - before.metrics.get(name, 0)
            if grown > 0:
                seen.metrics[name] = int(grown)


@frozen
class _Before:
    at_ms: int
    exchanges: int
    lines: int
    metrics: dict[str, float]

    @classmethod
    def of(cls, town: Town) -> "_Before":
        return cls(
            round(time.time() * 1000),
            len(town.proxied.exchanges()),
            len(town.runner.log_lines()),
            scrape(town.metrics_url),
        )


_TELLING = ("poolsm_api_requests_total", "poolsm_commands_answered_total", "poolsm_listings_total",
            "poolsm_anomalies_total")  # fmt: skip
_FINE = ('status="200"', 'status="201"', 'status="202"', 'status="204"', 'outcome="done"',
         'outcome="complete"')  # fmt: skip


def scrape(url: str) -> dict[str, float]:
    """The counters that tell of trouble, by name and labels."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith(_TELLING) and not any(fine in name for fine in _FINE):
            found[name] = float(value)
    return found


def requests_made(url: str) -> float:
    """Every request to the cloud that the runner has counted, whatever became of it."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("poolsm_api_requests_total")
    )


def free_address() -> str:
    """An address on this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


_TOUCHES = ("metadata", "rename", "start", "stop", "rebuild")


def _counts(exchanges: Iterable[Exchange]) -> dict[str, int]:
    """The servers that were created, deleted and touched, by the cloud's own answers."""
    done = [e for e in exchanges if e.forwarded and 200 <= e.real_status < 300]
    return {
        "created": sum(e.operation == "create" for e in done),
        "deleted": len({e.server_id for e in done if e.operation == "delete"}),
        "touched": len({e.server_id for e in done if e.operation in _TOUCHES}),
    }


def as_row(verdict: Verdict) -> dict[str, object]:
    """A row of the table, for machines."""
    seen = verdict.seen
    return {
        "fault": verdict.name,
        "lies": verdict.happened,
        "created": verdict.created,
        "deleted": verdict.deleted,
        "touched": verdict.touched,
        "needed": verdict.needed,
        "calls": verdict.calls,
        "fault_s": verdict.fault_s,
        "recovered_s": round(verdict.recovered_s, 1),
        "conditions": seen.conditions,
        "log_lines": dict(seen.log_lines),
        "metrics": dict(seen.metrics),
    }
