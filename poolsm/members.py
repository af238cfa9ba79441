"""What the core's state is made of: VMs, pools, requests, and what hangs on them.

Private and mutable; the fold alone changes them (see :mod:`poolsm.state`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from attrs import Factory, define, field, frozen

from poolsm.assignment import ASSIGNMENT_TABLE, OPEN_STATES, WAITING
from poolsm.commands import UserDataRef
from poolsm.pool import CLOSED, DRAINING, POOL_ACTIVE
from poolsm.records import ServerRecord
from poolsm.spec import PoolKey, PoolSpec, SecretRef
from poolsm.vm import NOT_CAPACITY

# who attributed a VM
BY_ASSIGNMENT = "assignment"  # we granted a request
BY_TRANSFER = "transfer"  # we drew it from a warm pool
BY_METADATA = "metadata"  # its metadata said so
BY_DECLARATION = "declaration"  # whoever kept it before us says so, its metadata does not
UNPROVEN = "unproven"  # its metadata does not say; until an operator releases it (R11)

# who is behind a power state (R9)
BY_SCHEDULE = "schedule"
BY_USER = "user"
BY_UNKNOWN = "unknown"


@frozen
class Anomaly:
    """A fact that did not fit: reported, never raised (C5)."""

    kind: str
    subject: str
    text: str


@frozen
class Moved:
    """A VM followed a row of its table."""

    vm: str
    name: str
    pool: PoolKey
    source: str
    trigger: str
    dest: str


@frozen
class Stop:
    """An operator's word that something is to be left as it is: a pause, or a hold."""

    why: str
    origin: str
    since_ms: int

    @property
    def text(self) -> str:
        """By whom, and why."""
        return f"by {self.origin}: {self.why}" if self.why else f"by {self.origin}"


@frozen
class Word:
    """What an operator last did to a pool, or to the fleet."""

    deed: str
    origin: str
    at_ms: int


@frozen(weakref_slot=False)
class Attribution:
    """Whose a VM is; no automatic rule but the schedule touches it then (R15)."""

    claimant: str
    by: str
    request_id: str = ""


@frozen
class DeclaredAttribution:
    """What was said of a server by whoever kept it before us; ``claimant`` empty when free."""

    attributed: bool
    claimant: str


@define
class Op:
    """A command on its way: issued, not yet ended.

    ``dispatched_ms`` is None until it was about to be sent; ``unknown`` once its answer
    turned out to prove nothing. ``fresh``: before it is sent, nothing of it is in the cloud (a
    claim that is repeated is not).
    """

    command_id: str
    kind: str
    pool: PoolKey
    vm: str
    planned_ms: int
    dispatched_ms: int | None = None
    unknown: bool = False
    fresh: bool = True
    text: str = ""  # of the answer that proved nothing


@define(weakref_slot=False)
class Work:
    """What is under way about a VM, what was tried, and when it may be tried again."""

    op: str = ""  # id of the command in flight
    booting: bool = False  # created or transferred by us, not yet ACTIVE or failed
    boot_deadline_ms: int = 0
    absences: int = 0  # complete listings in a row without it
    condemned: str = ""  # why it is to be deleted whatever its pool's size
    leaving: bool = False  # a deletion is decided: no capacity any more
    delete_after_ms: int = 0  # not deleted again before
    delete_attempts: int = 0
    power_after_ms: int = 0  # not stopped or started again before
    power_attempts: int = 0
    wanted: dict[str, str] = Factory(dict)  # metadata written but not yet observed
    wanted_name: str = ""
    drawn_from: PoolKey | None = None  # the warm pool, until the claim is observed
    tag_after_ms: int = 0
    proofs: int = 0  # lookups that answered 404 while it was missing
    proof_after_ms: int = 0
    held: Stop | None = None  # kept as it is, until an operator says otherwise


NO_WORK = Work()  # shared by all VMs at rest, which are most of them; never changed

T = TypeVar("T")


