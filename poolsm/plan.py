"""One planning round: the rules over the pools that something changed for (R2, C7)."""

from __future__ import annotations

from collections.abc import Iterator

from poolsm.assignment import CLAIMING
from poolsm.commands import Command
from poolsm.conditions import note_statuses
from poolsm.failure import breaker_allows, creation_failed, end_booting, quota_holds
from poolsm.issue import issue
from poolsm.members import Pool
from poolsm.outcomes import settle, undo_claim
from poolsm.pool import BREAKER_TABLE, DRAINING, OPEN
from poolsm.requests import BEING_REMOVED, forget_drained
from poolsm.rules import AFTER_PROVISIONING, BEFORE_PROVISIONING, Rule
from poolsm.rules.deletion import note_stuck
from poolsm.rules.provisioning import Want, create_draft, provision
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.vm import BUILD, DELETING, ERROR, PENDING
from poolsm.words import listing_is_fresh, watch_the_day

_CONTENT = ("Satisfied", "Draining")  # reasons of pools that wait for nothing


def may_plan(state: State) -> bool:
    """Whether the cloud is known well enough to act: listed since we started, and lately (R10)."""
    return not state.adopting and listing_is_fresh(state)


def plan(state: State, position: int) -> list[Command]:
    """Run the rules over all pools that are due, and issue what they decide.

    Of most pools that changed the counters alone say that no rule has anything to do.
    """
    commands: list[Command] = []
    due, state.dirty, state.touched = state.dirty, set(), False
    settle(state)
    due_pools = map(state.pools.__getitem__, sorted(due | state.dirty))
    pools = [pool for pool in due_pools if not state.at_rest(pool)]
    for pool in pools:
        keep_books(pool, state)

    def follow(rules: tuple[Rule, ...]) -> None:
        for pool in pools:
            for rule in rules:
                for draft in rule(pool, state):
                    commands.append(issue(state, draft, position))

    follow(BEFORE_PROVISIONING)
    commands += provision_fairly(pools, state, position)
    follow(AFTER_PROVISIONING)
    for pool in pools:
        note_stuck(pool, state)
        watch_the_day(pool, state)
        forget_drained(state, pool)
    note_statuses(state, [pool for pool in pools if pool.key in state.pools])
    return commands  # pools that changed meanwhile stay due for the next round


def keep_books(pool: Pool, state: State) -> None:
    """What the passing of time alone changes: boots given up, intents that had no effect."""
    now_ms = state.now_ms
    take_back_claims(pool, state)
    condemn(pool, state)
    for vm in state.named(pool.booting):
        late = 0 < vm.boot_deadline_ms <= now_ms
        if late and vm.server_id and vm.state in (PENDING, BUILD):
            why = f"not ACTIVE within {pool.spec.boot_timeout_s} s"
            if vm.attribution is None:  # somebody's is left alone (R15)
                vm.condemned = why
            creation_failed(state, vm, why)
        elif late and vm.state not in (PENDING, BUILD):
            end_booting(state, vm)
    for vm in state.named(pool.leaving):
        if not vm.op and vm.state != DELETING and now_ms >= vm.delete_after_ms:
            vm.leaving = False  # the deletion had no effect: decide anew (R8)
            state.index(vm)
    if pool.breaker == OPEN and now_ms >= pool.breaker_until_ms:
        pool.breaker = BREAKER_TABLE[pool.breaker, "cool_down"]


def take_back_claims(pool: Pool, state: State) -> None:
    """A VM that failed while it was handed out is nobody's (R4, R16).

    Nova changes no metadata of a server in ERROR, so its claim can never be observed; repeating
    it would go on for ever. Whoever asked gets another VM.
    """
    for vm in state.named(pool.tagging) if ERROR in pool.members else ():
        held = vm.attribution
        if vm.state != ERROR or vm.op or not vm.wanted or held is None:
            continue
        asked = state.assignments.get(held.request_id)
        granted = asked is not None and asked.state != CLAIMING
        if vm.drawn_from is not None or (asked is not None and not granted):
            undo_claim(state, vm, "it is in ERROR, and its claim is not in its metadata")


def condemn(pool: Pool, state: State) -> None:
    """What is to go whatever the pool's size, however it came to be so (R6, R12)."""
    for vm in state.pool_vms(pool, ERROR) if ERROR in pool.members else ():
        if vm.attribution is None and not vm.condemned and not vm.held:
            fault = vm.record.fault if vm.record else None
            vm.condemned = f"ERROR: {fault or 'no fault text'}"
            state.index(vm)
    if pool.state == DRAINING:
        for vm in state.all_vms(pool):
            if pool.condemns(vm) and not vm.condemned and not vm.held:
                vm.condemned = BEING_REMOVED
                state.index(vm)


def provision_fairly(pools: list[Pool], state: State, position: int) -> list[Command]:
    """Provision all due pools; creations share the project's limit by rotation (R6).

    Each pool in turn, beginning after the one served last, gets one creation at a time. A
    pool holds at most its share of the limit, with one share left for a newcomer, so one
    whose calls hang for minutes takes nothing from the others.
    """
    commands: list[Command] = []
    wants: list[tuple[Pool, Want]] = []
    left: dict[PoolKey, int] = {}
    for pool in _rotated(pools, state):
        want = provision(pool, state)
        commands += [issue(state, draft, position) for draft in want.commands]
        wants.append((pool, want))
        if want.reason in _CONTENT:
            state.short.discard(pool.key)
        else:
            state.short.add(pool.key)
        if want.creates:
            left[pool.key] = want.creates
    if left:
        commands += _create_in_turn({pool.key: want for pool, want in wants}, left, state, position)
    for pool, want in wants:
        waiting = left.get(pool.key) and not pool.booting
        reason = "WaitingForSlot" if waiting else want.reason
        state.note(pool, "Provisioned", reason, want.message)
        if want.target is not None and want.target.ambiguous:
            state.note(pool, "ImageAmbiguous", "NewestTaken", want.target.ambiguous)
        elif want.target is not None:
            pool.conditions.pop("ImageAmbiguous", None)
    return commands


def _create_in_turn(
    wants: dict[PoolKey, Want], left: dict[PoolKey, int], state: State, position: int
) -> Iterator[Command]:
    """One creation for each pool in turn; takes what it issues from ``left``."""
    limit = state.settings.creations_limit
    share = max(1, limit // (len(state.short) + 1))
    waiting = list(left)
    while waiting:
        served: list[PoolKey] = []
        for key in waiting:
            if len(state.creations) >= limit:
                return
            pool, want = state.pools[key], wants[key]
            if len(pool.booting) >= share or not _may_create_one(pool, want, state):
                continue
            assert want.target is not None
            draft = create_draft(pool, want.target, want.text, state)
            yield issue(state, draft, position)
            state.rotation = key
            left[key] -= 1
            served.append(key)
        waiting = [key for key in served if left[key]]


def _may_create_one(pool: Pool, want: Want, state: State) -> bool:
    """One probe at a time behind a quota, also when two pools use the same flavor."""
    assert want.target is not None
    held = quota_holds(state, want.target.flavor_id)
    return not held and breaker_allows(pool, state.now_ms) != 0


def _rotated(pools: list[Pool], state: State) -> list[Pool]:
    """Pools in the order of their keys, from behind the one that was served last."""
    rotation = state.rotation
    if rotation is None:
        return pools
    return [p for p in pools if p.key > rotation] + [p for p in pools if p.key <= rotation]
