"""What the fold knows, as frozen values for people and other services.

These are what the command line prints, its JSON output encodes and an inventory is fed from.
Times are wall-clock milliseconds; ages are counted from the last event, the only "now" there
is. The shapes are in :mod:`poolsm.shapes`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from poolsm.commands import (
    LOG_ID,
    SERVERPOOL_ID,
    USER_ID,
    ClaimServer,
    Command,
    CreateServer,
    DeleteServer,
    FetchImage,
    FindServer,
    RebuildServer,
    RenameServer,
    StartServer,
    StopServer,
)
from poolsm.conditions import fleet_conditions, pool_conditions, why_at
from poolsm.images import resolve_image
from poolsm.members import Assignment, Op, Pool, Vm, Word
from poolsm.pool import CLOSED
from poolsm.records import ServerRecord
from poolsm.requests import find_vm
from poolsm.shapes import (
    AssignmentView,
    FleetView,
    OpView,
    PoolStanding,
    PoolView,
    StrayView,
    VmView,
    WordView,
)
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.vm import MISSING
from poolsm.words import is_off_day, is_ready, pause_of

__all__ = [
    "AssignmentView",
    "FleetView",
    "OpView",
    "PoolStanding",
    "PoolView",
    "StrayView",
    "VmView",
    "assignment_view",
    "assignment_views",
    "fleet_view",
    "pool_after_claim",
    "pool_view",
    "pool_views",
    "pools_of",
    "standing_of",
    "stray_views",
    "vm_view",
    "vm_views",
    "wall_ms",
]


def wall_ms(state: State, at_ms: int) -> int | None:
    """Fleet time as wall-clock time; 0, which stands for "never", as None."""
    return at_ms + state.skew_ms if at_ms else None


# --- the fleet -----------------------------------------------------------------------------


def fleet_view(state: State) -> FleetView:
    """Everything but the VMs."""
    started_ms = state.watch.listing_started_ms
    pools = state.pools.values()
    return FleetView(
        fleet_id=state.fleet_id,
        log_id=state.log_id,
        epoch=state.epoch,
        position=state.position,
        now_ms=state.now_ms + state.skew_ms,
        listing_started_ms=wall_ms(state, started_ms),
        listing_age_ms=state.now_ms - started_ms if started_ms else None,
        conditions=fleet_conditions(state),
        owned=sum(pool.owned for pool in pools),
        capacity=sum(pool.capacity for pool in pools),
        creations=len(state.creations),
        creations_limit=state.settings.creations_limit,
        in_flight=tuple(_op_view(state, state.ops[key]) for key in sorted(state.ops)),
        pools=pool_views(state),
        assignments=assignment_views(state),
        strays=stray_views(state),
        paused=state.paused.text if state.paused else "",
        last_word=_word_view(state, state.last_word),
    )


# --- pools ---------------------------------------------------------------------------------


def standing_of(pool: Pool) -> PoolStanding:
    """A pool's numbers now."""
    return PoolStanding(
        pool.key,
        pool.state,
        pool.spec.min_vm,
        pool.spec.max_vm,
        pool.owned,
        pool.capacity,
        {state: len(keys) for state, keys in sorted(pool.members.items())},
        pool.pending_jobs,
    )


def pool_view(state: State, key: PoolKey) -> PoolView | None:
    """One pool; None if there is none of that key."""
    pool = state.pools.get(key)
    return _pool_view(state, pool) if pool else None


def pool_views(state: State) -> tuple[PoolView, ...]:
    """All pools, in the order of their keys."""
    return tuple(_pool_view(state, state.pools[key]) for key in sorted(state.pools))


def _pool_view(state: State, pool: Pool) -> PoolView:
    spec, numbers = pool.spec, standing_of(pool)
    vms = [state.vms[key] for keys in pool.members.values() for key in keys]
    image = resolve_image(spec, state)
    waiting = [state.assignments[request] for request in state.asked_of.get(pool.key, ())]
    reason, message = why_at(state, pool)
    return PoolView(
        key=pool.key,
        origin=pool.origin,
        state=pool.state,
        warm=spec.warm,
        min_vm=spec.min_vm,
        max_vm=spec.max_vm,
        owned=numbers.owned,
        capacity=numbers.capacity,
        ready=sum(is_ready(vm, pool) for vm in vms),
        attributed=sum(vm.attribution is not None for vm in vms),
        in_flight=len(pool.flying),
        pending_jobs=numbers.pending_jobs,
        requests_waiting=sum(a.state == "waiting" for a in waiting),
        by_state=numbers.by_state,
        reason=reason,
        message=message,
        conditions=pool_conditions(state, pool),
        off_day=is_off_day(pool, state),
        off_days=spec.off_days,
        time_zone=spec.time_zone or state.settings.time_zone,
        flavor_ref=spec.flavor_ref,
        image_ref=spec.image_ref,
        image_id=image.image_id if image else "",
        image_steps=image.steps if image else ("the images are not listed yet",),
        image_ambiguous=image.ambiguous if image else "",
        failures=pool.failures,
        breaker=pool.breaker,
        breaker_until_ms=None if pool.breaker == CLOSED else wall_ms(state, pool.breaker_until_ms),
        backoff_until_ms=wall_ms(state, pool.backoff_until_ms),
        paused=pause.text if (pause := pause_of(pool, state)) else "",
        last_word=_word_view(state, pool.last_word),
    )


