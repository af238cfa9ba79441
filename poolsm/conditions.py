"""Conditions: what is to be known about a pool or the fleet, in the manner of Kubernetes.

Each type has at any time one status (True, False, Unknown), a machine-readable reason, a message
for people, and since when it has this status. Most types name something out of the ordinary and
are False as long as all is well; ``Provisioned`` is the other way round.

The status follows from the state, whenever it is asked for. Since when is noted at each planning
round, for the pools of that round: cost follows change (C7), and a status that changes while
nothing is planned has an instant that follows from the state as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from attrs import frozen

from poolsm.failure import quota_holds
from poolsm.images import resolve_image
from poolsm.members import Pool
from poolsm.pool import CLOSED, DRAINING
from poolsm.shapes import ConditionView
from poolsm.state import State
from poolsm.words import blocked, is_off_day, listing_is_fresh, pause_of, suspended

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

PROVISIONED: Final = "Provisioned"  # the condition that planning keeps: why a pool is at n of m
CLEAR: Final = "Clear"  # the reason of everything that is as it should be

_BREAKER_REASONS = {"open": "BreakerOpen", "half_open": "BreakerProbing"}


@frozen
class Finding:
    """A condition's status now. ``since_ms`` is fleet time, where the state itself tells it."""

    status: str
    reason: str
    message: str = ""
    since_ms: int = 0


_CLEAR: Final = Finding(FALSE, CLEAR)

_NOT_LOOKED_AT: Final = ("Adopting", "ListingStale", "NotPlannedYet")

PoolCheck = Callable[[State, Pool], Finding]
FleetCheck = Callable[[State], Finding]


# --- of a pool -----------------------------------------------------------------------------


def _provisioned(state: State, pool: Pool) -> Finding:
    reason, message = why_at(state, pool)
    if pool.capacity >= pool.spec.min_vm:
        return Finding(TRUE, reason, message)
    return Finding(UNKNOWN if reason in _NOT_LOOKED_AT else FALSE, reason, message)


def _paused(state: State, pool: Pool) -> Finding:
    pause = pause_of(pool, state)
    if pause is None:
        return _CLEAR
    reason = "PoolPaused" if pool.paused is not None else "FleetPaused"
    return Finding(TRUE, reason, pause.text, pause.since_ms)


def _suspended(state: State, pool: Pool) -> Finding:
    found = blocked(pool, state)
    if not found:
        return _CLEAR
    return Finding(TRUE, *found, state.loss.since_ms if state.loss is not None else 0)


def _draining(state: State, pool: Pool) -> Finding:
    if pool.state != DRAINING:
        return _CLEAR
    held = [vm.name for vm in state.named(pool.held)]
    waits = f"; waits for what is held: {', '.join(held[:3])}" if held else ""
    return Finding(TRUE, "BeingRemoved", f"{pool.owned} servers left{waits}")


def _held(state: State, pool: Pool) -> Finding:
    held = state.named(pool.held)
    if not held:
        return _CLEAR
    text = "; ".join(f"{vm.name} {vm.held.text}" for vm in held[:3] if vm.held)
    more = f" and {len(held) - 3} more" if len(held) > 3 else ""
    return Finding(TRUE, "ByOperator", f"{len(held)} VMs: {text}{more}")


def _breaker(state: State, pool: Pool) -> Finding:
    _ = state
    if pool.breaker == CLOSED:
        return _CLEAR
    text = f"{pool.failures} failed creations since the last ACTIVE"
    return Finding(TRUE, _BREAKER_REASONS[pool.breaker], text)


def _last_failure(state: State, pool: Pool) -> Finding:
    """It is over with the next success; what it was stays to be read."""
    _ = state
    known = pool.conditions.get("LastFailure")
    if known is None:
        return _CLEAR
    failing = pool.failures or pool.invalid
    return Finding(TRUE if failing else FALSE, known.reason, known.message)


def _noted(kind: str) -> PoolCheck:
    def check(state: State, pool: Pool) -> Finding:
        _ = state
        known = pool.conditions.get(kind)
        return Finding(TRUE, known.reason, known.message) if known else _CLEAR

    return check


def _image_ambiguous(state: State, pool: Pool) -> Finding:
    known = pool.conditions.get("ImageAmbiguous")
    image = resolve_image(pool.spec, state) if known else None
    if known is None or image is None or not image.ambiguous:
        return _CLEAR
    return Finding(TRUE, known.reason, known.message)


def _day_unknown(state: State, pool: Pool) -> Finding:
    if is_off_day(pool, state) is not None:
        return _CLEAR
    zone = pool.spec.time_zone or state.settings.time_zone
    text = f"the rules of time zone {zone} are not loaded; nothing is stopped or started"
    return Finding(TRUE, "NoZoneRules", text)


