"""Folding what became of commands: answers, lost answers, crashes (R6, R7, R8, R9)."""

from __future__ import annotations

from operator import attrgetter

from poolsm import answers
from poolsm.answers import Outcome, classify
from poolsm.commands import ATTRIBUTED
from poolsm.events import CallAnswered, CommandsDispatched
from poolsm.failure import count_failure, forget_probe, pause_for_quota, pause_ms
from poolsm.identity import jitter
from poolsm.members import BY_DECLARATION, UNPROVEN, Attribution, Op, Target, Vm
from poolsm.observe import LOSS_PROOFS, believe_absence, fold_record, meet, vm_gone
from poolsm.state import ALL_SHORT, State, mark
from poolsm.target import resolve_target
from poolsm.vm import DELETING

_command_id = attrgetter("command_id")
REPEAT_LIMIT_MS = 240_000  # the longest wait before an action is repeated; I7 allows 5 min


def fold_dispatch(state: State, event: CommandsDispatched) -> None:
    """Commands are about to be sent: from here on their outcome may be unknown."""
    for command_id in event.command_ids:
        op = state.ops.get(command_id)
        if op is None:
            state.anomaly("unknown_command", command_id, "dispatched, but not in flight")
            continue
        op.dispatched_ms = state.now_ms
        vm = state.vms.get(op.vm)
        if op.kind == "CreateServer" and vm is not None:
            boot_ms = state.pools[vm.pool].spec.boot_timeout_s * 1000
            vm.boot_deadline_ms = state.now_ms + boot_ms
            state.wake_at(vm.pool, vm.boot_deadline_ms)


def begin_epoch(state: State) -> None:
    """A new runner: what was never sent ends now, what was sent is unknown (C8, R11)."""
    for op in _in_order(state):
        if op.vm and op.vm not in state.vms:
            _land(state, op)
        elif op.dispatched_ms is None:
            end_unsent(state, op, "the runner ended before it was sent")
        else:
            _fold_unknown(state, op, Outcome(answers.UNKNOWN, "the runner ended before its answer"))


def _in_order(state: State) -> list[Op]:
    """Commands in flight, in an order that a restored snapshot has, too."""
    return sorted(state.ops.values(), key=_command_id)


def end_unsent(state: State, op: Op, why: str) -> Vm | None:
    """A command that was decided and never sent is as if it had not been decided.

    Returns:
        Its VM, if there is one still.
    """
    vm = _land(state, op)
    if op.kind == "CreateServer" and vm is not None:
        _end_creation(state, vm)
    elif op.kind == "FetchImage" and op.pool in state.pools:
        state.pools[op.pool].image_retry = ""
    elif op.kind == "DeleteServer" and vm is not None:
        vm.leaving = vm.state == DELETING
        vm.delete_attempts -= 1
        vm.delete_after_ms = 0
        state.index(vm)
    elif op.kind in ("StopServer", "StartServer") and vm is not None:
        vm.power_attempts = max(vm.power_attempts - 1, 0)
    elif op.kind == "ClaimServer" and vm is not None:
        vm.tag_after_ms = 0
    elif op.kind == "RebuildServer" and vm is not None:
        state.anomaly("rebuild_refused", vm.key, why)
    return vm if vm is not None and vm.key in state.vms else None


def _land(state: State, op: Op) -> Vm | None:
    """A command is no longer in flight."""
    state.ops.pop(op.command_id, None)
    vm = state.vms.get(op.vm)
    if vm is not None and vm.op == op.command_id:
        vm.op = ""
        mark(state.pools[vm.pool].flying, vm.key, holds=False)
        state.wake(vm.pool)
    state.wake(op.pool)
    return vm


def _end_creation(state: State, vm: Vm) -> None:
    """A creation of which it is certain that no server came."""
    vm.booting = False
    forget_probe(state, vm)
    state.move_vm(vm, "creation_ended")
    state.drop_vm(vm, final=False)
    state.wake_short()


def fold_answer(state: State, event: CallAnswered) -> None:
    """The outcome of one command's call."""
    op = state.ops.get(event.command_id)
    if op is None:
        state.anomaly("unknown_command", event.command_id, "answered, but not in flight")
        return
    if op.vm and op.vm not in state.vms:
        _land(state, op)  # its VM went while the call was on its way
        return
    outcome = classify(op.kind, event)
    if outcome.kind == answers.BUSY:
        _pause_project(state, op, outcome)
    if outcome.kind == answers.UNKNOWN:
        _fold_unknown(state, op, outcome)
        return
    if op.kind == "FetchImage":
        _land(state, op)
        if op.pool in state.pools:
            state.pools[op.pool].image_retry = "done"
        return
    vm = state.vms[op.vm]
    if op.kind == "CreateServer":
        _fold_create(state, op, vm, event, outcome)
        return
    _land(state, op)
    vm.last_answer_ms = state.now_ms
    _FOLDS[op.kind](state, vm, outcome)
    if event.server is not None and vm.key in state.vms:
        # read after the call that this answers, so it may speak about the server
        fold_record(state, event.server, vm.last_answer_ms + 1)


