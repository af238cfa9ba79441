"""Whose a VM is, by its metadata and by our own record of it (R1, R4, R11, R15).

The two must agree. Where they differ for another reason than a claim on its way, somebody
changed the metadata, and counting by either alone would create or delete for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from poolsm.assignment import WAITING
from poolsm.commands import ATTRIBUTED, CLAIMANT, LOG_ID, REQUEST_ID, SERVERPOOL_ID, USER_ID
from poolsm.events import AttributionDeclared
from poolsm.failure import end_booting
from poolsm.members import (
    BY_ASSIGNMENT,
    BY_DECLARATION,
    BY_METADATA,
    BY_TRANSFER,
    UNPROVEN,
    Assignment,
    Attribution,
    DeclaredAttribution,
    Vm,
)
from poolsm.records import ServerRecord
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.vm import BUILD


def fold_tags(state: State, vm: Vm, record: ServerRecord) -> None:
    """Compare a record's metadata with what we hold of the VM."""
    pool = state.pools[vm.pool]
    if record.metadata is None:
        if vm.key not in pool.blank:
            pool.blank.add(vm.key)  # keeps its last known metadata, still counts (R1)
            state.wake(vm.pool)
        return
    if vm.key in pool.blank:
        pool.blank.discard(vm.key)
        state.wake(vm.pool)
    vm.metadata = record.metadata
    if record.name:
        vm.name = record.name
        if record.name == vm.wanted_name:
            vm.wanted_name = ""
            state.index(vm)
    key = PoolKey(record.metadata.get(SERVERPOOL_ID, ""), record.metadata.get(USER_ID, ""))
    if key not in (vm.pool, vm.drawn_from):
        _fold_other_pool(state, vm, key)
    else:
        pool.disputed.pop(vm.key, None)
        if vm.wanted and vm.wanted.items() <= record.metadata.items():
            confirm_claim(state, vm)
        if not vm.wanted:
            _fold_attribution(state, vm, record.metadata)
            if record.metadata.get(REQUEST_ID):
                _recall_request(state, vm, record.metadata)


def confirm_claim(state: State, vm: Vm) -> None:
    """The cloud has the claim: it is what the metadata says from now on."""
    vm.wanted = {}
    vm.tag_after_ms = 0  # the name comes next, at once
    if vm.drawn_from is not None:
        state.wake(vm.drawn_from)
        vm.drawn_from = None
        end_booting(state, vm)  # nothing was built: it proves nothing about creation
    request_id = vm.attribution.request_id if vm.attribution else ""
    assignment = state.assignments.get(request_id)
    if assignment is not None and assignment.state == "claiming" and assignment.vm == vm.key:
        how = " (stopped: today is an off-day)" if vm.state == "SHUTOFF" else ""
        assignment.move("grant", f"VM {vm.name}{how}", state.now_ms)
        state.close_request(assignment)
    state.index(vm)


def _fold_other_pool(state: State, vm: Vm, key: PoolKey) -> None:
    """Somebody re-tagged it: into another declared pool, which then has it, or out of ours."""
    found = f"metadata says {key.user_id or 'nobody'}/{key.serverpool_id or 'no pool'}"
    if key in state.pools:
        state.anomaly("moved_by_others", vm.key, f"{found}, was in {vm.pool}")
        end_booting(state, vm)
        state.end_claim(vm, found)
        state.give_to(vm, key)
        vm.attribution, vm.drawn_from, vm.wanted, vm.wanted_name = None, None, {}, ""
        _fold_attribution(state, vm, vm.metadata)
        if vm.record is not None and vm.record.status == BUILD and vm.attribution is None:
            vm.booting = True  # its boot is the new pool's to watch
            vm.boot_deadline_ms = state.now_ms + state.pools[key].spec.boot_timeout_s * 1000
            state.wake_at(key, vm.boot_deadline_ms)
        state.index(vm)
        return
    if vm.key not in state.pools[vm.pool].disputed:
        state.anomaly("disputed", vm.key, f"{found}, we hold it for {vm.pool}")
    state.pools[vm.pool].disputed[vm.key] = found
    state.wake(vm.pool)