class OfWork(Generic[T]):
    """A field of a VM's work, as if it were the VM's own: work begins when one is set."""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, vm: Vm, _: type) -> T:
        value: T = getattr(vm.work, self._name)
        return value

    def __set__(self, vm: Vm, value: T) -> None:
        if vm.work is NO_WORK:
            if value == getattr(NO_WORK, self._name):
                return
            vm.work = Work()
        setattr(vm.work, self._name, value)


@define(weakref_slot=False)
class Vm:
    """One VM of ours. ``key`` is its create command's id, or the server id of an adopted one."""

    key: str
    pool: PoolKey
    state: str
    since_ms: int
    name: str
    server_id: str = ""
    record: ServerRecord | None = None  # the last one that may speak about it
    metadata: Mapping[str, str] = Factory(dict)  # the last known, when the record has none
    created: str = ""  # Nova's timestamp; orders VMs by age once known
    # what it was built from, known if we built it
    image_id: str = ""
    flavor_id: str = ""
    networks: tuple[str, ...] | None = None
    key_name: str | None = None
    user_data: UserDataRef | None = None
    last_answer_ms: int = 0  # start of the last call about it that was answered
    power_cause: str = BY_UNKNOWN
    attribution: Attribution | None = None
    work: Work = NO_WORK

    op = OfWork[str]()
    booting = OfWork[bool]()
    boot_deadline_ms = OfWork[int]()
    absences = OfWork[int]()
    condemned = OfWork[str]()
    leaving = OfWork[bool]()
    delete_after_ms = OfWork[int]()
    delete_attempts = OfWork[int]()
    power_after_ms = OfWork[int]()
    power_attempts = OfWork[int]()
    wanted = OfWork[dict[str, str]]()
    wanted_name = OfWork[str]()
    drawn_from = OfWork[PoolKey | None]()
    tag_after_ms = OfWork[int]()
    proofs = OfWork[int]()
    proof_after_ms = OfWork[int]()
    held = OfWork[Stop | None]()

    def rest(self) -> None:
        """Give up work of its own in which nothing is left to do."""
        if self.work == NO_WORK:
            self.work = NO_WORK

    @property
    def age_key(self) -> tuple[str, int, str]:
        """Orders VMs from oldest to newest, the same on every machine."""
        return (self.created or "~", self.since_ms, self.key)


@frozen
class Condition:
    """One thing to know about a pool or fleet: machine-readable reason, human message."""

    reason: str
    message: str
    since_ms: int


@define
class Pool:
    """One pool: its spec, what holds it back, and the indices over its members."""

    key: PoolKey
    spec: PoolSpec
    origin: str
    state: str = POOL_ACTIVE
    include_assigned: bool = False
    failures: int = 0  # ended failures since the last ACTIVE
    backoff_until_ms: int = 0
    breaker: str = CLOSED
    breaker_until_ms: int = 0
    invalid: str = ""  # why the spec can never succeed
    invalid_target: str = ""  # what it had resolved to
    image_retry: str = ""  # "", "asked" (FetchImage in flight), "done" (one more try)
    second_manager: str = ""
    conditions: dict[str, Condition] = Factory(dict)
    since: dict[str, tuple[str, int]] = Factory(dict)  # condition type -> status, since when
    troubled: bool = False  # one of these statuses is not as it should be
    paused: Stop | None = None
    last_word: Word | None = None
    day_wake_ms: int = 0  # when its change of day is next looked at
    # rebuilt from the VMs
    # state -> VM keys, if any; a dict of keys takes half the memory of a set
    members: dict[str, dict[str, None]] = field(factory=dict, eq=False)
    owned: int = field(default=0, eq=False)  # every server not proven gone, every one decided
    unfit: int = field(default=0, eq=False)  # of these ERROR, missing and deleting
    leaving: set[str] = field(factory=set, eq=False)
    flying: set[str] = field(factory=set, eq=False)  # VMs with a command in flight
    booting: set[str] = field(factory=set, eq=False)
    deleting_or_condemned: set[str] = field(factory=set, eq=False)
    tagging: set[str] = field(factory=set, eq=False)
    held: set[str] = field(factory=set, eq=False)
    signs: tuple[object, ...] = field(default=(), eq=False)  # see conditions.note_statuses
    absent: set[str] = field(factory=set, eq=False)  # the last listing lacks them
    disputed: dict[str, str] = field(factory=dict)  # VM key -> how its metadata differs
    blank: set[str] = field(factory=set)  # VM keys whose record carries no metadata
    freed: set[str] = field(factory=set)  # released VMs to be made free again

    @property
    def capacity(self) -> int:
        """Owned without ERROR, missing, deleting, and those whose deletion is decided."""
        return self.owned - self.unfit - len(self.leaving)

    @property
    def pending_jobs(self) -> int:
        """Creations and transfers not yet ACTIVE or failed (R2)."""
        return len(self.booting)

    def join(self, state: str, key: str) -> None:
        """A VM is in this state; it may be known already."""
        keys = self.members.get(state)
        if keys is None:
            keys = self.members[state] = {}
        if key not in keys:
            keys[key] = None
            self.owned += 1
            self.unfit += state in NOT_CAPACITY

    def part(self, state: str, key: str) -> None:
        """A VM is in this state no longer."""
        keys = self.members[state]
        del keys[key]
        if not keys:
            del self.members[state]
        self.owned -= 1
        self.unfit -= state in NOT_CAPACITY

    def condemns(self, vm: Vm) -> bool:
        """Whether the pool is draining and the VM goes with it (R12)."""
        return self.state == DRAINING and (vm.attribution is None or self.include_assigned)

    def count(self, state: str) -> int:
        """VMs in one state."""
        return len(self.members.get(state, ()))


