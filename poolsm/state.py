"""The core's private, mutable state: what the log has told us so far.

Everything here is plain data (a log snapshot is its JSON) plus indices that are rebuilt from
it. Whoever changes a VM's or a pool's standing does it through the few methods at the end,
which keep the indices and counters right: cost then follows change, not size (C7).

Times are *fleet time*: the runner's clock less all recorded clock steps, so that a step
moves every deadline along (C12). :attr:`State.skew_ms` leads back to the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heappop, heappush
from operator import attrgetter

from attrs import Factory, define, field

from poolsm.assignment import CLAIMING, GRANTED, OPEN_STATES, WAITING
from poolsm.calendar import ZoneRules
from poolsm.members import (
    Anomaly,
    Assignment,
    Condition,
    Config,
    DeclaredAttribution,
    Loss,
    Moved,
    Op,
    Pool,
    QuotaPause,
    Stop,
    Target,
    Tombstone,
    Vm,
    Watch,
    Word,
)
from poolsm.pool import CLOSED, DRAINING, POOL_ACTIVE
from poolsm.records import FlavorRecord, ImageRecord, NetworkRecord, ServerRecord
from poolsm.spec import PoolKey, PoolSpec, RunnerSettings
from poolsm.vm import ACTIVE, BUILD, DELETING, NOT_CAPACITY, PENDING, TABLE

STATE_VERSION = 6  # of log snapshots; one of another version is not used

ALL_SHORT = PoolKey("", "")  # in the heap: every pool that waits for room


@define
class State:
    """The whole fold."""

    log_id: str = ""
    fleet_id: str = ""
    epoch: str = ""
    position: int = 0
    issued: int = 0  # commands of the event being handled
    skew_ms: int = 0
    settings: RunnerSettings = Factory(RunnerSettings)
    watch: Watch = Factory(Watch)
    epoch_started_ms: int = 0
    adopting: bool = True  # until the first complete listing of this epoch (R11)
    guard_listings: int = 0  # fresh complete listings to wait for after a clock step
    listing_error: str = ""
    listing_failed_ms: int = 0  # since when listings fail
    paused: Stop | None = None  # the whole fleet
    last_word: Word | None = None  # about the whole fleet
    since: dict[str, tuple[str, int]] = Factory(dict)  # condition type -> status, since when
    zones: dict[str, ZoneRules] = Factory(dict)
    images: dict[str, dict[str, ImageRecord]] = Factory(dict)  # by project
    images_started_ms: dict[str, int] = Factory(dict)
    flavors: dict[str, FlavorRecord] = Factory(dict)
    networks: dict[str, NetworkRecord] = Factory(dict)
    catalogs_listed: set[str] = Factory(set)
    configs: dict[str, Config] = Factory(dict)
    config_order: int = 0
    pools: dict[PoolKey, Pool] = Factory(dict)
    vms: dict[str, Vm] = Factory(dict)
    ops: dict[str, Op] = Factory(dict)
    strays: dict[str, ServerRecord] = Factory(dict)  # servers tagged for undeclared pools
    unreadable: dict[str, ServerRecord] = Factory(dict)  # records that may be ours or not
    declared: dict[str, DeclaredAttribution] = Factory(dict)  # by server id
    tombstones: dict[str, Tombstone] = Factory(dict)
    removed: dict[PoolKey, PoolSpec] = Factory(dict)
    assignments: dict[str, Assignment] = Factory(dict)
    forget_answers_ms: int = 0  # when old answers are looked for again
    quotas: dict[str, QuotaPause] = Factory(dict)  # by flavor id
    creation_pause_until_ms: int = 0  # the project's Retry-After
    creation_pause_text: str = ""
    rotation: PoolKey | None = None  # the pool served last (fairness)
    loss: Loss | None = None
    vouched: dict[str, int] = Factory(dict)  # VM keys that lookups show, listings not; until when
    dirty: set[PoolKey] = Factory(set)  # pools that the rules are to look at
    touched: bool = False  # a record changed, of a pool at rest
    short: set[PoolKey] = Factory(set)  # pools below what they want
    heap: list[tuple[int, PoolKey]] = Factory(list)  # when to look at which pool again
    # rebuilt
    words: dict[str, str] = field(factory=dict, eq=False)  # of records, each kept once
    commons: dict[tuple[tuple[str, str], ...], dict[str, str]] = field(factory=dict, eq=False)
    targets: dict[PoolKey, tuple[PoolSpec, Target]] = field(factory=dict, eq=False)
    warm: list[PoolKey] = field(factory=list, eq=False)  # the warm pools, in order
    by_server: dict[str, str] = field(factory=dict, eq=False)
    by_name: dict[str, str] = field(factory=dict, eq=False)  # of VMs not yet seen
    creations: set[str] = field(factory=set, eq=False)  # VM keys of creations under way
    waiting: set[str] = field(factory=set, eq=False)  # open request ids
    asked_of: dict[PoolKey, set[str]] = field(factory=dict, eq=False)  # the same, by pool
    deadlines: list[tuple[int, str]] = field(factory=list, eq=False)  # of these, as a heap
    anomalies: list[Anomaly] = field(factory=list, eq=False)  # of the event being handled
    moves: list[Moved] = field(factory=list, eq=False)  # of the event being handled

    @property
    def now_ms(self) -> int:
        """Fleet time of the event being handled."""
        return self.watch.now_ms

    def pool_vms(
        self, pool: Pool, *states: str, only: Callable[[Vm], bool] | None = None
    ) -> list[Vm]:
        """A pool's VMs in the given states, oldest first; of these ``only`` some."""
        vms, members = self.vms, pool.members
        found = [vms[key] for state in states for key in members.get(state, ())]
        if only is not None:
            found = [vm for vm in found if only(vm)]
        found.sort(key=_age)
        return found

    def all_vms(self, pool: Pool) -> list[Vm]:
        """All of a pool's VMs, oldest first."""
        return self.pool_vms(pool, *sorted(pool.members))

    def named(self, keys: Collection[str]) -> list[Vm]:
        """VMs of one of a pool's indices, oldest first."""
        return sorted([self.vms[key] for key in keys], key=_age) if keys else []

    def note(self, pool: Pool, kind: str, reason: str, message: str) -> None:
        """Set a pool's condition; ``since_ms`` stays while its reason stays."""
        old = pool.conditions.get(kind)
        if old is None or old.reason != reason:
            pool.conditions[kind] = Condition(reason, message, self.now_ms)
        elif old.message != message:
            pool.conditions[kind] = Condition(reason, message, old.since_ms)

    def end_claim(self, vm: Vm, why: str) -> None:
        """The VM of an assignment is lost: its request waits for another, or ends as lost."""
        assignment = self.assignments.get(vm.attribution.request_id if vm.attribution else "")
        if assignment is None or assignment.vm != vm.key:
            return
        if assignment.state == CLAIMING:
            assignment.move("give_up", why, self.now_ms)
            assignment.vm = assignment.server_id = ""
            pool = self.pools.get(assignment.pool)
            if pool is None or pool.state == DRAINING:
                assignment.move("refuse", f"pool {assignment.pool} is removed", self.now_ms)
                self.close_request(assignment)
            else:
                heappush(self.deadlines, (assignment.deadline_ms, assignment.request_id))
            self.wake(assignment.pool)
        elif assignment.state == GRANTED:
            assignment.move("lose", why, self.now_ms)

    def revive_removed(self, key: PoolKey) -> None:
        """A server of a pool that was removed turned up late: drain the pool once more."""
        spec = self.removed.pop(key)
        self.pools[key] = Pool(key, spec, "revived for a late server", DRAINING)
        self.note_warm()
        self.anomaly("late_server", str(key), "a server of a removed pool turned up; draining")

    def note_warm(self) -> None:
        """Pools came, went or changed."""
        self.warm = sorted(key for key, pool in self.pools.items() if pool.spec.warm)

    def open_request(self, assignment: Assignment) -> None:
        """A request waits, or is being served."""
        self.waiting.add(assignment.request_id)
        self.asked_of.setdefault(assignment.pool, set()).add(assignment.request_id)
        heappush(self.deadlines, (assignment.deadline_ms, assignment.request_id))

    def close_request(self, assignment: Assignment) -> None:
        """A request has its answer."""
        self.waiting.discard(assignment.request_id)
        keys = self.asked_of.get(assignment.pool, set())
        keys.discard(assignment.request_id)
        if not keys:
            self.asked_of.pop(assignment.pool, None)

    def overdue(self) -> bool:
        """Whether a request that waits has passed its deadline."""
        heap = self.deadlines
        while heap and heap[0][0] <= self.now_ms:
            assignment = self.assignments.get(heap[0][1])
            if assignment is not None and assignment.state == WAITING:
                return True
            heappop(heap)
        return False

    def anomaly(self, kind: str, subject: str, text: str) -> None:
        """Report a fact that does not fit."""
        self.anomalies.append(Anomaly(kind, subject, text))

    # --- the only ways to change a VM's or pool's standing ---------------------------------

    def wake(self, key: PoolKey) -> None:
        """Have the rules look at a pool at the next tick."""
        if key in self.pools:
            self.dirty.add(key)

    def touch(self, pool: Pool) -> None:
        """A record changed in a way that only a pool that is not at rest can be after."""
        if pool.key in self.dirty:
            return
        if self.at_rest(pool):
            self.touched = True
        else:
            self.dirty.add(pool.key)

    def at_rest(self, pool: Pool) -> bool:
        """Whether no rule has anything to decide about a pool, or to note.

        An ordinary pool without off-days, all of whose VMs are ACTIVE, between its limits, with
        nothing to be seen to and nobody waiting; and the last planning said so.
        """
        spec, owned = pool.spec, pool.owned
        if not spec.min_vm <= owned <= (spec.max_vm or owned) or pool.key in self.asked_of:
            return False
        if len(pool.members.get(ACTIVE, ())) != owned or spec.warm or spec.off_days:
            return False
        if pool.deleting_or_condemned or pool.leaving or pool.booting or pool.tagging or pool.freed:
            return False
        if pool.state != POOL_ACTIVE or pool.breaker != CLOSED or "DeleteStuck" in pool.conditions:
            return False
        if pool.absent or pool.held or pool.paused is not None or self.paused is not None:
            return False
        if pool.troubled or pool.blank or pool.disputed or pool.second_manager or self.loss:
            return False
        planned = pool.conditions.get("Provisioned")
        return planned is not None and planned.message == f"{owned} of {spec.min_vm}"

    def wake_short(self) -> None:
        """Something that pools may be waiting for has changed for all of them."""
        self.dirty |= self.awaiting_room()

    def awaiting_room(self) -> set[PoolKey]:
        """The pools below what they want, and the warm ones: a refresh waits for room, too."""
        return self.short.union(self.warm)

    def wake_at(self, key: PoolKey, at_ms: int) -> None:
        """Have the rules look at a pool (or all short ones) at this instant, too.

        Whoever sets an instant that a rule compares with the time calls this beside it.
        """
        heappush(self.heap, (at_ms, key))

    def due_by(self, at_ms: int) -> set[PoolKey]:
        """Whose instants will have come by then."""
        found: set[PoolKey] = set()
        heap, places = self.heap, [0]
        while places:
            place = places.pop()
            if place < len(heap) and heap[place][0] <= at_ms:
                found.add(heap[place][1])
                places += (2 * place + 1, 2 * place + 2)
        return found

    def due(self) -> None:
        """Wake the pools whose instants have come."""
        while self.heap and self.heap[0][0] <= self.now_ms:
            key = heappop(self.heap)[1]
            if key == ALL_SHORT:
                self.wake_short()
            else:
                self.wake(key)

    def enlist(self, vm: Vm) -> None:
        """Take a new VM into its pool and all indices."""
        self.vms[vm.key] = vm
        if vm.server_id:
            self.by_server[vm.server_id] = vm.key
        else:
            self.by_name[vm.name] = vm.key
        self.index(vm)

    def index(self, vm: Vm) -> None:
        """Bring a VM's entries in its pool's indices up to date, and wake the pool."""
        pool, key, state, work = self.pools[vm.pool], vm.key, vm.state, vm.work
        pool.join(state, key)
        mark(pool.leaving, key, work.leaving and state not in NOT_CAPACITY)
        mark(pool.flying, key, work.op)
        mark(pool.booting, key, work.booting)
        mark(pool.deleting_or_condemned, key, work.condemned or state == DELETING)
        mark(pool.tagging, key, work.wanted or work.wanted_name)
        mark(pool.held, key, work.held)
        mark(pool.absent, key, work.absences)
        unborn = work.booting and work.drawn_from is None and state in _UNBORN
        mark(self.creations, key, unborn)
        self.dirty.add(pool.key)

    def unindex(self, vm: Vm) -> None:
        """Take a VM out of its pool's indices, before it moves or goes."""
        pool = self.pools[vm.pool]
        pool.part(vm.state, vm.key)
        for keys in (
            pool.leaving,
            pool.flying,
            pool.booting,
            pool.deleting_or_condemned,
            pool.tagging,
            pool.held,
            pool.absent,
            pool.blank,
            pool.freed,
            self.creations,
        ):
            mark(keys, vm.key, holds=False)
        pool.disputed.pop(vm.key, None)
        self.wake(vm.pool)

    def give_to(self, vm: Vm, key: PoolKey) -> None:
        """Put a VM into another pool, which then has to look at it when its instants come."""
        self.unindex(vm)
        vm.pool = key
        for at_ms in (
            vm.boot_deadline_ms,
            vm.delete_after_ms,
            vm.power_after_ms,
            vm.tag_after_ms,
            vm.proof_after_ms,
        ):
            if at_ms > self.now_ms:
                self.wake_at(key, at_ms)
        self.index(vm)

    def move_vm(self, vm: Vm, trigger: str) -> str | None:
        """Follow the VM table; the new state, or None where the table has no row."""
        dest = TABLE.get((vm.state, trigger))
        if dest is not None and dest != vm.state:
            self.moves.append(Moved(vm.key, vm.name, vm.pool, vm.state, trigger, dest))
            self.pools[vm.pool].part(vm.state, vm.key)
            vm.state = dest
            self.index(vm)
        return dest

    def drop_vm(self, vm: Vm, *, final: bool) -> None:
        """Forget a VM that is proven gone, keeping its id as a tombstone."""
        self.unindex(vm)
        del self.vms[vm.key]
        self.vouched.pop(vm.key, None)
        self.by_server.pop(vm.server_id, None)
        if final:  # else it may come back, and is still whose it was
            self.declared.pop(vm.server_id, None)
        self.by_name.pop(vm.name, None)
        if vm.server_id:
            self.bury(vm, final=final)

    def bury(self, vm: Vm, *, final: bool) -> None:
        """Keep a tombstone for a day, or while it is shown: no listing is stale for longer."""
        horizon = self.now_ms - _TOMBSTONE_MS
        old: list[str] = []
        for tombstone in self.tombstones.values():  # the oldest first
            if tombstone.at_ms >= horizon:
                break
            if tombstone.server_id not in self.strays:
                old.append(tombstone.server_id)
        for server_id in (*old, vm.server_id):
            self.tombstones.pop(server_id, None)
        self.tombstones[vm.server_id] = Tombstone(
            vm.server_id,
            final,
            self.now_ms,
            deleted=vm.delete_attempts > 0,
            held=vm.held,
            condemned=vm.condemned,
            attribution=vm.attribution,
        )

    def rebuild_indices(self) -> None:
        """After a snapshot was loaded."""
        self.note_warm()
        dirty = set(self.dirty)
        for vm in self.vms.values():
            self.enlist(vm)
        self.dirty = dirty
        for assignment in self.assignments.values():
            if assignment.state in OPEN_STATES:
                self.open_request(assignment)


def mark(keys: set[str], key: str, holds: object) -> None:
    """Have an index hold a key, or not."""
    if holds:
        keys.add(key)
    elif keys:
        keys.discard(key)
        if not keys:
            keys.clear()  # an emptied table keeps the size that it grew to


_age = attrgetter("age_key")
_UNBORN = (PENDING, BUILD)
_TOMBSTONE_MS = 86_400_000