# --- of the fleet --------------------------------------------------------------------------


def _fleet_paused(state: State) -> Finding:
    pause = state.paused
    return Finding(TRUE, "ByOperator", pause.text, pause.since_ms) if pause else _CLEAR


def _loss_suspected(state: State) -> Finding:
    if state.loss is None:
        return _CLEAR
    text = f"{len(state.loss.lost)} servers left the listing at once"
    done = f"{text}; nothing is created or deleted until that is understood"
    return Finding(TRUE, "FleetLost", done, state.loss.since_ms)


def _adopting(state: State) -> Finding:
    if not state.adopting:
        return _CLEAR
    text = "waiting for the first complete listing of this run; nothing is planned before it"
    return Finding(TRUE, "NotListedYet", text, state.epoch_started_ms)


def _listing_stale(state: State) -> Finding:
    if state.adopting or listing_is_fresh(state):
        return _CLEAR
    since_ms = state.watch.listing_started_ms + state.settings.listing_age_limit_s * 1000
    return Finding(TRUE, "TooOld", stale_text(state), since_ms)


def _listing_failed(state: State) -> Finding:
    if not state.listing_error:
        return _CLEAR
    return Finding(TRUE, "CallFailed", state.listing_error, state.listing_failed_ms)


def _listing_incomplete(state: State) -> Finding:
    count = len(state.vouched)
    if not count:
        return _CLEAR
    ids = sorted(state.vms[key].server_id for key in state.vouched)
    few = ", ".join(ids[:3]) + (f" and {count - 3} more" if count > 3 else "")
    text = f"{count} servers are not listed, though lookups show them: {few}"
    return Finding(TRUE, "Contradicted", text)


def _clock_guard(state: State) -> Finding:
    if not state.guard_listings:
        return _CLEAR
    text = f"the clock was set; {state.guard_listings} complete listings to wait for"
    return Finding(TRUE, "ClockStepped", f"{text} before anything is deleted or switched")


def _creation_paused(state: State) -> Finding:
    left_s = (state.creation_pause_until_ms - state.now_ms) // 1000
    if left_s < 0:
        return Finding(FALSE, CLEAR, since_ms=state.creation_pause_until_ms)
    return Finding(TRUE, "RetryAfter", f"for {left_s} s more: {state.creation_pause_text}")


def _quota_exceeded(state: State) -> Finding:
    found: list[str] = []
    for flavor_id, quota in sorted(state.quotas.items()):
        if not quota_holds(state, flavor_id):
            continue  # over, and nobody wanted the probe
        flavor = state.flavors.get(flavor_id)
        left_s = max(quota.until_ms - state.now_ms, 0) // 1000
        then = "a probe is on its way" if quota.probe else f"next probe in {left_s} s"
        found.append(f"flavor {flavor.name if flavor else flavor_id}: {quota.message}; {then}")
    return Finding(TRUE, "QuotaReached", "; ".join(found)) if found else _CLEAR


def _unreadable_records(state: State) -> Finding:
    if not state.unreadable:
        return _CLEAR
    few = ", ".join(sorted(state.unreadable)[:3])
    more = f" and {len(state.unreadable) - 3} more" if len(state.unreadable) > 3 else ""
    text = f"{len(state.unreadable)} servers are shown without metadata: {few}{more}"
    return Finding(TRUE, "NoMetadata", text)


# --- the registry --------------------------------------------------------------------------

# type: how its status is found; in the order in which they are shown, the gravest first
POOL_CONDITIONS: Final[dict[str, PoolCheck]] = {
    PROVISIONED: _provisioned,
    "Paused": _paused,
    "Suspended": _suspended,
    "Draining": _draining,
    "VmsHeld": _held,
    "Breaker": _breaker,
    "LastFailure": _last_failure,
    "DeleteStuck": _noted("DeleteStuck"),
    "ImageAmbiguous": _image_ambiguous,
    "DayUnknown": _day_unknown,
}
FLEET_CONDITIONS: Final[dict[str, FleetCheck]] = {
    "Paused": _fleet_paused,
    "LossSuspected": _loss_suspected,
    "Adopting": _adopting,
    "ListingStale": _listing_stale,
    "ListingFailed": _listing_failed,
    "ListingIncomplete": _listing_incomplete,
    "ClockGuard": _clock_guard,
    "CreationPaused": _creation_paused,
    "QuotaExceeded": _quota_exceeded,
    "UnreadableRecords": _unreadable_records,
}

