"""kill -9 at moments drawn from a seed, and the reckoning afterwards, from the cloud's side.

    rampage   start, let it work, kill -9; again and again, with orders in between
    recover   one more run, left alone: how long until everything is as it should be
    reckon    I2, I3, I4, I7 and silence, from what the cloud has, not from our log

The whole is run by the tests in this folder, small in CI; POOLSM_KILLS_SERVED and POOLSM_KILLS_LAB
say how many in full.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from attrs import frozen

from poolsm.assignment import OPEN_STATES
from poolsm.shapes import PoolView
from tests.integration.running import RunnerProcess, WaitedInVainError, until

START_UP_S = 1.3  # about how long a runner takes to its first listing
KILLED_WHILE_STARTING = 0.25


@frozen
class Server:
    """A server that exists, as the cloud has it."""

    server_id: str
    name: str
    status: str
    task_state: str | None
    metadata: dict[str, str]

    @property
    def pool(self) -> str:
        """By its tags."""
        return self.metadata.get("serverpool_id", "")

    @property
    def attributed(self) -> bool:
        """By its tags."""
        return self.metadata.get("reattrib") == "true"


class CloudSide(Protocol):
    """What the reckoning asks of a cloud."""

    def live(self) -> list[Server]:
        """The servers that exist in the project."""
        ...

    def creates(self) -> Counter[str]:
        """How many servers there ever were for each create command."""
        ...

    def writes(self) -> list[str]:
        """Every call of ours that could change something."""
        ...


@frozen
class Wanted:
    """What a pool must be in the end."""

    pool: str
    min_vm: int
    max_vm: int = 0


@frozen
class Rampage:
    """What became of the kills: seconds from start to first listing, of those that came so far."""

    kills: int
    while_starting: int
    to_listing_s: tuple[float, ...]

    def __str__(self) -> str:
        """Figures."""
        times = sorted(self.to_listing_s) or [0.0]
        return (
            f"{self.kills} kills, {self.while_starting} of them before the first listing; "
            f"start to first listing: median {times[len(times) // 2]:.2f} s, "
            f"longest {times[-1]:.2f} s"
        )


def rampage(
    runner: RunnerProcess,
    kills: int,
    seed: int,
    *,
    longest_s: float,
    before: Callable[[int], None] = lambda _: None,
    during: Callable[[int], None] = lambda _: None,
) -> Rampage:
    """Kill a runner so many times.

    A quarter of the kills come while it starts (and folds its log, and signs in), the others up
    to ``longest_s`` after its first listing, when it has begun to act.

    Args:
        runner: not running, before and afterwards.
        kills: how many.
        seed: decides the moments.
        longest_s: of its life after the first listing.
        before: called with the kill's number before each start.
        during: the same, once it has listed.
    """
    chance = random.Random(seed)
    starting = 0
    listed: list[float] = []
    for number in range(kills):
        before(number)
        runner.start()
        if chance.random() < KILLED_WHILE_STARTING:
            time.sleep(chance.uniform(0, START_UP_S))
        else:
            runner.wait_listed()
            ends = time.monotonic() + chance.uniform(0, longest_s)
            during(number)
            time.sleep(max(0.0, ends - time.monotonic()))
        said = runner.said("listed")
        starting += not said
        listed += [line["at_s"] - runner.started_s for line in said]
        runner.kill()
    return Rampage(kills, starting, tuple(listed))


def recover(
    runner: RunnerProcess, side: CloudSide, wanted: Iterable[Wanted], within_s: float
) -> float:
    """Start it and leave it alone; the seconds until all is as wanted (I7). It goes on running."""
    wanted = tuple(wanted)
    began = time.monotonic()
    runner.start()
    runner.wait_listed()
    try:
        until("all pools at rest", lambda: not unrest(runner, side, wanted), within_s, 0.5)
    except WaitedInVainError:
        raise WaitedInVainError(
            f"no rest within {within_s:.0f} s: {unrest(runner, side, wanted)}"
        ) from None
    return time.monotonic() - began


def unrest(runner: RunnerProcess, side: CloudSide, wanted: Iterable[Wanted]) -> list[str]:
    """What is not as it should be; empty at rest."""
    servers = side.live()
    found = [
        f"{server.name}: {server.status} {server.task_state or ''}"
        for server in servers
        if server.status != "ACTIVE" or server.task_state
    ]
    for pool in wanted:
        here = [server for server in servers if server.pool == pool.pool]
        free = [server for server in here if not server.attributed]
        if len(here) < pool.min_vm:
            found.append(f"pool {pool.pool}: {len(here)} of {pool.min_vm}")
        if pool.max_vm and len(here) > pool.max_vm and free:
            found.append(f"pool {pool.pool}: {len(here)} above {pool.max_vm}, {len(free)} free")
    fleet = runner.standing().fleet
    found += [f"{op.kind} {op.command_id} in flight" for op in fleet.in_flight]
    found += [
        f"request {asked.request_id}: {asked.state}"
        for asked in fleet.assignments
        if asked.state in OPEN_STATES
    ]
    found += [f"pool {p.key}: {_trouble(p)}" for p in fleet.pools if _trouble(p)]
    return found


def _trouble(pool: PoolView) -> str:
    busy = {state: count for state, count in pool.by_state.items() if state != "ACTIVE" and count}
    if busy or pool.pending_jobs or pool.capacity < pool.min_vm:
        return f"{busy}, {pool.pending_jobs} pending, {pool.reason}: {pool.message}"
    return ""


def reckon(
    runner: RunnerProcess, side: CloudSide, wanted: Iterable[Wanted], *, silence_s: float
) -> str:
    """Hold the cloud's own account against the invariants; returns the figures."""
    wanted = tuple(wanted)
    creates = side.creates()
    twice = {command: count for command, count in creates.items() if count > 1}
    assert not twice, f"I2: more than one server of a create command: {twice}"

    servers = side.live()
    log_id = runner.standing().fleet.log_id
    pools = {pool.pool for pool in wanted}
    strange = [s for s in servers if s.pool not in pools or s.metadata.get("poolsm_log") != log_id]
    assert not strange, f"I2: servers unaccounted for: {strange}"
    known = {vm.server_id for vm in runner.vms()}
    there = {server.server_id for server in servers}
    assert known == there, (
        f"I2: in the log alone {known - there}, in the cloud alone {there - known}"
    )

    requests = Counter(s.metadata["poolsm_request"] for s in servers if _request(s))
    shared = {request: count for request, count in requests.items() if count > 1}
    assert not shared, f"I4: requests with more than one VM: {shared}"

    assert not unrest(runner, side, wanted), "I7"
    writes = side.writes()
    time.sleep(silence_s)
    more = side.writes()[len(writes) :]
    assert not more, f"I6: calls at rest: {more}"
    return (
        f"{len(creates)} servers ever created by as many commands, {len(servers)} live in "
        f"{len(pools)} pools, all accounted for; {len(writes)} changing calls, "
        f"none in {silence_s:.0f} s"
    )


def _request(server: Server) -> str:
    return server.metadata.get("poolsm_request", "")
