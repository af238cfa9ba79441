"""Pauses and holds: what an operator may ask for, checked; and what is answered.

Answers are written from the state before the request, which what it records may change.
"""

from __future__ import annotations

from poolsm.events import (
    Event,
    FleetPaused,
    FleetResumed,
    PoolPaused,
    PoolResumed,
    VmHeld,
    VmUnheld,
)
from poolsm.halts import READS
from poolsm.members import Pool, Stop, Vm
from poolsm.pool import DRAINING
from poolsm.requests import find_vm
from poolsm.state import State
from poolsm.story import format_time
from poolsm.vm import DELETING
from poolsm.words import pause_of
from poolsm_runners.operations import Desk, RefusedError, pool_named

REASON_LIMIT = 500  # characters: it is shown in one line


def pause(desk: Desk, name: str, why: str) -> list[Event]:
    """Nothing is done to a pool by itself any more, without a name to any; none if it is so."""
    said = _one_line(why)
    if not name:
        event = FleetPaused(at_ms=desk.now_ms, why=said, origin=desk.origin)
        return [] if desk.state.paused else [event]
    pool = pool_named(desk.state, name)
    if pool.paused:
        return []
    return [PoolPaused(at_ms=desk.now_ms, pool=pool.key, why=said, origin=desk.origin)]


def resume(desk: Desk, name: str) -> list[Event]:
    """The rules apply again."""
    if not name:
        if desk.state.paused is None:
            paused = [str(key) for key, pool in sorted(desk.state.pools.items()) if pool.paused]
            hint = f"; paused by themselves are: {', '.join(paused)}" if paused else ""
            raise RefusedError(f"resume: the fleet is not paused{hint}")
        return [FleetResumed(at_ms=desk.now_ms, origin=desk.origin)]
    pool = pool_named(desk.state, name)
    if pool.paused is None:
        hint = "; the whole fleet is: `poolsm resume`" if desk.state.paused else ""
        raise RefusedError(f"pool {pool.key}: is not paused{hint}")
    return [PoolResumed(at_ms=desk.now_ms, pool=pool.key, origin=desk.origin)]


def hold(desk: Desk, target: str, why: str) -> list[Event]:
    """A VM is kept as it is; refused once its deletion was sent, which nothing calls back."""
    said, vm = _one_line(why), _vm_named(desk.state, target)
    if vm.held:
        return []
    op = desk.state.ops.get(vm.op)
    sent = op is not None and op.kind == "DeleteServer" and op.dispatched_ms is not None
    if sent or vm.state == DELETING:
        raise RefusedError(f"VM {vm.name}: its deletion was sent already, and cannot be held")
    if not vm.server_id:
        raise RefusedError(f"VM {vm.name}: is not in the cloud yet; hold it once it is")
    return [VmHeld(at_ms=desk.now_ms, target=vm.key, why=said, origin=desk.origin)]


def unhold(desk: Desk, target: str) -> list[Event]:
    """The rules apply to a held VM again."""
    vm = _vm_named(desk.state, target)
    if vm.held is None:
        raise RefusedError(f"VM {vm.name}: is not held")
    return [VmUnheld(at_ms=desk.now_ms, target=vm.key, origin=desk.origin)]


def _vm_named(state: State, target: str) -> Vm:
    vm = find_vm(state, target)
    if vm is not None:
        return vm
    alike = sorted(vm.server_id or vm.key for vm in state.vms.values() if vm.name == target)
    if alike:
        raise RefusedError(f"VM {target!r} is ambiguous; say one of {', '.join(alike)}")
    raise RefusedError(f"there is no VM {target!r}; `poolsm status --vms` lists them")


def _one_line(why: str) -> str:
    text = " ".join(why.split())
    if len(text) > REASON_LIMIT:
        raise RefusedError(f"--reason: {len(text)} characters; at most {REASON_LIMIT}")
    return text


# --- answers -------------------------------------------------------------------------------


def paused_text(state: State, name: str) -> str:
    """What a pause does, or whose stands already; and what it cannot call back."""
    pool = pool_named(state, name) if name else None
    whose = f"pool {pool.key}" if pool else "the whole fleet"
    stop = pool.paused if pool else state.paused
    if stop is not None:
        return f"{whose}: is paused already, {_since(state, stop)}"
    until = f"poolsm resume {pool.key}" if pool else "poolsm resume"
    ops = [op for op in state.ops.values() if pool is None or op.pool == pool.key]
    sent = sum(op.dispatched_ms is not None and op.kind not in READS for op in ops)
    flying = f"; {sent} calls were sent before and are still answered" if sent else ""
    return f"{whose}: paused; nothing is done by itself until `{until}`{flying}"


def resumed_text(state: State, name: str) -> str:
    """What a resume does, and which pause still stands."""
    if name:
        pool = pool_named(state, name)
        if state.paused is None:
            return f"pool {pool.key}: resumed"
        still = _since(state, state.paused)
        return f"pool {pool.key}: resumed, but the whole fleet is still paused, {still}"
    alone = [str(key) for key, pool in sorted(state.pools.items()) if pool.paused]
    still = f"; still paused by themselves: {', '.join(alone)}" if alone else ""
    return f"the whole fleet: resumed{still}"


def held_text(state: State, target: str) -> str:
    """What a hold does, and what may still happen to the VM."""
    vm = find_vm(state, target)
    if vm is None:
        return f"VM {target}: held"
    if vm.held is not None:
        return f"VM {vm.name}: is held already, {_since(state, vm.held)}"
    text = f"VM {vm.name}: held; it is left as it is until `poolsm unhold {target}`"
    op = state.ops.get(vm.op)
    if op is not None and op.dispatched_ms is not None and op.kind not in READS:
        return f"{text}; its {op.kind} was sent before and is still answered"
    if vm.leaving and op is None:
        return f"{text}; a deletion sent before had no effect so far, and still may have"
    return text


def removed_text(state: State, name: str) -> str:
    """What a removal does, and what it has to wait for."""
    pool = pool_named(state, name)
    held = [vm.name for vm in state.named(pool.held)]
    waits = f"; waits for `poolsm unhold` of {', '.join(held)}" if held else ""
    return f"pool {pool.key}: is drained, then removed{_after_pause(state, pool)}{waits}"


def released_text(state: State, target: str) -> str:
    """What a release does, and what it has to wait for."""
    vm = find_vm(state, target)
    if vm is None or vm.attribution is None:
        return f"{target}: released"
    pool = state.pools[vm.pool]
    wait = _after_pause(state, pool)
    if vm.held is not None:
        wait = f", once `poolsm unhold {vm.name}` ends the hold {vm.held.text}"
    fate = "made free" if pool.spec.reuse and pool.state != DRAINING else "deleted"
    return f"{target}: released{f'; it is {fate}{wait}' if wait else ''}"


def _after_pause(state: State, pool: Pool) -> str:
    stop = pause_of(pool, state)
    if stop is None:
        return ""
    name = f" {pool.key}" if pool.paused else ""
    return f", once `poolsm resume{name}` ends the pause {stop.text}"


def _since(state: State, stop: Stop) -> str:
    return f"{stop.text} (since {format_time(stop.since_ms + state.skew_ms)})"
