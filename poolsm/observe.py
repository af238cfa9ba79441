"""Folding what the cloud shows: listings and single records (R1, R10, R11)."""

from __future__ import annotations

from poolsm.answers import is_quota_text
from poolsm.commands import (
    ATTRIBUTED,
    CLAIMANT,
    COMMAND_ID,
    LOG_ID,
    REQUEST_ID,
    SERVERPOOL_ID,
    USER_ID,
)
from poolsm.events import ListingCompleted
from poolsm.failure import creation_failed, creation_succeeded, end_booting, pause_for_quota
from poolsm.kept import keep
from poolsm.members import (
    BY_METADATA,
    BY_UNKNOWN,
    BY_USER,
    UNPROVEN,
    Attribution,
    Loss,
    Tombstone,
    Vm,
    Work,
)
from poolsm.ownership import fold_tags, heed_declaration
from poolsm.records import ServerRecord
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.vm import (
    ACTIVE,
    BUILD,
    DELETED,
    DELETING,
    ERROR,
    GONE_STATUSES,
    MISSING,
    PENDING,
    SHUTOFF,
    input_for,
)

LOSS_PROOFS = 2  # lookups that must answer 404 before a lost fleet is believed (R10)
LOSS_LEAST = 5  # servers lost at once, and more than half of the fleet (R10)


def expected_servers(state: State) -> dict[str, ServerRecord | None]:
    """The last record of every server that a listing should show, by id."""
    expected: dict[str, ServerRecord | None] = dict(state.strays)
    expected.update(state.unreadable)
    doubted = {*state.vouched, *(state.loss.lost if state.loss else ())}
    for vm in state.vms.values():
        if vm.server_id:
            back = vm.absences or (doubted and vm.key in doubted)  # if it is there: say so
            expected[vm.server_id] = None if back else vm.record
    return expected


def missed_servers(state: State) -> set[str]:
    """Ids whose absence is known already."""
    missed = {vm.server_id for vm in state.vms.values() if vm.state == MISSING}
    vouched = (key for key, until_ms in state.vouched.items() if until_ms > state.now_ms)
    return missed.union(state.vms[key].server_id for key in vouched)


def fold_listing(state: State, event: ListingCompleted, started_ms: int) -> None:
    """A complete listing: the only thing that proves absence (R10)."""
    suspect_loss(state, event.absent)
    for server_id in event.absent:
        _fold_absence(state, server_id, started_ms)
    for record in event.changed:
        listed = state.vms.get(state.by_server.get(record.server_id, ""))
        if listed is not None and started_ms > listed.last_answer_ms:
            state.vouched.pop(listed.key, None)  # the listing has it again
        fold_record(state, record, started_ms)
    if state.adopting:
        state.adopting = False
        for key in state.pools:
            state.wake(key)
    if state.guard_listings:
        state.guard_listings -= 1
        for key in state.pools:
            state.wake(key)
    state.listing_error, state.listing_failed_ms = "", 0


def suspect_loss(state: State, absent: tuple[str, ...]) -> None:
    """At least 5 and more than half of the fleet gone at once, not by us: stop and say so."""
    keys = (state.by_server.get(server_id, "") for server_id in absent)
    lost = [state.vms[key] for key in keys if key]
    lost = [vm for vm in lost if _stands(vm) and vm.absences == 0]
    if len(lost) < LOSS_LEAST:
        return
    live = [vm for vm in state.vms.values() if _stands(vm)]
    if 2 * len(lost) > len(live):
        if state.loss is None:
            state.loss = Loss(state.now_ms, {})
            for key in state.pools:
                state.wake(key)
            text = f"{len(lost)} of {len(live)} servers left the listing at once"
            state.anomaly("fleet_lost", "fleet", text)
        for vm in lost:
            state.loss.lost[vm.key] = 0


def _stands(vm: Vm) -> bool:
    live = vm.record is not None and vm.state not in (PENDING, MISSING, DELETING)
    return live and not vm.leaving


def _fold_absence(state: State, server_id: str, started_ms: int) -> None:
    state.strays.pop(server_id, None)
    if state.unreadable.pop(server_id, None) is not None:
        state.wake_short()
    vm = state.vms.get(state.by_server.get(server_id, ""))
    if vm is None or started_ms <= max(vm.last_answer_ms, state.vouched.get(vm.key, 0)):
        return
    state.vouched.pop(vm.key, None)
    if vm.state == DELETING:
        state.move_vm(vm, "prove_gone")
        vm_gone(state, vm, final=True, why="deleted")
        return
    vm.absences += 1
    state.index(vm)
    if vm.absences >= 2:
        state.move_vm(vm, "lose")
        believe_absence(state, vm)


def believe_absence(state: State, vm: Vm) -> None:
    """A missing VM of which lookups said 404 is gone; alone in the fleet it takes two (R10)."""
    if vm.state != MISSING or (state.loss is not None and vm.key in state.loss.lost):
        return
    others = any(o.record is not None and o.absences == 0 for o in state.vms.values())
    if vm.proofs >= (1 if others else LOSS_PROOFS):
        state.move_vm(vm, "prove_gone")
        vm_gone(state, vm, final=False, why="vanished; a lookup answers 404")


