"""R4: free warm VMs whose image is stale are replaced, one at a time."""

from __future__ import annotations

from poolsm.commands import Command
from poolsm.failure import quota_holds
from poolsm.members import Pool, Target
from poolsm.pool import POOL_ACTIVE
from poolsm.rules.deletion import delete_draft
from poolsm.state import State
from poolsm.target import resolve_target
from poolsm.vm import ACTIVE, DELETING
from poolsm.words import is_ready, may_destroy


def refresh_warm(pool: Pool, state: State) -> list[Command]:
    """Delete the oldest free VM of another image than the pool resolves to now (R4).

    Only while the pool is whole: every VM of its minimum is ready, none is booting or going.
    Provisioning then builds its successor, and the next one's turn comes when that is ready.
    """
    if not pool.spec.warm or pool.state != POOL_ACTIVE or not may_destroy(pool, state):
        return []
    whole = pool.capacity >= pool.spec.min_vm and not pool.booting and not pool.leaving
    if not whole or pool.count(DELETING) or pool.failures:
        return []
    target = resolve_target(pool, state)
    if not isinstance(target, Target) or quota_holds(state, target.flavor_id):
        return []
    for vm in state.pool_vms(pool, ACTIVE):
        if is_ready(vm, pool) and vm.image_id and vm.image_id != target.image_id:
            text = f"image {vm.image_id} is stale, the pool resolves to {target.image_id}"
            return [delete_draft(vm, "R4 refresh", text)]
    return []
