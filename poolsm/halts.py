"""An operator's pauses and holds: what is under way is taken back, what was mended is pardoned.

What was decided and not sent ends here, so that nothing leaves once the operator's word is
durable. What was sent cannot be called back, and its answer is heard.
"""

from __future__ import annotations

from poolsm.commands import ATTRIBUTED
from poolsm.conditions import note_statuses
from poolsm.events import FleetPaused, FleetResumed, PoolPaused, PoolResumed, VmHeld, VmUnheld
from poolsm.members import Op, Pool, Stop, Vm, Word
from poolsm.outcomes import end_unsent, undo_claim
from poolsm.requests import BEING_REMOVED, RELEASED, find_vm
from poolsm.state import State
from poolsm.vm import ACTIVE, SHUTOFF
from poolsm.words import pause_of

READS = ("FindServer", "FetchImage")  # commands that change nothing: a pause lets them pass


def pause(state: State, event: PoolPaused | PoolResumed | FleetPaused | FleetResumed) -> None:
    """An operator stops the rules, or has them go on.

    Pools that are paused by themselves stay so when the fleet is resumed.
    """
    deed = "paused" if isinstance(event, PoolPaused | FleetPaused) else "resumed"
    word = Word(deed, event.origin, state.now_ms)
    if isinstance(event, FleetPaused | FleetResumed):
        state.last_word = word
        state.paused = _stopped(event, state.paused, state.now_ms)
        pools = [state.pools[key] for key in sorted(state.pools)]
    else:
        pool = state.pools.get(event.pool)
        if pool is None:
            state.anomaly("unknown_pool", str(event.pool), "paused or resumed; no such pool")
            return
        pool.last_word = word
        pool.paused = _stopped(event, pool.paused, state.now_ms)
        pools = [pool]
    for op in _unsent(state):
        stop = next((stop for p in _pools_of(state, op) if (stop := pause_of(p, state))), None)
        if stop is not None:
            _withdraw(state, op, f"paused {stop.text}")
    for pool in pools:
        if pause_of(pool, state) is None:
            for vm in state.named(pool.deleting_or_condemned):
                _pardon(state, vm)
    for key in state.pools:  # others may hold what was drawn from a paused warm pool
        state.wake(key)
    note_statuses(state, pools)


def _stopped(
    event: PoolPaused | PoolResumed | FleetPaused | FleetResumed, old: Stop | None, now_ms: int
) -> Stop | None:
    """The first word stands: who stopped it knows why."""
    if isinstance(event, PoolResumed | FleetResumed):
        return None
    return old or Stop(event.why, event.origin, now_ms)


def hold_vm(state: State, event: VmHeld) -> None:
    """A VM is kept as it is, whatever the rules say, until it is let go."""
    vm = find_vm(state, event.target)
    if vm is None:
        state.anomaly("unknown_vm", event.target, "asked to be held; no such VM")
        return
    stop = vm.held or Stop(event.why, event.origin, state.now_ms)
    op = state.ops.get(vm.op)
    if op is not None and op.dispatched_ms is None and op.kind not in READS:
        _withdraw(state, op, f"held {stop.text}")
    if vm.key not in state.vms:  # its creation was never sent
        state.anomaly("unknown_vm", event.target, "asked to be held; it was never created")
        return
    vm.held = stop
    state.index(vm)
    pool = state.pools[vm.pool]
    pool.last_word = Word(f"{vm.name} held", event.origin, state.now_ms)
    note_statuses(state, [pool])


def unhold_vm(state: State, event: VmUnheld) -> None:
    """The rules apply to it again."""
    vm = find_vm(state, event.target)
    if vm is None or vm.held is None:
        state.anomaly("not_held", event.target, f"{event.origin} let go of what is not held")
        return
    vm.held = None
    pool = state.pools[vm.pool]
    pool.last_word = Word(f"{vm.name} let go", event.origin, state.now_ms)
    if pause_of(pool, state) is None:
        _pardon(state, vm)
    state.index(vm)
    note_statuses(state, [pool])


def _pardon(state: State, vm: Vm) -> None:
    """What was mended while nothing touched it is no failure any more (R6).

    What was given back, or belongs to a pool being removed, still goes; so does what somebody
    holds: its own time comes.
    """
    asked_for = vm.condemned == BEING_REMOVED or vm.condemned.startswith(RELEASED)
    if vm.condemned and not asked_for and vm.state in (ACTIVE, SHUTOFF) and not vm.held:
        vm.condemned = ""
        state.index(vm)


def _unsent(state: State) -> list[Op]:
    found = [op for op in state.ops.values() if op.dispatched_ms is None and op.kind not in READS]
    return sorted(found, key=lambda op: op.command_id)


def _pools_of(state: State, op: Op) -> list[Pool]:
    """The pools that a command touches: of a draw from a warm pool both."""
    vm = state.vms.get(op.vm)
    keys = [op.pool] if vm is None else [vm.pool, vm.drawn_from]
    return [state.pools[key] for key in keys if key in state.pools]


def _withdraw(state: State, op: Op, why: str) -> None:
    """A decision that was not sent ends; whoever sends asks whether it stands."""
    vm = end_unsent(state, op, why)
    first = op.kind == "ClaimServer" and op.fresh
    if vm is not None and first and vm.wanted.get(ATTRIBUTED) == "true":
        undo_claim(state, vm, f"not sent: {why}")  # nobody was told: it is free again
        vm.tag_after_ms = 0  # at once
