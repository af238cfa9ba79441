"""Failed creations: backoff, breaker, quota pauses (R6)."""

from __future__ import annotations

from poolsm.identity import jitter
from poolsm.members import Pool, QuotaPause, Vm
from poolsm.pool import BREAKER_TABLE, CLOSED, HALF_OPEN, OPEN
from poolsm.state import ALL_SHORT, State


def pause_ms(state: State, step: int, identifier: str) -> int:
    """The ``step``-th pause (1 is the first): doubled each time to a limit, a quarter jittered."""
    first, limit = state.settings.backoff_first_s, state.settings.backoff_limit_s
    base_ms = min(first << min(step - 1, 16), limit) * 1000
    return base_ms + jitter(identifier, base_ms // 4)


def end_booting(state: State, vm: Vm) -> None:
    """A creation no longer counts as one on its way; its slot is free for others."""
    vm.booting = False
    vm.boot_deadline_ms = 0
    forget_probe(state, vm)
    state.index(vm)
    state.wake_short()


def creation_succeeded(state: State, vm: Vm) -> None:
    """A creation reached its end: the pool's trouble, if any, is over."""
    created = vm.user_data is not None
    quota = state.quotas.get(vm.flavor_id)
    if created and quota is not None and quota.probe == vm.key:
        # only the probe was created behind the pause; others say nothing of what is left
        del state.quotas[vm.flavor_id]
    end_booting(state, vm)
    if not created:
        return
    pool = state.pools[vm.pool]
    pool.failures = 0
    pool.backoff_until_ms = 0
    pool.image_retry = ""
    pool.breaker = BREAKER_TABLE[pool.breaker, "succeed"]


def creation_failed(state: State, vm: Vm, why: str) -> None:
    """An ended creation without an ACTIVE server: count it, back off, maybe open the breaker."""
    end_booting(state, vm)
    count_failure(state, state.pools[vm.pool], vm.key, why)


def count_failure(state: State, pool: Pool, identifier: str, why: str) -> None:
    """One more ended failure since the last ACTIVE."""
    pool.failures += 1
    pool.backoff_until_ms = state.now_ms + pause_ms(state, pool.failures, identifier)
    state.wake_at(pool.key, pool.backoff_until_ms)
    state.note(pool, "LastFailure", "CreationFailed", why)
    trips = pool.failures >= state.settings.breaker_failures
    if pool.breaker == HALF_OPEN or (pool.breaker == CLOSED and trips):
        pool.breaker = BREAKER_TABLE[pool.breaker, "trip"]
        pause = state.settings.breaker_pause_s * 1000
        pool.breaker_until_ms = state.now_ms + pause + jitter(identifier, pause // 4)
        state.wake_at(pool.key, pool.breaker_until_ms)


def breaker_allows(pool: Pool, now_ms: int) -> int | None:
    """How many creations the breaker lets pass: None for any number, 1 for a probe, 0."""
    if pool.breaker == CLOSED:
        return None
    if pool.breaker == OPEN and now_ms < pool.breaker_until_ms:
        return 0
    return 0 if pool.booting else 1


def pause_for_quota(state: State, flavor_id: str, identifier: str, message: str) -> None:
    """Creation with this flavor met a quota: the project's business, no failure of the VM."""
    old = state.quotas.get(flavor_id)
    if old is not None and old.probe != identifier and state.now_ms < old.until_ms:
        return  # the answer to a call from before the pause
    step = old.step + 1 if old else 1
    until_ms = state.now_ms + pause_ms(state, step, identifier)
    state.quotas[flavor_id] = QuotaPause(until_ms, step, message)
    state.wake_at(ALL_SHORT, until_ms)


def quota_holds(state: State, flavor_id: str) -> bool:
    """Whether a quota pause, or the probe that ends it, holds up creations with this flavor."""
    quota = state.quotas.get(flavor_id)
    return quota is not None and (state.now_ms < quota.until_ms or bool(quota.probe))


def forget_probe(state: State, vm: Vm) -> None:
    """A probe that ended for another reason makes room for the next one."""
    quota = state.quotas.get(vm.flavor_id)
    if quota is not None and quota.probe == vm.key:
        quota.probe = ""
        state.wake_short()


def reset_pool(pool: Pool) -> None:
    """An operator's reset, or a changed spec: begin anew."""
    pool.failures = 0
    pool.backoff_until_ms = 0
    pool.invalid = pool.invalid_target = pool.image_retry = ""
    pool.breaker = BREAKER_TABLE[pool.breaker, "reset"]