GOOD_STATUS: Final = {PROVISIONED: TRUE}  # of all others it is False


def pool_conditions(state: State, pool: Pool) -> tuple[ConditionView, ...]:
    """Every condition of a pool."""
    return tuple(
        _view(state, kind, check(state, pool), pool.since)
        for kind, check in POOL_CONDITIONS.items()
    )


def fleet_conditions(state: State) -> tuple[ConditionView, ...]:
    """Every condition of the fleet: what holds back more than one pool, or needs an operator."""
    return tuple(
        _view(state, kind, check(state), state.since) for kind, check in FLEET_CONDITIONS.items()
    )


def concerns(conditions: Iterable[ConditionView]) -> tuple[ConditionView, ...]:
    """Those that are not as they should be."""
    return tuple(c for c in conditions if c.status != GOOD_STATUS.get(c.type, FALSE))


def _view(
    state: State, kind: str, found: Finding, noted: dict[str, tuple[str, int]]
) -> ConditionView:
    status, since_ms = noted.get(kind, ("", 0))
    if found.since_ms:
        since_ms = found.since_ms
    elif status != found.status:
        since_ms = 0  # it changed after the last round, which will say when
    wall_ms = since_ms + state.skew_ms if since_ms else None
    return ConditionView(kind, found.status, found.reason, found.message, wall_ms)


def note_statuses(state: State, pools: Iterable[Pool]) -> None:
    """Since when: what has another status than at the last round has it from now on."""
    for pool in pools:
        signs = _signs(state, pool)
        if signs == pool.signs:
            continue  # so no status is another one
        pool.signs = signs
        troubled = False
        for kind, check in POOL_CONDITIONS.items():
            status = check(state, pool).status
            troubled = troubled or status != GOOD_STATUS.get(kind, FALSE)
            _note(pool.since, kind, status, state.now_ms)
        pool.troubled = troubled
    for kind, of_fleet in FLEET_CONDITIONS.items():
        _note(state.since, kind, of_fleet(state).status, state.now_ms)


def _signs(state: State, pool: Pool) -> tuple[object, ...]:
    """Everything that the statuses of a pool depend on, cheaper to tell than they are."""
    spec, noted = pool.spec, pool.conditions
    full = pool.capacity >= spec.min_vm
    planned = noted.get(PROVISIONED)
    return (
        full or (planned and planned.reason, state.adopting, listing_is_fresh(state)),
        (pool.paused or state.paused) is None,
        state.loss is None and not (pool.second_manager or pool.disputed or pool.blank),
        pool.state,
        not pool.held,
        pool.breaker,
        not (pool.failures or pool.invalid),
        tuple(noted),
        not spec.off_days or (spec.time_zone or state.settings.time_zone) in state.zones,
    )


def alarms(state: State) -> tuple[bool, ...]:
    """What a listing may begin or end: the fleet's statuses are noted when this changes."""
    return (
        state.adopting,
        bool(state.listing_error),
        state.guard_listings > 0,
        state.loss is not None,
        bool(state.unreadable),
    )


def _note(noted: dict[str, tuple[str, int]], kind: str, status: str, now_ms: int) -> None:
    known = noted.get(kind)
    if known is None or known[0] != status:
        noted[kind] = (status, now_ms)


# --- why a pool is where it is -------------------------------------------------------------


def why_at(state: State, pool: Pool) -> tuple[str, str]:
    """Why a pool is at n of m: a machine-readable reason, and a message (R6).

    Planning says so at each round; what keeps planning from running at all is said here.
    """
    planned = pool.conditions.get(PROVISIONED)
    full = pool.capacity >= pool.spec.min_vm
    if planned and planned.reason == "Satisfied" and full and not blocked(pool, state):
        return planned.reason, planned.message
    if state.adopting:
        return "Adopting", "waiting for the first complete listing of this run"
    if not listing_is_fresh(state):
        return "ListingStale", stale_text(state)
    held = suspended(pool, state)
    if held:
        return held
    if planned is None or planned.reason == "Satisfied":
        return "NotPlannedYet", f"{pool.capacity} of {pool.spec.min_vm}; planned at the next tick"
    return planned.reason, planned.message


def stale_text(state: State) -> str:
    """How old the last complete listing is, and why there is no newer one."""
    started_ms, limit_s = state.watch.listing_started_ms, state.settings.listing_age_limit_s
    if not started_ms:
        return "no complete listing was ever seen"
    age_s = (state.now_ms - started_ms) // 1000
    error = f"; last error: {state.listing_error}" if state.listing_error else ""
    return f"the last complete listing is {age_s} s old, the limit is {limit_s} s{error}"