def fold_record(state: State, record: ServerRecord, started_ms: int) -> None:
    """One record: of a VM we know, of one we are waiting for, of a new one, or of nobody's."""
    vm = _find_vm(state, record)
    if vm is not None:
        if state.unreadable.pop(record.server_id, None) is not None:
            state.wake_short()  # it was shown before we knew it for ours
        _fold_known(state, vm, record, started_ms)
        return
    tombstone = state.tombstones.get(record.server_id)
    if tombstone is not None and tombstone.final:
        _fold_ghost(state, record, tombstone, started_ms)
        return
    state.strays.pop(record.server_id, None)  # it may be tagged otherwise by now
    if record.metadata is None:
        state.unreadable[record.server_id] = record
        return
    if state.unreadable.pop(record.server_id, None) is not None:
        state.wake_short()
    key = PoolKey(record.metadata.get(SERVERPOOL_ID, ""), record.metadata.get(USER_ID, ""))
    if record.status in GONE_STATUSES or not all(key):
        return
    if key in state.removed and record.metadata.get(LOG_ID) == state.log_id:
        state.revive_removed(key)
    if key in state.pools:
        adopt(state, record, key, started_ms, declared_now=False)
    else:
        state.strays[record.server_id] = record


def _fold_ghost(state: State, record: ServerRecord, tombstone: Tombstone, started_ms: int) -> None:
    """A server that was proven gone is shown again: by a stale listing, or the proof was a lie.

    It never comes back to life (I5). What we deleted and what is still shown when no listing
    can be that stale is deleted again (I2); anything else is known from then on, and left alone.
    """
    state.strays.pop(record.server_id, None)
    if record.status in GONE_STATUSES:
        return
    if started_ms < tombstone.at_ms + state.settings.settle_time_s * 1000:
        state.anomaly("ghost", record.server_id, "a deleted server is shown again; ignored")
        return
    metadata = record.metadata or {}
    key = PoolKey(metadata.get(SERVERPOOL_ID, ""), metadata.get(USER_ID, ""))
    if tombstone.held or not _still_to_go(tombstone, metadata):
        state.anomaly("ghost", record.server_id, "a deleted server is still there; left alone")
        state.strays[record.server_id] = record
        return
    if key in state.removed:
        state.revive_removed(key)
    if key not in state.pools:
        state.strays[record.server_id] = record
        return
    state.anomaly("ghost", record.server_id, "a deleted server is still there; deleted again")
    state.enlist(
        Vm(
            key=record.server_id,
            pool=key,
            state=DELETING,
            since_ms=state.now_ms,
            name=record.name or "",
            server_id=record.server_id,
            record=record,
            metadata=metadata,
            created=record.created,
            attribution=None if metadata[ATTRIBUTED] == "false" else tombstone.attribution,
            work=Work(delete_attempts=1, condemned=tombstone.condemned),
        )
    )


def _still_to_go(tombstone: Tombstone, metadata: dict[str, str]) -> bool:
    """Whether a server that outlived its deletion is nobody's, or still the one given back (I3)."""
    if not tombstone.deleted:
        return False
    held = tombstone.attribution
    if metadata.get(ATTRIBUTED) == "false":
        return True
    if held is None or not tombstone.condemned:
        return False
    whose = metadata.get(CLAIMANT) or metadata.get(USER_ID, "")
    asked = metadata.get(REQUEST_ID, "")
    return metadata.get(ATTRIBUTED) == "true" and (whose, asked) == (held.claimant, held.request_id)


def _find_vm(state: State, record: ServerRecord) -> Vm | None:
    """By id; else, for a server whose create is not answered yet, by command id and name."""
    known = state.by_server.get(record.server_id)
    if known is not None:
        return state.vms[known]
    metadata = record.metadata or {}
    vm = state.vms.get(metadata.get(COMMAND_ID, ""))
    if vm is None:
        vm = state.vms.get(state.by_name.get(record.name or "", ""))
    if vm is None or metadata.get(LOG_ID) != state.log_id:
        return None
    if vm.server_id:
        state.anomaly(
            "second_server", record.server_id, f"command {vm.key} already made {vm.server_id}"
        )
        return None
    meet(state, vm, record.server_id)
    return vm


def meet(state: State, vm: Vm, server_id: str) -> None:
    """A creation's server is known by its id from now on."""
    if vm.server_id:
        return
    if server_id in state.by_server:
        state.anomaly("second_vm", vm.key, f"{server_id} is already {state.by_server[server_id]}")
        return
    vm.server_id = server_id
    state.by_server[server_id] = vm.key
    state.by_name.pop(vm.name, None)