def _fold_attribution(state: State, vm: Vm, metadata: Mapping[str, str]) -> None:
    flag = metadata.get(ATTRIBUTED)
    held = vm.attribution
    if held is None and flag != "false":
        claimant = metadata.get(CLAIMANT) or metadata.get(USER_ID, "")
        vm.attribution = Attribution(claimant, BY_METADATA)
        vm.condemned = ""
        state.index(vm)
    elif held is not None and flag == "false":
        if held.by in (BY_ASSIGNMENT, BY_TRANSFER, BY_DECLARATION):
            # Ours to say, not theirs: say it again.
            state.anomaly("attribution_undone", vm.key, f"reattrib is false, held by {held.by}")
            vm.wanted = {ATTRIBUTED: "true", CLAIMANT: held.claimant}
        else:
            vm.attribution = None
        state.index(vm)


def _recall_request(state: State, vm: Vm, metadata: Mapping[str, str]) -> None:
    """The tags say which request was granted this VM, and our record does not (R16).

    So it is after a backup was restored: the claim is of a time that the log no longer knows.
    Without this the request would be given a second VM, and its claimant's work be left in the
    first one.
    """
    held, request_id, claimant = vm.attribution, metadata[REQUEST_ID], metadata.get(CLAIMANT, "")
    ours = metadata.get(LOG_ID) == state.log_id and metadata.get(ATTRIBUTED) == "true"
    if held is None or held.by == BY_ASSIGNMENT or not ours:
        return
    assignment = state.assignments.get(request_id)
    if assignment is None:
        assignment = Assignment(request_id, vm.pool, claimant, state.now_ms, state.now_ms)
        state.assignments[request_id] = assignment
    elif (assignment.state, assignment.pool, assignment.claimant) != (WAITING, vm.pool, claimant):
        return
    vm.attribution = Attribution(claimant, BY_ASSIGNMENT, request_id)
    assignment.vm, assignment.server_id = vm.key, vm.server_id
    assignment.move("claim", "its VM carries it", state.now_ms)
    assignment.move("grant", f"VM {vm.name}, as its metadata says", state.now_ms)
    state.close_request(assignment)
    state.index(vm)
    state.wake(vm.pool)


def declare_attribution(state: State, event: AttributionDeclared) -> None:
    """Take over what the servers' former keeper knows of one; it waits until that is seen (R11)."""
    state.declared[event.server_id] = DeclaredAttribution(event.attributed, event.claimant)
    vm = state.vms.get(state.by_server.get(event.server_id, ""))
    if vm is not None:
        heed_declaration(state, vm)


def heed_declaration(state: State, vm: Vm) -> None:
    """Attribute a VM as it was declared, or have it made free where its metadata is silent.

    What we granted since is newer, and stays. A VM that is declared free stays attributed until
    its metadata proves otherwise: that is written first, so that whoever reads it later, a
    runner without this log or the service before us, knows the same.
    """
    declared, held = state.declared.get(vm.server_id), vm.attribution
    if declared is None or (held is not None and held.by in (BY_ASSIGNMENT, BY_TRANSFER)):
        return
    flag = vm.metadata.get(ATTRIBUTED)
    if vm.leaving or vm.wanted:
        state.anomaly("declared_late", vm.key, "its attribution was declared while it changed")
    elif declared.attributed:
        vm.attribution = Attribution(declared.claimant, BY_DECLARATION)
        vm.condemned = ""
        state.pools[vm.pool].freed.discard(vm.key)
        if flag == "false":
            vm.wanted = {ATTRIBUTED: "true", CLAIMANT: declared.claimant}
            vm.tag_after_ms = 0
        state.index(vm)
    elif held is not None and held.by == UNPROVEN and flag is None:
        state.pools[vm.pool].freed.add(vm.key)
        state.index(vm)
