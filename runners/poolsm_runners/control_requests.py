"""What may be asked of a runner, as records, and how each is carried out.

The same code serves a running runner and, when there is none, an engine that the command line
opened itself: both give a way to submit events and a state to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from poolsm import Step
from poolsm.events import ConfigDeclared, Event, PoolDeclared
from poolsm.pool import CLOSED
from poolsm.shapes import AssignmentView, FleetView, VmView
from poolsm.state import State
from poolsm.views import assignment_view, fleet_view, pool_view, vm_view, vm_views
from poolsm_runners import halting, operations
from poolsm_runners.operations import ConfigDeclaration, Desk, PoolDeclaration, pool_named
from poolsm_runners.takeover import AttributionDeclaration, take_over

Make = Callable[[Desk], Awaitable[list[Event]]]


class Apply(msgspec.Struct, frozen=True, tag="apply", forbid_unknown_fields=True):
    """Declare configs and pools."""

    pools: tuple[PoolDeclaration, ...] = ()
    configs: tuple[ConfigDeclaration, ...] = ()


class TakeOver(msgspec.Struct, frozen=True, tag="take_over", forbid_unknown_fields=True):
    """Take pools, configs and attributions over from the service before us (R11)."""

    pools: tuple[PoolDeclaration, ...] = ()
    configs: tuple[ConfigDeclaration, ...] = ()
    attributions: tuple[AttributionDeclaration, ...] = ()


class Remove(msgspec.Struct, frozen=True, tag="remove", forbid_unknown_fields=True):
    """Drain a pool (R12)."""

    pool: str
    include_assigned: bool = False


class Assign(msgspec.Struct, frozen=True, tag="assign", forbid_unknown_fields=True):
    """Ask for a VM, for ``deadline_s`` seconds (R16)."""

    pool: str
    request_id: str
    claimant: str
    deadline_s: float


class Ask(msgspec.Struct, frozen=True, tag="ask", forbid_unknown_fields=True):
    """How a request for a VM stands."""

    request_id: str


class Release(msgspec.Struct, frozen=True, tag="release", forbid_unknown_fields=True):
    """Give a VM back, or withdraw a request (R16)."""

    target: str


class Reset(msgspec.Struct, frozen=True, tag="reset", forbid_unknown_fields=True):
    """Have a pool try again now (R6)."""

    pool: str


class Acknowledge(msgspec.Struct, frozen=True, tag="acknowledge", forbid_unknown_fields=True):
    """A second manager, or re-tagged servers, were seen to (R11)."""

    pool: str


class Pause(msgspec.Struct, frozen=True, tag="pause", forbid_unknown_fields=True):
    """Nothing is done to a pool by itself, or to any: an empty name is the whole fleet."""

    pool: str = ""
    why: str = ""


class Resume(msgspec.Struct, frozen=True, tag="resume", forbid_unknown_fields=True):
    """The rules apply again to a pool, or to the whole fleet."""

    pool: str = ""


class Hold(msgspec.Struct, frozen=True, tag="hold", forbid_unknown_fields=True):
    """A VM is kept as it is."""

    target: str
    why: str = ""


class Unhold(msgspec.Struct, frozen=True, tag="unhold", forbid_unknown_fields=True):
    """The rules apply to a held VM again."""

    target: str


class ConfirmLoss(msgspec.Struct, frozen=True, tag="confirm_loss", forbid_unknown_fields=True):
    """The servers that left the listing at once are gone (R10)."""


class Trim(msgspec.Struct, frozen=True, tag="trim", forbid_unknown_fields=True):
    """Events up to a position are in the archive: remove them from the log."""

    upto: int


class Status(msgspec.Struct, frozen=True, tag="status", forbid_unknown_fields=True):
    """The fleet as it is; with ``vms`` also each VM."""

    vms: bool = False


Request = (
    Apply
    | TakeOver
    | Remove
    | Assign
    | Ask
    | Release
    | Reset
    | Acknowledge
    | Pause
    | Resume
    | Hold
    | Unhold
    | ConfirmLoss
    | Trim
    | Status
)
# of an operator or service, to one event each
Plain = (
    Remove | Assign | Release | Reset | Acknowledge | Pause | Resume | Hold | Unhold | ConfirmLoss
)


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What was recorded, one line for each thing; it is durable."""

    lines: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    position: int = 0


class Assigned(msgspec.Struct, frozen=True, tag="assigned"):
    """How a request for a VM stands; ``vm`` once it has one."""

    assignment: AssignmentView
    vm: VmView | None = None
    why: str = ""


class Standing(msgspec.Struct, frozen=True, tag="standing"):
    """The fleet as it is. ``source`` is ``runner``, or ``log`` when no runner answers for it.

    ``trouble``: why the runner that is there does not; it works, but not on the fleet.
    """

    fleet: FleetView
    vms: tuple[VmView, ...] = ()
    source: str = "runner"
    trouble: str = ""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The request cannot be carried out; nothing was changed. Lines for an operator."""

    error: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It is not known to be carried out: the log cannot be written, the runner is ending."""

    error: str


class Away(msgspec.Struct, frozen=True, tag="away"):
    """Nothing was changed, for the runner works on no fleet now: ``why``, and what to do."""

    why: str


Result = Done | Assigned | Standing
Answer = Result | Refused | Failed | Away


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request and who it is from; ``origin`` is recorded with what it changes."""

    request: Request
    origin: str


class Host(Protocol):
    """Who carries requests out: a runner, or the command line alone."""

    @property
    def state(self) -> State:
        """The fold's state, to be read only."""
        ...

    async def submit(self, make: Make, origin: str) -> list[Step]:
        """Check, record, and return when it is durable."""
        ...

    async def trim(self, upto: int) -> None:
        """Leave events up to a position to the archive."""
        ...


