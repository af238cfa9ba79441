"""R6, R8, R12, R16: the deletions that are decided whatever the pool's size."""

from __future__ import annotations

from poolsm.commands import Command, DeleteServer, Expectation, FindServer, Reason
from poolsm.members import Pool, Vm
from poolsm.pool import DRAINING
from poolsm.requests import RELEASED
from poolsm.state import State
from poolsm.vm import DELETING, MISSING
from poolsm.words import may_destroy

ESCALATION_ATTEMPTS = 3  # deletions without effect before the pool says so


def delete_draft(vm: Vm, rule: str, text: str) -> DeleteServer:
    """The command that deletes a VM, if pool and attribution still are what we hold."""
    held = vm.attribution
    expect = Expectation(vm.pool, held is not None, held.claimant if held else "")
    return DeleteServer(server_id=vm.server_id, expect=expect, reason=Reason(rule, text))


def delete_condemned(pool: Pool, state: State) -> list[Command]:
    """Delete what failed (R6), was released (R16) or belongs to a pool being removed (R12).

    And what is being deleted and still is shown: a deletion that the cloud accepted and
    forgot is issued again after 90 s, then ever more rarely, and reported (R8).
    """
    if not pool.deleting_or_condemned or not may_destroy(pool, state):
        return []
    drafts: list[Command] = []
    for vm in state.named(pool.deleting_or_condemned):
        if not vm.server_id or vm.op or vm.absences or vm.held or vm.state == MISSING:
            continue
        if vm.attribution is not None and not vm.condemned:
            continue  # somebody's since the deletion was decided (R15)
        if state.now_ms < vm.delete_after_ms:
            continue
        if vm.state == DELETING:
            text = f"still shown after deletion {vm.delete_attempts}"
            drafts.append(delete_draft(vm, "R8 repeat", text))
        else:
            drafts.append(delete_draft(vm, _rule_of(vm, pool), vm.condemned))
    return drafts


def _rule_of(vm: Vm, pool: Pool) -> str:
    if vm.condemned.startswith(RELEASED):
        return "R16 release"
    return "R12 removal" if pool.state == DRAINING else "R6 failure"


def note_stuck(pool: Pool, state: State) -> None:
    """Say which deletions have no effect, for an operator to see to (R8)."""
    if not pool.deleting_or_condemned:
        pool.conditions.pop("DeleteStuck", None)
        return
    stuck = [
        vm.server_id
        for vm in state.named(pool.deleting_or_condemned)
        if vm.delete_attempts >= ESCALATION_ATTEMPTS
    ]
    if stuck:
        text = f"{len(stuck)} servers do not go away: {', '.join(stuck[:3])}"
        state.note(pool, "DeleteStuck", "NoEffect", text)
    else:
        pool.conditions.pop("DeleteStuck", None)


def prove(pool: Pool, state: State) -> list[Command]:
    """Look up by id what a listing lacks: only Nova's own 404 proves that it is gone (R10).

    At the first absence, so that a listing that is wrong about a server that exists is found
    out before the server counts as missing and another is made for it (R2). While a whole fleet
    seems lost, one server that is still listed is looked up as well: if everything answers
    404, it is the cloud that is broken.
    """
    if not pool.absent:
        return []
    drafts: list[Command] = []
    for vm in state.named(pool.absent):
        due = state.now_ms >= vm.proof_after_ms and vm.state != DELETING
        if due and not vm.op and vm.server_id:
            text = f"absent from a complete listing; lookup {vm.proofs + 1}"
            drafts.append(
                FindServer(server_id=vm.server_id, reason=Reason("R10 observation", text))
            )
    loss = state.loss
    if drafts and loss is not None and not loss.witness:
        witness = next(
            (state.vms[key] for key in sorted(state.vms) if _may_testify(state.vms[key], state)),
            None,
        )
        if witness is not None:
            reason = Reason("R10 observation", "is the cloud still answering for others?")
            drafts.append(FindServer(server_id=witness.server_id, reason=reason))
    return drafts


def _may_testify(vm: Vm, state: State) -> bool:
    listed = bool(vm.server_id) and vm.absences == 0 and vm.record is not None
    return listed and not vm.op and state.now_ms >= vm.proof_after_ms