@frozen
class Target:
    """Everything a create call needs, in the cloud's own ids."""

    image_id: str
    flavor_id: str
    networks: tuple[str, ...]
    key_name: str | None
    user_data: UserDataRef
    steps: str = ""
    ambiguous: str = ""

    @property
    def fingerprint(self) -> str:
        """What a refusal that can never succeed is remembered for."""
        data = self.user_data
        secrets = (ref.digest if ref else "" for ref in (data.config_data, data.admin_key))
        parts = (self.image_id, self.flavor_id, *self.networks, self.key_name or "", *secrets)
        return "|".join(parts)


@define
class Assignment:
    """One request for a VM, and its answer (R16)."""

    request_id: str
    pool: PoolKey
    claimant: str
    deadline_ms: int
    requested_ms: int
    state: str = WAITING
    vm: str = ""
    server_id: str = ""
    message: str = ""
    ended_ms: int = 0

    def move(self, trigger: str, message: str, now_ms: int) -> None:
        """Follow the table."""
        self.state = ASSIGNMENT_TABLE[self.state, trigger]
        self.message = message
        self.ended_ms = 0 if self.state in OPEN_STATES else now_ms


@define
class QuotaPause:
    """Creation with one flavor is paused at a quota; one probe per step (R6)."""

    until_ms: int
    step: int
    message: str
    probe: str = ""  # VM key of the probe


@define
class Loss:
    """Servers lost all at once: nothing is created or destroyed until it is understood (R10)."""

    since_ms: int
    lost: dict[str, int]  # VM key -> 404 answers
    witness: str = ""  # server id that answered 200 meanwhile
    witness_after_ms: int = 0


@frozen
class Config:
    """A named config: a user-data part."""

    user_id: str
    name: str
    data: SecretRef
    order: int
    origin: str = ""


@frozen
class Tombstone:
    """A VM that is gone. ``final`` when we deleted it or saw it DELETED (I5).

    ``deleted``: we had asked for its deletion, because it was ``condemned`` or surplus ("").
    ``attribution``: whose it was then. ``held``: who kept it, if it comes back.
    """

    server_id: str
    final: bool
    at_ms: int
    deleted: bool = False
    held: Stop | None = None
    condemned: str = ""
    attribution: Attribution | None = None


@define
class Watch:
    """What quiet events move, and nothing else moves silently (C9)."""

    now_ms: int = 0
    listing_started_ms: int = 0  # of the last complete listing