def _word_view(state: State, word: Word | None) -> WordView | None:
    return WordView(word.deed, word.origin, wall_ms(state, word.at_ms)) if word else None


def pools_of(state: State, command: Command) -> tuple[PoolKey, ...]:
    """The pools that a command is about; of a claim from a warm pool both."""
    if isinstance(command, CreateServer | FetchImage):
        return (command.pool,)
    if isinstance(command, DeleteServer):
        return (command.expect.pool,)
    if isinstance(command, ClaimServer):
        return tuple(sorted({command.expect.pool, pool_after_claim(command)}))
    if isinstance(command, StopServer | StartServer | RenameServer | RebuildServer | FindServer):
        vm = find_vm(state, command.server_id)
        return (vm.pool,) if vm else ()
    return ()


def pool_after_claim(command: ClaimServer) -> PoolKey:
    """The pool that a claimed VM belongs to from then on."""
    home, tags = command.expect.pool, command.metadata
    return PoolKey(tags.get(SERVERPOOL_ID, home.serverpool_id), tags.get(USER_ID, home.user_id))


# --- VMs, requests, strays -----------------------------------------------------------------


def vm_view(state: State, target: str) -> VmView | None:
    """One VM by server id, command id, request id, or a name that only one VM has."""
    vm = find_vm(state, target)
    return _vm_view(state, vm) if vm else None


def vm_views(state: State, key: PoolKey | None = None) -> tuple[VmView, ...]:
    """The VMs of one pool, or of all, by pool and from oldest to newest."""
    keys = sorted(state.pools) if key is None else [key] if key in state.pools else []
    pools = [state.pools[found] for found in keys]
    return tuple(_vm_view(state, vm) for pool in pools for vm in state.all_vms(pool))


def _vm_view(state: State, vm: Vm) -> VmView:
    record, held = vm.record, vm.attribution
    pool = state.pools[vm.pool]
    created_ms = parse_time(vm.created)
    now_ms = state.now_ms + state.skew_ms
    born_ms = created_ms if created_ms is not None else vm.since_ms + state.skew_ms
    op = state.ops.get(vm.op)
    return VmView(
        key=vm.key,
        name=vm.name,
        server_id=vm.server_id,
        pool=vm.pool,
        state=vm.state,
        task_state=record.task_state if record and vm.state != MISSING else None,
        addresses=record.addresses if record else (),
        ready=is_ready(vm, pool),
        attributed=held is not None,
        claimant=held.claimant if held else "",
        attributed_by=held.by if held else "",
        request_id=held.request_id if held else "",
        power_cause=vm.power_cause,
        op=_op_view(state, op) if op else None,
        condemned=vm.condemned,
        leaving=vm.leaving,
        absences=vm.absences,
        disputed=pool.disputed.get(vm.key, ""),
        fault=(record.fault or "") if record else "",
        image_id=vm.image_id,
        flavor_id=vm.flavor_id or (record.flavor_id if record else "") or "",
        created_ms=created_ms,
        since_ms=wall_ms(state, vm.since_ms),
        age_ms=max(now_ms - born_ms, 0),
        boot_deadline_ms=wall_ms(state, vm.boot_deadline_ms) if vm.booting else None,
        held=vm.held.text if vm.held else "",
    )


def parse_time(text: str) -> int | None:
    """An ISO 8601 timestamp of the cloud in milliseconds; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _op_view(state: State, op: Op) -> OpView:
    sent_ms = wall_ms(state, op.dispatched_ms or 0)
    return OpView(op.command_id, op.kind, wall_ms(state, op.planned_ms), sent_ms, op.unknown)


def assignment_view(state: State, request_id: str) -> AssignmentView | None:
    """One request; None if it is not known (answers are kept for a month)."""
    found = state.assignments.get(request_id)
    return _assignment_view(state, found) if found else None


def assignment_views(state: State) -> tuple[AssignmentView, ...]:
    """All requests, in the order in which they came."""
    found = sorted(state.assignments.values(), key=lambda a: (a.requested_ms, a.request_id))
    return tuple(_assignment_view(state, assignment) for assignment in found)


def _assignment_view(state: State, assignment: Assignment) -> AssignmentView:
    vm = state.vms.get(assignment.vm)
    return AssignmentView(
        request_id=assignment.request_id,
        pool=assignment.pool,
        claimant=assignment.claimant,
        state=assignment.state,
        message=assignment.message,
        vm=assignment.vm,
        name=vm.name if vm else "",
        server_id=assignment.server_id,
        addresses=vm.record.addresses if vm and vm.record else (),
        requested_ms=wall_ms(state, assignment.requested_ms),
        deadline_ms=wall_ms(state, assignment.deadline_ms),
        ended_ms=wall_ms(state, assignment.ended_ms),
    )


def stray_views(state: State) -> tuple[StrayView, ...]:
    """Servers that carry pool tags but belong to no declared pool, and unreadable ones."""
    records = {**state.strays, **state.unreadable}
    return tuple(_stray_view(state, records[key]) for key in sorted(records))


def _stray_view(state: State, record: ServerRecord) -> StrayView:
    tags = record.metadata
    key = None
    if tags is not None:
        key = PoolKey(tags.get(SERVERPOOL_ID, ""), tags.get(USER_ID, ""))
    ours = tags is not None and tags.get(LOG_ID) == state.log_id
    return StrayView(record.server_id, record.name or "", record.status, key, ours)
