"""Folding what people and services ask for (R12, R14, R16).

What can be refused is refused before it becomes an event (the runners' ``operations``); what
arrives here and still does not fit is an anomaly and changes nothing (C5).
"""

from __future__ import annotations

from heapq import heappop

from poolsm.assignment import OPEN_STATES, WAITING
from poolsm.events import (
    AssignmentRequested,
    ConfigDeclared,
    ConfigRemoved,
    LossConfirmed,
    PoolAcknowledged,
    PoolDeclared,
    PoolRemovalRequested,
    PoolReset,
    ReleaseRequested,
)
from poolsm.failure import reset_pool
from poolsm.members import Assignment, Config, Pool, Vm, Word
from poolsm.observe import adopt, vm_gone
from poolsm.outcomes import end_loss
from poolsm.pool import DRAINING, POOL_TABLE
from poolsm.spec import PoolKey, check_spec
from poolsm.state import State

BEING_REMOVED = "its pool is being removed"
RELEASED = "released by"
ANSWERS_KEPT_MS = 30 * 86_400_000  # an ended request's answer, for whoever asks again
FORGET_EVERY_MS = 3_600_000


def declare_pool(state: State, event: PoolDeclared) -> None:
    """A pool is new or changed; servers that already carry its tags are adopted."""
    problems = check_spec(event.spec)
    key = event.spec.key
    if problems:
        state.anomaly("invalid_spec", str(key), "; ".join(map(str, problems)))
        return
    pool = state.pools.get(key)
    if pool is None:
        state.pools[key] = Pool(key, event.spec, event.origin)
        state.removed.pop(key, None)
        _adopt_strays(state, key)
    else:
        if pool.spec != event.spec:
            reset_pool(pool)
        pool.spec, pool.origin = event.spec, event.origin
        pool.state = POOL_TABLE[pool.state, "declare"]
        pool.include_assigned = False
        pool.day_wake_ms = 0
        for vm in state.all_vms(pool):
            if vm.condemned == BEING_REMOVED and not vm.leaving:
                vm.condemned = ""
                state.index(vm)
    state.note_warm()
    state.wake(key)
    state.wake_short()  # a warm pool may have what others wait for


def _adopt_strays(state: State, key: PoolKey) -> None:
    for server_id, record in sorted(state.strays.items()):
        metadata = record.metadata or {}
        tombstone = state.tombstones.get(server_id)
        if tombstone is not None and tombstone.final:
            continue  # shown again after it was proven gone: not revived (I5)
        if (metadata.get("serverpool_id"), metadata.get("user_id")) == tuple(key):
            del state.strays[server_id]
            adopt(state, record, key, state.watch.listing_started_ms, declared_now=True)


def remove_pool(state: State, event: PoolRemovalRequested) -> None:
    """Drain: everything goes, but what is assigned only if it was said so (R12)."""
    pool = state.pools.get(event.pool)
    if pool is None:
        state.anomaly("unknown_pool", str(event.pool), "asked to be removed; no such pool")
        return
    pool.state = POOL_TABLE[pool.state, "remove"]
    pool.include_assigned = event.include_assigned
    for vm in state.all_vms(pool):  # an earlier removal may have meant more than this one
        if vm.condemned == BEING_REMOVED and not pool.condemns(vm):
            vm.condemned = ""
            state.index(vm)
    for assignment in _open(state, event.pool):
        if assignment.state == WAITING:
            assignment.move("refuse", "its pool is being removed", state.now_ms)
            state.close_request(assignment)
    state.wake(event.pool)


def forget_drained(state: State, pool: Pool) -> None:
    """A drained pool disappears with its last VM."""
    if pool.state == DRAINING and pool.owned == 0:
        pool.state = POOL_TABLE[pool.state, "emptied"]
        del state.pools[pool.key]
        state.short.discard(pool.key)
        state.dirty.discard(pool.key)
        state.removed[pool.key] = pool.spec
        state.targets.pop(pool.key, None)
        state.note_warm()


def reset(state: State, event: PoolReset) -> None:
    """Try again now (R6)."""
    pool = state.pools.get(event.pool)
    if pool is None:
        state.anomaly("unknown_pool", str(event.pool), "asked to be reset; no such pool")
        return
    reset_pool(pool)
    pool.last_word = Word("reset", event.origin, state.now_ms)
    state.wake(pool.key)


def acknowledge(state: State, event: PoolAcknowledged) -> None:
    """An operator has seen to a second manager, or lets disputed servers go (R11)."""
    pool = state.pools.get(event.pool)
    if pool is None:
        state.anomaly("unknown_pool", str(event.pool), "acknowledged; no such pool")
        return
    pool.second_manager = ""
    pool.last_word = Word("acknowledged", event.origin, state.now_ms)
    for key in sorted(pool.disputed):
        vm_gone(state, state.vms[key], final=False, why="re-tagged by others, acknowledged")
    state.wake(pool.key)