def _pause_project(state: State, op: Op, outcome: Outcome) -> None:
    """429 and 503: nothing is created in the project before Retry-After (R6)."""
    pause = (outcome.retry_after_s or state.settings.backoff_first_s) * 1000
    until_ms = state.now_ms + pause + jitter(op.command_id, pause // 4)
    if state.now_ms >= state.creation_pause_until_ms:  # the one before is over
        state.since["CreationPaused"] = ("True", state.now_ms)
    if until_ms > state.creation_pause_until_ms:
        state.creation_pause_until_ms = until_ms
        state.creation_pause_text = outcome.text
        state.wake_at(ALL_SHORT, until_ms)


def _fold_create(state: State, op: Op, vm: Vm, event: CallAnswered, outcome: Outcome) -> None:
    if outcome.kind == answers.DONE and not event.server_id:
        _fold_unknown(state, op, Outcome(answers.UNKNOWN, "accepted without a server id"))
        return
    _land(state, op)
    if outcome.kind == answers.DONE:
        vm.last_answer_ms = state.now_ms
        meet(state, vm, str(event.server_id))
        return
    if vm.server_id:  # refused, they say, but we have seen it
        state.anomaly("refused_but_made", vm.key, outcome.text)
        return
    pool = state.pools[vm.pool]
    flavor_id = vm.flavor_id
    _end_creation(state, vm)
    if outcome.kind == answers.QUOTA:
        pause_for_quota(state, flavor_id, op.command_id, outcome.text)
    elif outcome.kind == answers.IMAGE and pool.image_retry != "done":
        pool.image_retry = pool.image_retry or "wanted"  # several at once are one refusal
    elif outcome.kind in (answers.IMAGE, answers.INVALID):
        target = resolve_target(pool, state)
        pool.invalid = outcome.text
        pool.invalid_target = target.fingerprint if isinstance(target, Target) else ""
        state.note(pool, "LastFailure", "SpecInvalid", outcome.text)
    elif outcome.kind != answers.BUSY:
        count_failure(state, pool, op.command_id, outcome.text)


def _fold_unknown(state: State, op: Op, outcome: Outcome) -> None:
    """Nothing is proven. A create waits to be settled (R7), anything else is observed again."""
    if op.kind == "CreateServer":
        op.unknown, op.text = True, outcome.text
        if op.dispatched_ms is None:
            op.dispatched_ms = state.now_ms  # answered, so it was sent
        state.wake_at(op.pool, op.dispatched_ms + state.settings.settle_time_s * 1000)
        if outcome.retry_after_s:
            _pause_project(state, op, outcome)
        return
    vm = _land(state, op)
    if op.kind == "FetchImage":
        _fetch_again(state, op)
    elif vm is not None:
        vm.last_answer_ms = state.now_ms
        _FOLDS[op.kind](state, vm, outcome)


def _fetch_again(state: State, op: Op) -> None:
    pool = state.pools.get(op.pool)
    if pool is not None:
        pool.image_retry = "wanted"
        pool.backoff_until_ms = state.now_ms + pause_ms(state, 1, op.command_id)
        state.wake_at(op.pool, pool.backoff_until_ms)


def settle(state: State) -> None:
    """Decide the creations whose answer was lost, from a listing begun after the wait (R7)."""
    wait_ms = state.settings.settle_time_s * 1000
    for op in sorted((op for op in state.ops.values() if op.unknown), key=_command_id):
        vm = state.vms.get(op.vm)
        if vm is None or vm.server_id:  # gone again, or shown by a listing: adopted
            _land(state, op)
        elif op.dispatched_ms is not None:
            due_ms = op.dispatched_ms + wait_ms
            if state.watch.listing_started_ms > due_ms:
                _land(state, op)
                pool = state.pools[vm.pool]
                _end_creation(state, vm)
                why = f"no server came of it; the answer was: {op.text}"
                count_failure(state, pool, op.command_id, why)
            elif state.now_ms >= due_ms:
                state.wake(op.pool)  # look again: the listing that decides is on its way


def _fold_delete(state: State, vm: Vm, outcome: Outcome) -> None:
    if outcome.kind in (answers.DONE, answers.GONE):
        state.move_vm(vm, "delete_accepted")
        vm.delete_after_ms = _later(state, vm, vm.delete_attempts, state.settings.delete_repeat_s)
    elif outcome.kind == answers.UNMET:
        vm.leaving = vm.state == DELETING
        state.anomaly("unmet", vm.key, outcome.text)
        vm.delete_after_ms = _later(state, vm, vm.delete_attempts, state.settings.delete_repeat_s)
    else:  # whether it is leaving will be seen
        vm.delete_after_ms = _later(state, vm, vm.delete_attempts, state.settings.delete_repeat_s)
    state.index(vm)


def _fold_power(state: State, vm: Vm, outcome: Outcome) -> None:
    if outcome.kind == answers.GONE:
        return  # the listing proves it
    vm.power_after_ms = _later(state, vm, vm.power_attempts, state.settings.power_repeat_s)


def _fold_claim(state: State, vm: Vm, outcome: Outcome) -> None:
    if outcome.kind in (answers.GONE, answers.UNMET):
        undo_claim(state, vm, outcome.text)
        return
    vm.tag_after_ms = _later(state, vm, 1, state.settings.power_repeat_s)


def undo_claim(state: State, vm: Vm, why: str) -> None:
    """The claim did not happen: the VM is what its metadata says, in the pool it came from."""
    state.anomaly("claim_failed", vm.key, why)
    state.end_claim(vm, why)
    home = vm.drawn_from
    if home is not None and home in state.pools:
        state.give_to(vm, home)
    vm.booting = vm.booting and home is None
    held, wanted = vm.attribution, vm.wanted
    vm.attribution, vm.drawn_from, vm.wanted, vm.wanted_name = None, None, {}, ""
    if held is not None and held.by == BY_DECLARATION:
        vm.attribution, vm.wanted = held, wanted  # it holds whatever the cloud says of it
    elif vm.server_id in state.declared and ATTRIBUTED not in vm.metadata:
        vm.attribution = Attribution(vm.pool.user_id, UNPROVEN)
    vm.tag_after_ms = _later(state, vm, 1, state.settings.power_repeat_s)
    state.wake_at(ALL_SHORT, vm.tag_after_ms)  # until then nobody is offered it
    state.index(vm)
    state.wake_short()


def _fold_tag(state: State, vm: Vm, outcome: Outcome) -> None:
    if outcome.kind == answers.INVALID:
        vm.wanted_name = ""  # this name can never be given; the metadata is what counts
        state.index(vm)
        state.anomaly("rename_refused", vm.key, outcome.text)
    vm.tag_after_ms = _later(state, vm, 1, state.settings.power_repeat_s)


def _fold_rebuild(state: State, vm: Vm, outcome: Outcome) -> None:
    if outcome.kind != answers.DONE:
        state.anomaly("rebuild_refused", vm.key, outcome.text)


def _fold_find(state: State, vm: Vm, outcome: Outcome) -> None:
    """A lookup: 404 proves absence only while the cloud shows others of ours (R10)."""
    loss = state.loss
    if outcome.kind == answers.DONE:
        if vm.absences:
            _vouch(state, vm)
        elif loss is not None and vm.key not in loss.lost:
            loss.witness = vm.server_id
            loss.witness_after_ms = state.now_ms
        return
    if outcome.kind == answers.GONE and loss is not None and not vm.absences:
        loss.lost = dict.fromkeys(loss.lost, 0)  # a listed one is unknown, too: it proves nothing
        loss.witness = ""
    if outcome.kind != answers.GONE or not vm.absences:
        return
    vm.proofs += 1
    if loss is not None and vm.key in loss.lost:
        loss.lost[vm.key] += 1
        _believe_loss(state)
        return
    believe_absence(state, vm)


def _vouch(state: State, vm: Vm) -> None:
    """The cloud answers for a server that its listing lacks: for a while the listing is wrong."""
    state.vouched[vm.key] = state.now_ms + state.settings.power_repeat_s * 1000
    state.anomaly("unlisted", vm.server_id, "a complete listing lacks it, a lookup shows it")


def _believe_loss(state: State) -> None:
    """Each lost id answered 404 twice while another answered 200: they are gone (R10)."""
    loss = state.loss
    proven = loss is not None and all(n >= LOSS_PROOFS for n in loss.lost.values())
    if loss is not None and loss.witness and proven:
        end_loss(state, "each lost server answered 404 twice while others answered")


def end_loss(state: State, why: str) -> None:
    """The lost servers are gone for good; planning goes on."""
    loss = state.loss
    state.loss = None
    for key in sorted(loss.lost if loss else ()):
        vm = state.vms.get(key)
        if vm is not None and key not in state.vouched:
            state.move_vm(vm, "prove_gone")
            vm_gone(state, vm, final=False, why=why)
    for pool in state.pools:
        state.wake(pool)


def _later(state: State, vm: Vm, attempt: int, first_s: int) -> int:
    """When an action may be repeated: doubled with each attempt, to a limit."""
    wait_ms = min(first_s * 1000 << min(max(attempt - 1, 0), 8), REPEAT_LIMIT_MS)
    at_ms = state.now_ms + wait_ms
    state.wake_at(vm.pool, at_ms)
    return at_ms


_FOLDS = {
    "DeleteServer": _fold_delete,
    "StopServer": _fold_power,
    "StartServer": _fold_power,
    "ClaimServer": _fold_claim,
    "RenameServer": _fold_tag,
    "RebuildServer": _fold_rebuild,
    "FindServer": _fold_find,
}
