"""The words of the rules, each defined once: ready, the pool's day, held back."""

from __future__ import annotations

from poolsm.calendar import next_change_ms, weekday
from poolsm.members import NO_WORK, Pool, Stop, Vm
from poolsm.state import State
from poolsm.vm import ACTIVE, SHUTOFF


def is_ready(vm: Vm, pool: Pool) -> bool:
    """ACTIVE, no task state, an address if it has networks, nothing in flight, unattributed."""
    return vm.state == ACTIVE and is_free(vm) and has_address(vm, pool)


def is_parked(vm: Vm) -> bool:
    """SHUTOFF and otherwise ready: what an assignment takes on an off-day (R16)."""
    return vm.state == SHUTOFF and is_free(vm)


def is_free(vm: Vm) -> bool:
    """Nothing in flight or decided about it, and nobody's."""
    if vm.attribution is not None or vm.record is None or vm.record.task_state is not None:
        return False
    work = vm.work
    return work is NO_WORK or (work.absences == 0 and is_untouched(vm))


def is_untouched(vm: Vm) -> bool:
    """No command of ours is on its way to it or decided, and nobody said to leave it so."""
    work = vm.work
    return not (work.op or work.leaving or work.condemned or work.wanted or work.held)


def has_address(vm: Vm, pool: Pool) -> bool:
    """A pool with networks has no use for a VM without an address."""
    return not pool.spec.networks or bool(vm.record and vm.record.addresses)


def listing_is_fresh(state: State) -> bool:
    """Whether the last complete listing is young enough to act on (R10)."""
    age_ms = state.now_ms - state.watch.listing_started_ms
    return age_ms <= state.settings.listing_age_limit_s * 1000


def pause_of(pool: Pool, state: State) -> Stop | None:
    """The operator's word that nothing is to be done to a pool; its own goes first."""
    return pool.paused or state.paused


def suspended(pool: Pool, state: State) -> tuple[str, str] | None:
    """Why a pool creates and deletes nothing: an operator's word, or what is in the way."""
    pause = pause_of(pool, state)
    return ("Paused", f"paused {pause.text}") if pause else blocked(pool, state)


def blocked(pool: Pool, state: State) -> tuple[str, str] | None:
    """What is in the way of creating and deleting: reason and message (R1, R10, R11)."""
    if state.loss is not None:
        return "FleetLost", f"{len(state.loss.lost)} servers left the listing at once"
    if pool.second_manager:
        return "SecondManager", pool.second_manager
    if pool.disputed:
        key, found = min(pool.disputed.items())
        return "Disputed", f"{len(pool.disputed)} servers were re-tagged; {key}: {found}"
    if pool.blank:
        return "NoMetadata", f"{len(pool.blank)} servers are shown without metadata"
    return None


def may_destroy(pool: Pool, state: State) -> bool:
    """Destructive commands also wait for two fresh listings after a clock step (C12)."""
    return suspended(pool, state) is None and state.guard_listings == 0


def is_off_day(pool: Pool, state: State) -> bool | None:
    """Whether today is one of the pool's off-days, in its own zone; None: zone unknown (R9)."""
    if not pool.spec.off_days:
        return False
    rules = state.zones.get(pool.spec.time_zone or state.settings.time_zone)
    if rules is None:
        return None
    return weekday(rules, state.now_ms + state.skew_ms) in pool.spec.off_days


def watch_the_day(pool: Pool, state: State) -> None:
    """Have the pool looked at when its day may change."""
    rules = state.zones.get(pool.spec.time_zone or state.settings.time_zone)
    if pool.spec.off_days and rules is not None and pool.day_wake_ms <= state.now_ms:
        change_ms = next_change_ms(rules, state.now_ms + state.skew_ms)
        pool.day_wake_ms = change_ms - state.skew_ms
        state.wake_at(pool.key, pool.day_wake_ms)
