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
from poolsm.images import resolve_image
from poolsm.members import Assignment, Op, Pool, Vm
from poolsm.pool import CLOSED
from poolsm.records import ServerRecord
from poolsm.requests import find_vm
from poolsm.shapes import (
    AssignmentView,
    ConditionView,
    FleetView,
    OpView,
    PoolStanding,
    PoolView,
    StrayView,
    VmView,
)
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.vm import MISSING
from poolsm.words import is_off_day, is_ready, listing_is_fresh, suspended

__all__ = [
    "AssignmentView",
    "ConditionView",
    "FleetView",
    "OpView",
    "PoolStanding",
    "PoolView",
    "StrayView",
    "VmView",
    "assignment_view",
    "assignment_views",
    "fleet_conditions",
    "fleet_view",
    "pool_after_claim",
    "pool_conditions",
    "pool_view",
    "pool_views",
    "pools_of",
    "standing_of",
    "stray_views",
    "vm_view",
    "vm_views",
    "wall_ms",
    "why_at",
]

PROVISIONED = "Provisioned"  # the condition that planning keeps: why a pool is at n of m


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
    )


def fleet_conditions(state: State) -> tuple[ConditionView, ...]:
    """What holds back more than one pool, or needs an operator; the gravest first."""
    found: list[ConditionView] = []

    def note(kind: str, reason: str, message: str, since_ms: int = 0) -> None:
        found.append(ConditionView(kind, reason, message, wall_ms(state, since_ms)))

    if state.loss is not None:
        text = f"{len(state.loss.lost)} servers left the listing at once"
        done = f"{text}; nothing is created or deleted until that is understood"
        note("LossSuspected", "FleetLost", done, state.loss.since_ms)
    if state.adopting:
        text = "waiting for the first complete listing of this run; nothing is planned before it"
        note("Adopting", "NotListedYet", text, state.epoch_started_ms)
    elif not listing_is_fresh(state):
        note("ListingStale", "TooOld", _stale_text(state), state.watch.listing_started_ms)
    if state.listing_error:
        note("ListingFailed", "Error", state.listing_error)
    if state.guard_listings:
        text = f"the clock was set; {state.guard_listings} complete listings to wait for"
        note("ClockGuard", "ClockStepped", f"{text} before anything is deleted or switched")
    if state.now_ms < state.creation_pause_until_ms:
        left_s = (state.creation_pause_until_ms - state.now_ms) // 1000
        text = f"for {left_s} s more: {state.creation_pause_text}"
        note("CreationPaused", "RetryAfter", text)
    for flavor_id, quota in sorted(state.quotas.items()):
        flavor = state.flavors.get(flavor_id)
        name = flavor.name if flavor else flavor_id
        left_s = max(quota.until_ms - state.now_ms, 0) // 1000
        then = "a probe is on its way" if quota.probe else f"next probe in {left_s} s"
        note("QuotaExceeded", flavor_id, f"flavor {name}: {quota.message}; {then}")
    if state.unreadable:
        text = f"{len(state.unreadable)} servers are shown without metadata: "
        note("UnreadableRecords", "NoMetadata", text + _few(sorted(state.unreadable)))
    return tuple(found)


def _stale_text(state: State) -> str:
    started_ms, limit_s = state.watch.listing_started_ms, state.settings.listing_age_limit_s
    if not started_ms:
        return "no complete listing was ever seen"
    age_s = (state.now_ms - started_ms) // 1000
    error = f"; last error: {state.listing_error}" if state.listing_error else ""
    return f"the last complete listing is {age_s} s old, the limit is {limit_s} s{error}"


def _few(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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
    )


def why_at(state: State, pool: Pool) -> tuple[str, str]:
    """Why a pool is at n of m: a machine-readable reason, and a message (R6).

    Planning says so at each round; what keeps planning from running at all is said here.
    """
    planned = pool.conditions.get(PROVISIONED)
    if planned and planned.reason == "Satisfied" and pool.capacity >= pool.spec.min_vm:
        return planned.reason, planned.message
    if state.adopting:
        return "Adopting", "waiting for the first complete listing of this run"
    if not listing_is_fresh(state):
        return "ListingStale", _stale_text(state)
    held = suspended(pool, state)
    if held:
        return held
    if planned is None or planned.reason == "Satisfied":
        return "NotPlannedYet", f"{pool.capacity} of {pool.spec.min_vm}; planned at the next tick"
    return planned.reason, planned.message


def pool_conditions(state: State, pool: Pool) -> tuple[ConditionView, ...]:
    """What the rules noted about a pool, and what else holds it back, by kind."""
    image = resolve_image(pool.spec, state)
    found = [
        ConditionView(kind, known.reason, known.message, wall_ms(state, known.since_ms))
        for kind, known in pool.conditions.items()
        if kind != "ImageAmbiguous" or (image is not None and image.ambiguous)
    ]
    held = suspended(pool, state)
    if held:
        found.append(ConditionView("Suspended", *held))
    if pool.breaker != CLOSED:
        text = f"{pool.failures} failed creations since the last ACTIVE"
        found.append(ConditionView("Breaker", pool.breaker, text))
    if is_off_day(pool, state) is None:
        zone = pool.spec.time_zone or state.settings.time_zone
        text = f"the rules of time zone {zone} are not loaded; nothing is stopped or started"
        found.append(ConditionView("DayUnknown", "NoZoneRules", text))
    return tuple(sorted(found, key=lambda condition: condition.kind))


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