def confirm_loss(state: State, event: LossConfirmed) -> None:
    """An operator says that the lost servers are gone (R10)."""
    if state.loss is None:
        state.anomaly("no_loss", "fleet", f"{event.origin} confirmed a loss that is not suspected")
        return
    state.last_word = Word("loss confirmed", event.origin, state.now_ms)
    end_loss(state, f"confirmed by {event.origin}")


def declare_config(state: State, event: ConfigDeclared) -> None:
    """A named config is new or changed; VMs built later use it."""
    state.config_order += 1
    key = f"{event.user_id}/{event.name}"
    state.configs[key] = Config(
        event.user_id, event.name, event.data, state.config_order, event.origin
    )
    _wake_users(state, event.name)


def remove_config(state: State, event: ConfigRemoved) -> None:
    """A named config is gone."""
    if state.configs.pop(f"{event.user_id}/{event.name}", None) is None:
        state.anomaly("unknown_config", event.name, f"user {event.user_id} has no such config")
    _wake_users(state, event.name)


def _wake_users(state: State, name: str) -> None:
    state.targets.clear()
    for pool in state.pools.values():
        if pool.spec.config_id == name:
            state.wake(pool.key)


def request_assignment(state: State, event: AssignmentRequested) -> None:
    """Somebody asks for a VM; the same id asked again is the same request."""
    _forget_old_answers(state)
    if event.request_id in state.assignments:
        return
    assignment = Assignment(
        event.request_id,
        event.pool,
        event.claimant,
        event.deadline_ms - state.skew_ms,
        state.now_ms,
    )
    state.assignments[event.request_id] = assignment
    pool = state.pools.get(event.pool)
    if pool is None:
        assignment.move("refuse", f"there is no pool {event.pool}", state.now_ms)
    elif pool.state == DRAINING:
        assignment.move("refuse", f"pool {event.pool} is being removed", state.now_ms)
    else:
        state.open_request(assignment)
        state.wake(event.pool)


def _forget_old_answers(state: State) -> None:
    """Looked for once an hour: whoever asks must not wait for all that was ever answered."""
    if state.now_ms < state.forget_answers_ms:
        return
    state.forget_answers_ms = state.now_ms + FORGET_EVERY_MS
    horizon = state.now_ms - ANSWERS_KEPT_MS
    for old in list(state.assignments.values()):
        ended = old.state not in OPEN_STATES and old.ended_ms < horizon
        if ended and old.vm not in state.vms:
            del state.assignments[old.request_id]


def expire_assignments(state: State) -> bool:
    """End the requests whose deadline has passed; whether there was one."""
    late: set[str] = set()
    while state.overdue():
        late.add(heappop(state.deadlines)[1])
    for assignment in map(state.assignments.__getitem__, sorted(late)):
        pool = state.pools.get(assignment.pool)
        why = pool.conditions.get("Provisioned") if pool else None
        text = f"no VM became ready in time; {why.message}" if why else "no VM became ready in time"
        assignment.move("expire", text, state.now_ms)
        state.close_request(assignment)
        state.wake(assignment.pool)
    return bool(late)


def _open(state: State, key: PoolKey) -> list[Assignment]:
    return [state.assignments[request_id] for request_id in state.asked_of.get(key, ())]


def waiting_requests(state: State, key: PoolKey) -> list[Assignment]:
    """Requests of a pool that have no VM yet, in the order in which they came."""
    if key not in state.asked_of:
        return []
    waiting = [a for a in _open(state, key) if a.state == WAITING]
    return sorted(waiting, key=lambda a: (a.requested_ms, a.request_id))


def find_vm(state: State, target: str) -> Vm | None:
    """The VM of a request id, a server id, a VM key, or a name that only one VM has."""
    assignment = state.assignments.get(target)
    if assignment is not None:
        return state.vms.get(assignment.vm)
    if target in state.by_server:
        return state.vms[state.by_server[target]]
    if target in state.vms:
        return state.vms[target]
    named = [vm for vm in state.vms.values() if vm.name == target]
    return named[0] if len(named) == 1 else None


def release(state: State, event: ReleaseRequested) -> None:
    """A VM is given back: deleted, or free again where its pool reuses VMs (R16)."""
    assignment = state.assignments.get(event.target)
    if assignment is not None and assignment.state == WAITING:
        assignment.move("refuse", f"withdrawn by {event.origin}", state.now_ms)
        state.close_request(assignment)
        return
    vm = find_vm(state, event.target)
    if vm is None or vm.attribution is None:
        state.anomaly("nothing_to_release", event.target, "no attributed VM is known by that")
        return
    held = state.assignments.get(vm.attribution.request_id)
    if held is not None and held.vm == vm.key and held.state in ("claiming", "granted"):
        held.move("release", f"released by {event.origin}", state.now_ms)
        state.close_request(held)
    pool = state.pools[vm.pool]
    if pool.spec.reuse and pool.state != DRAINING:
        vm.tag_after_ms = 0
        vm.wanted = {}
        pool.freed.add(vm.key)
    else:
        vm.condemned = f"{RELEASED} {event.origin}"
    state.index(vm)
