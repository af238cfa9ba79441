"""What must hold after every event, counted from scratch (I1 to I5; C7's counters)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolsm import Step
from poolsm.assignment import OPEN_STATES, WAITING
from poolsm.commands import ClaimServer, CreateServer, DeleteServer, FindServer
from poolsm.plan import BEING_REMOVED
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.views import pools_of
from poolsm.vm import BUILD, DELETED, DELETING, NOT_CAPACITY, PENDING
from poolsm.words import pause_of

if TYPE_CHECKING:
    from tests.unit.world import World


def check_step(world: World, step: Step) -> None:
    """All invariants that one event can break."""
    state = world.fleet.state
    check_counters(state)
    check_ceilings(state, step)
    check_deletions(state, step)
    check_claims(state, step)
    check_moves(step)
    check_operators_word(state, step)
    check_servers(world)


def check_operators_word(state: State, step: Step) -> None:
    """Nothing is decided about what is paused or held, but to look at it."""
    held = {vm.server_id for vm in state.vms.values() if vm.held is not None}
    for command in step.commands:
        if isinstance(command, FindServer):
            continue
        for key in pools_of(state, command):
            pool = state.pools.get(key)
            assert pool is None or pause_of(pool, state) is None, f"paused: {command}"
        assert getattr(command, "server_id", "") not in held, f"held: {command}"


def check_counters(state: State) -> None:
    """Counters and indices equal a recount from scratch."""
    for key, pool in state.pools.items():
        mine = [vm for vm in state.vms.values() if vm.pool == key]
        assert pool.owned == len(mine)
        lost = [vm for vm in mine if vm.state in NOT_CAPACITY or vm.leaving]
        assert pool.capacity == len(mine) - len(lost)
        assert pool.unfit == sum(vm.state in NOT_CAPACITY for vm in mine)
        assert pool.pending_jobs == sum(vm.booting for vm in mine)
        assert set(pool.members) == {vm.state for vm in mine}
        for state_name, keys in pool.members.items():
            assert set(keys) == {vm.key for vm in mine if vm.state == state_name}, state_name
        assert pool.leaving == {
            vm.key for vm in mine if vm.leaving and vm.state not in NOT_CAPACITY
        }
        assert pool.flying == {vm.key for vm in mine if vm.op}
        assert pool.booting == {vm.key for vm in mine if vm.booting}
        doomed = {vm.key for vm in mine if vm.condemned or vm.state == DELETING}
        assert pool.deleting_or_condemned == doomed
        assert pool.held == {vm.key for vm in mine if vm.held}
        assert pool.tagging == {vm.key for vm in mine if vm.wanted or vm.wanted_name}
        own = {vm.key for vm in mine}
        assert pool.blank <= own
        assert pool.freed <= own
        assert set(pool.disputed) <= own
    assert {vm.pool for vm in state.vms.values()} <= set(state.pools)
    assert state.creations == {vm.key for vm in state.vms.values() if _is_creation(vm)}
    known = [vm for vm in state.vms.values() if vm.server_id]
    assert state.by_server == {vm.server_id: vm.key for vm in known}
    assert len(state.by_server) == len(known)
    unseen = {vm.name: vm.key for vm in state.vms.values() if not vm.server_id}
    assert state.by_name == unseen
    opened: dict[PoolKey, set[str]] = {}
    for assignment in state.assignments.values():
        if assignment.state in OPEN_STATES:
            opened.setdefault(assignment.pool, set()).add(assignment.request_id)
    assert state.asked_of == opened
    assert state.waiting == set().union(*opened.values())
    waiting = {a.request_id for a in state.assignments.values() if a.state == WAITING}
    assert waiting <= {request_id for _, request_id in state.deadlines}
    assert state.short | state.dirty <= set(state.pools)
    assert all(vm.op in state.ops for vm in state.vms.values() if vm.op)


def _is_creation(vm: object) -> bool:
    return vm.booting and vm.drawn_from is None and vm.state in (PENDING, BUILD)


def check_ceilings(state: State, step: Step) -> None:
    """I1: creates and transfers end at MaxVM, creations in flight at the project's limit."""
    created = [c for c in step.commands if isinstance(c, CreateServer)]
    drawn = [
        state.vms[state.by_server[c.server_id]].pool
        for c in step.commands
        if isinstance(c, ClaimServer) and "serverpool_id" in c.metadata
    ]
    for key in {c.pool for c in created} | set(drawn):
        pool = state.pools[key]
        assert pool.spec.max_vm == 0 or pool.owned <= pool.spec.max_vm, f"I1: {key}"
    if created:
        assert len(state.creations) <= state.settings.creations_limit, "I1: the project's limit"
        assert not state.adopting
        age_ms = state.now_ms - state.watch.listing_started_ms
        assert age_ms <= state.settings.listing_age_limit_s * 1000, "R10: on an old listing"


def check_deletions(state: State, step: Step) -> None:
    """I3: nobody's VM is deleted but by release or by a drain that includes it."""
    for command in step.commands:
        if isinstance(command, DeleteServer):
            vm = state.vms[state.by_server[command.server_id]]
            assert command.expect.attributed is (vm.attribution is not None)
            if vm.attribution is not None:
                drained = vm.condemned == BEING_REMOVED and state.pools[vm.pool].include_assigned
                assert drained or vm.condemned.startswith("released by"), f"I3: {vm.condemned}"
            assert vm.metadata.get("serverpool_id"), "I3: not tagged as ours"
            assert state.guard_listings == 0
            assert state.loss is None


def check_claims(state: State, step: Step) -> None:
    """I4: one VM has one claimant, one request one VM."""
    claimed = [c.server_id for c in step.commands if isinstance(c, ClaimServer)]
    assert len(claimed) == len(set(claimed))
    held = [a.vm for a in state.assignments.values() if a.state in ("claiming", "granted")]
    assert len(held) == len(set(held)), "I4: one VM, two requests"
    for request in state.assignments.values():
        if request.state in ("claiming", "granted"):
            vm = state.vms[request.vm]
            assert vm.attribution is not None
            assert vm.attribution.request_id == request.request_id


def check_moves(step: Step) -> None:
    """I5: what is being deleted never comes back."""
    for move in step.moves:
        assert move.source != DELETED
        assert move.source != DELETING or move.dest == DELETED


def check_servers(world: World) -> None:
    """I2: one server per create command."""
    assert all(count == 1 for count in world.cloud.made.values()), "I2"