async def carry_out(host: Host, envelope: Envelope) -> Result:
    """Carry one request out; returns once what it changes is durable.

    Raises:
        RefusedError: it cannot be carried out as it is; nothing was changed.
        LogWriteError: it is not durable.
    """
    request = envelope.request
    if isinstance(request, Status):
        return await _status(host.state, vms=request.vms)
    if isinstance(request, Ask):
        return _assigned(host.state, request.request_id)
    if isinstance(request, Apply):
        return await _apply(host, request, envelope.origin)
    if isinstance(request, Trim):
        await host.trim(request.upto)
        return Done((f"events up to {request.upto} are in the archive",), (), host.state.position)
    if isinstance(request, TakeOver):
        return await _take_over(host, request, envelope.origin)

    async def make(desk: Desk) -> list[Event]:
        return _events(desk, request)

    said = _said(host.state, request)  # an empty pool is gone before its removal is answered
    if isinstance(request, Reset):
        said += _in_the_way(host.state, request)
    steps = await host.submit(make, envelope.origin)
    if isinstance(request, Assign):
        return _assigned(host.state, request.request_id)
    return Done((said,), _warnings(steps), host.state.position)


def _events(desk: Desk, request: Plain) -> list[Event]:
    match request:
        case Remove():
            return operations.remove_pool(
                desk, request.pool, include_assigned=request.include_assigned
            )
        case Assign():
            return operations.assign(
                desk,
                request.pool,
                request_id=request.request_id,
                claimant=request.claimant,
                deadline_s=request.deadline_s,
            )
        case Release():
            return operations.release(desk, request.target)
        case Reset():
            return operations.reset(desk, request.pool)
        case Acknowledge():
            return operations.acknowledge(desk, request.pool)
        case Pause():
            return halting.pause(desk, request.pool, request.why)
        case Resume():
            return halting.resume(desk, request.pool)
        case Hold():
            return halting.hold(desk, request.target, request.why)
        case Unhold():
            return halting.unhold(desk, request.target)
        case ConfirmLoss():
            return operations.confirm_loss(desk)


def _in_the_way(state: State, request: Reset) -> str:
    """What a reset ends, said before it does."""
    pool = pool_named(state, request.pool)
    ended = [
        f"its breaker was {pool.breaker}" if pool.breaker != CLOSED else "",
        f"its spec counted as invalid ({pool.invalid})" if pool.invalid else "",
        f"it had {pool.failures} failures behind it" if pool.failures else "",
    ]
    return f": {', '.join(filter(None, ended)) or 'nothing was in its way'}"


def _said(state: State, request: Plain) -> str:
    match request:
        case Remove():
            return halting.removed_text(state, request.pool)
        case Release():
            return halting.released_text(state, request.target)
        case Reset():
            return f"pool {pool_named(state, request.pool).key}: tries again now"
        case Acknowledge():
            return f"pool {pool_named(state, request.pool).key}: acknowledged"
        case Pause(pool=name):
            return halting.paused_text(state, name)
        case Resume(pool=name):
            return halting.resumed_text(state, name)
        case Hold(target=target):
            return halting.held_text(state, target)
        case Unhold(target=target):
            return f"VM {target}: the rules apply to it again"
        case ConfirmLoss():
            return "the lost servers count as gone"
        case Assign():
            return f"request {request.request_id}"


async def _apply(host: Host, request: Apply, origin: str) -> Done:
    known = set(host.state.pools)
    steps = await host.submit(
        lambda desk: operations.declare(desk, list(request.pools), list(request.configs)), origin
    )
    events = [entry.event for step in steps for entry in step.entries]
    declared = {event.spec.key for event in events if isinstance(event, PoolDeclared)}
    written = {(event.user_id, event.name) for event in events if isinstance(event, ConfigDeclared)}
    lines = [
        f"config {config.user_id}/{config.name}: "
        + ("declared" if (config.user_id, config.name) in written else "unchanged")
        for config in request.configs
    ]
    for pool in request.pools:
        key = pool.spec.key
        verb = ("changed" if key in known else "declared") if key in declared else "unchanged"
        lines.append(f"pool {key}: {verb}")
    return Done(tuple(lines), _warnings(steps), host.state.position)


async def _take_over(host: Host, request: TakeOver, origin: str) -> Done:
    lines: tuple[str, ...] = ()

    async def make(desk: Desk) -> list[Event]:
        nonlocal lines
        taken = await take_over(
            desk, list(request.pools), list(request.configs), list(request.attributions)
        )
        lines = taken.lines
        return list(taken.events)

    steps = await host.submit(make, origin)
    return Done(lines, _warnings(steps), host.state.position)


def _warnings(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(
        f"{anomaly.subject}: {anomaly.text}" for step in steps for anomaly in step.anomalies
    )


def _assigned(state: State, request_id: str) -> Assigned:
    found = assignment_view(state, request_id)
    if found is None:
        raise operations.RefusedError(f"there is no request {request_id!r}; it may be too old")
    pool = pool_view(state, found.pool) if found.state == "waiting" else None
    why = f"{pool.reason}: {pool.message}" if pool else ""
    return Assigned(found, vm_view(state, found.vm) if found.vm else None, why)


async def _status(state: State, *, vms: bool) -> Standing:
    found: list[VmView] = []
    for key in sorted(state.pools) if vms else ():
        found += vm_views(state, key)
        await asyncio.sleep(0)  # a large fleet takes its time: the loop goes on in between
    return Standing(fleet_view(state), tuple(found))