def adopt(
    state: State, record: ServerRecord, key: PoolKey, started_ms: int, *, declared_now: bool
) -> None:
    """Take a server that carries a declared pool's tags into that pool; never delete it for it.

    One that appears after our start without our log id means that somebody else manages this
    pool, too: nothing is created or deleted until an operator says so (R11).
    """
    metadata = record.metadata or {}
    pool = state.pools[key]
    flag = metadata.get(ATTRIBUTED)
    attribution = None
    if flag != "false":
        by = BY_METADATA if flag == "true" else UNPROVEN
        claimant = metadata.get(CLAIMANT) or metadata.get(USER_ID, "")
        attribution = Attribution(claimant, by, metadata.get(REQUEST_ID, ""))
    ours = metadata.get(LOG_ID) == state.log_id
    tombstone = state.tombstones.get(record.server_id)
    vm = Vm(
        key=record.server_id,
        pool=key,
        state=PENDING,
        since_ms=state.now_ms,
        name=record.name or "",
        server_id=record.server_id,
        attribution=attribution,
        key_name=record.key_name,
    )
    vm.held = tombstone.held if tombstone is not None else None  # it was not gone after all
    state.enlist(vm)
    if not (ours or state.adopting or declared_now or tombstone is not None):
        pool.second_manager = (
            f"server {record.server_id} appeared with log id {metadata.get(LOG_ID, 'none')}"
        )
        state.anomaly("second_manager", str(key), pool.second_manager)
    _fold_known(state, vm, record, max(started_ms, 1))
    if vm.key in state.vms:
        heed_declaration(state, vm)
    if vm.state == BUILD and attribution is None and ours:
        vm.booting = True
        state.index(vm)
        vm.boot_deadline_ms = state.now_ms + pool.spec.boot_timeout_s * 1000
        state.wake_at(key, vm.boot_deadline_ms)


def _fold_known(state: State, vm: Vm, record: ServerRecord, started_ms: int) -> None:
    if started_ms <= vm.last_answer_ms:
        return  # it may be from before our last call; the next listing says it again
    if vm.absences:
        vm.absences = vm.proofs = 0
        state.index(vm)
    if vm.key not in state.vouched:  # half a fleet that only lookups show is still a riddle
        _found_again(state, vm)
    before, previous = vm.state, vm.record
    vm.record = record
    vm.created = record.created or vm.created
    fold_tags(state, vm, record)
    dest = state.move_vm(vm, input_for(record.status))
    if dest is None:
        state.anomaly("no_row", vm.key, f"{before} has no row for {record.status}")
    if dest == DELETED:
        ours = before == DELETING or vm.leaving
        if not ours:
            state.anomaly("deleted_by_others", vm.key, f"seen {record.status} in state {before}")
        vm_gone(state, vm, final=True, why="deleted" if ours else "deleted by someone else")
        return
    _fold_power(vm, before, record)
    if vm.state == ERROR and before != ERROR:
        _fold_error(state, vm, record)
    if vm.state in (ACTIVE, SHUTOFF) and vm.booting and vm.drawn_from is None:
        creation_succeeded(state, vm)
    vm.record = kept = keep(state, vm, record, previous)
    vm.metadata = kept.metadata or vm.metadata
    vm.image_id = kept.image_id or vm.image_id
    vm.rest()
    if previous != record:
        pool = state.pools[vm.pool]
        state.touch(pool)
        if pool.spec.warm:
            state.wake_short()  # it may be what other pools wait for


def _fold_power(vm: Vm, before: str, record: ServerRecord) -> None:
    """Who is behind the power state (R9): what we did not ask for, its user did."""
    if vm.state == before or vm.state not in (ACTIVE, SHUTOFF):
        return
    asked = vm.power_attempts > 0
    if not asked and before in (ACTIVE, SHUTOFF):
        vm.power_cause = BY_USER
    elif not asked:
        vm.power_cause = BY_UNKNOWN
    if record.task_state is None:
        vm.power_attempts = 0
        vm.power_after_ms = 0


def _fold_error(state: State, vm: Vm, record: ServerRecord) -> None:
    fault = (record.fault or "no fault text").strip()
    if vm.booting and vm.drawn_from is None:
        if is_quota_text(fault):
            pause_for_quota(state, vm.flavor_id, vm.key, fault)
            end_booting(state, vm)
        else:
            creation_failed(state, vm, f"ERROR: {fault}")


def vm_gone(state: State, vm: Vm, *, final: bool, why: str) -> None:
    """A VM is proven gone: end what hangs on it and forget it."""
    if vm.booting and vm.drawn_from is None:
        creation_failed(state, vm, why)
    state.end_claim(vm, f"its VM is gone: {why}")
    if vm.held is not None:
        state.anomaly("held_vm_gone", vm.key, f"held {vm.held.text}, and gone: {why}")
    _found_again(state, vm)
    state.drop_vm(vm, final=final)


def _found_again(state: State, vm: Vm) -> None:
    """A lost server is accounted for; with the last one the suspicion ends (R10)."""
    loss = state.loss
    if loss is not None and loss.lost.pop(vm.key, None) is not None and not loss.lost:
        state.loss = None
        for key in state.pools:
            state.wake(key)
