"""R8: never more than MaxVM."""

from __future__ import annotations

from poolsm.commands import Command
from poolsm.members import Pool
from poolsm.pool import POOL_ACTIVE
from poolsm.rules.deletion import delete_draft
from poolsm.state import State
from poolsm.vm import ACTIVE
from poolsm.words import is_free, may_destroy


def scale_down(pool: Pool, state: State) -> list[Command]:
    """Delete the surplus over MaxVM: unattributed and ACTIVE only, newest first (R8).

    ``surplus = capacity - MaxVM``. The oldest VM of a pool is the teacher's, so age protects.
    A warm pool is never scaled down.
    """
    ceiling = pool.spec.max_vm
    surplus = pool.capacity - ceiling
    if ceiling == 0 or surplus <= 0 or pool.spec.warm or pool.state != POOL_ACTIVE:
        return []
    if not may_destroy(pool, state):
        return []
    idle = state.pool_vms(pool, ACTIVE, only=is_free)
    text = f"surplus = {pool.capacity} - {ceiling} = {surplus}; newest of {len(idle)} idle"
    # one that could not be deleted is tried again, before an older one goes for it
    due = [vm for vm in reversed(idle[-surplus:]) if state.now_ms >= vm.delete_after_ms]
    return [delete_draft(vm, "R8 scale_down", text) for vm in due]
