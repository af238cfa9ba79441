"""R9: machines sleep on closing days."""

from __future__ import annotations

from poolsm.commands import Command, Reason, StartServer, StopServer
from poolsm.members import BY_USER, Pool, Vm
from poolsm.state import State
from poolsm.vm import ACTIVE, SHUTOFF
from poolsm.words import is_off_day, is_untouched, pause_of


def power(pool: Pool, state: State) -> list[Command]:
    """On an off-day stop what is ACTIVE, on any other day start what is SHUTOFF (R9).

    A level, not an edge: a midnight that nobody saw is caught up. Attributed VMs sleep, too;
    they are kept, not deleted. A VM that its user stopped stays so if the pool respects that.
    """
    if SHUTOFF not in pool.members and not pool.spec.off_days:
        return []
    off = is_off_day(pool, state)
    held_back = state.loss is not None or state.guard_listings or pause_of(pool, state)
    if off is None or held_back:
        return []
    day = "an off-day" if off else "no off-day"
    drafts: list[Command] = []
    for vm in state.pool_vms(pool, ACTIVE if off else SHUTOFF):
        if vm.key in pool.disputed or not _may_switch(vm, state):
            continue
        if off:
            text = f"today is {day} of {','.join(pool.spec.off_days)}, the VM is ACTIVE"
            drafts.append(StopServer(server_id=vm.server_id, reason=Reason("R9 power", text)))
        elif not (pool.spec.respect_user_stop and vm.power_cause == BY_USER):
            text = f"today is {day}, the VM is SHUTOFF (by {vm.power_cause})"
            drafts.append(StartServer(server_id=vm.server_id, reason=Reason("R9 power", text)))
    return drafts


def _may_switch(vm: Vm, state: State) -> bool:
    """Nothing under way, neither by us nor in Nova, and no switch in flight (60 s)."""
    busy = vm.record is None or vm.record.task_state is not None or vm.absences > 0
    return is_untouched(vm) and not busy and state.now_ms >= vm.power_after_ms
