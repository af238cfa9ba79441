"""What is told about a fleet, as frozen values; :mod:`poolsm.views` makes them.

They hold no reference into the fold, whose own state is private and changes under its
readers. Times are wall-clock milliseconds, UTC; None stands for "never" or "not known".
"""

from __future__ import annotations

from attrs import frozen

from poolsm.spec import PoolKey


@frozen
class ConditionView:
    """One thing to know, in the manner of Kubernetes; see :mod:`poolsm.conditions`.

    Attributes:
        type: what it is about.
        status: ``True``, ``False`` or ``Unknown``.
        reason: machine-readable; ``Clear`` where all is well.
        message: for people.
        since_ms: since when it has this status; None until the next planning round says so.
    """

    type: str
    status: str
    reason: str
    message: str
    since_ms: int | None = None


@frozen
class PoolStanding:
    """A pool's numbers at one moment; made from counters, whatever the pool's size."""

    key: PoolKey
    state: str
    min_vm: int
    max_vm: int
    owned: int
    capacity: int
    by_state: dict[str, int]
    pending_jobs: int

    def __str__(self) -> str:
        """One line for an operator."""
        ceiling = f"max {self.max_vm}" if self.max_vm else "no max"
        states = ", ".join(f"{count} {state}" for state, count in self.by_state.items())
        return (
            f"pool {self.key}: capacity {self.capacity} of min {self.min_vm}, "
            f"owned {self.owned}, {ceiling} ({states or 'no VMs'})"
        )


@frozen
class WordView:
    """What an operator last did to a pool, or to the fleet: ``deed`` as in "reset", by whom."""

    deed: str
    origin: str
    at_ms: int | None


@frozen
class PoolView:
    """One pool: what it should be, what it is, and why it is not more.

    Attributes:
        ready: VMs that a request would get at once.
        attributed: VMs that are somebody's.
        in_flight: VMs with a command on its way.
        pending_jobs: creations and transfers not yet ACTIVE or failed.
        requests_waiting: open requests without a VM.
        reason: machine-readable: why it is at ``capacity`` of ``min_vm``.
        off_day: whether today is one of its off-days; None: its zone's rules are not loaded.
        image_id: what ``image_ref`` means now; empty while it means nothing.
        image_steps: how it was resolved, or what was tried.
        paused: who paused it, or the whole fleet, and why; empty if nobody did.
        last_word: what an operator last did to it; None: nothing yet.
        image_ambiguous: which other images have the name; empty when there is one.
    """

    key: PoolKey
    origin: str
    state: str
    warm: bool
    min_vm: int
    max_vm: int
    owned: int
    capacity: int
    ready: int
    attributed: int
    in_flight: int
    pending_jobs: int
    requests_waiting: int
    by_state: dict[str, int]
    reason: str
    message: str
    conditions: tuple[ConditionView, ...]
    off_day: bool | None
    off_days: tuple[str, ...]
    time_zone: str
    flavor_ref: str
    image_ref: str
    image_id: str
    image_steps: tuple[str, ...]
    image_ambiguous: str
    failures: int
    breaker: str
    breaker_until_ms: int | None
    backoff_until_ms: int | None
    paused: str
    last_word: WordView | None


@frozen
class OpView:
    """A command on its way; ``unknown`` when its answer was lost."""

    command_id: str
    kind: str
    planned_ms: int | None
    dispatched_ms: int | None
    unknown: bool


@frozen
class VmView:
    """One VM of ours.

    Attributes:
        key: id of the command that created it; its server id if it was adopted.
        claimant: whose it is; ``attributed_by`` is assignment, transfer, metadata or unproven.
        power_cause: who is behind its power state: schedule, user or unknown.
        condemned: why it is to be deleted whatever its pool's size.
        leaving: its deletion is decided; it counts for nothing any more.
        absences: complete listings in a row without it.
        held: who keeps it as it is, and why; empty if nobody does.
        disputed: how its metadata differs from what we hold.
        since_ms: when it was decided or adopted; ``created_ms`` is the cloud's own time.
    """

    key: str
    name: str
    server_id: str
    pool: PoolKey
    state: str
    task_state: str | None
    addresses: tuple[str, ...]
    ready: bool
    attributed: bool
    claimant: str
    attributed_by: str
    request_id: str
    power_cause: str
    op: OpView | None
    condemned: str
    leaving: bool
    absences: int
    disputed: str
    fault: str
    image_id: str
    flavor_id: str
    created_ms: int | None
    since_ms: int | None
    age_ms: int
    boot_deadline_ms: int | None
    held: str


@frozen
class AssignmentView:
    """One request for a VM, and its answer."""

    request_id: str
    pool: PoolKey
    claimant: str
    state: str
    message: str
    vm: str
    name: str
    server_id: str
    addresses: tuple[str, ...]
    requested_ms: int | None
    deadline_ms: int | None
    ended_ms: int | None


@frozen
class StrayView:
    """A server with pool tags of no declared pool, or one whose tags cannot be read."""

    server_id: str
    name: str
    status: str
    pool: PoolKey | None
    ours: bool


@frozen
class FleetView:
    """The fleet as a whole; its VMs are given by :func:`vm_views`.

    Attributes:
        now_ms: time of the last event.
        position: of the last stored event.
        creations: servers on their way to ACTIVE, of ``creations_limit`` in the project.
        in_flight: commands without an answer yet.
        paused: who paused all of it, and why; empty if nobody did.
        last_word: what an operator last did to all of it; None: nothing yet.
    """

    fleet_id: str
    log_id: str
    epoch: str
    position: int
    now_ms: int
    listing_started_ms: int | None
    listing_age_ms: int | None
    conditions: tuple[ConditionView, ...]
    owned: int
    capacity: int
    creations: int
    creations_limit: int
    in_flight: tuple[OpView, ...]
    pools: tuple[PoolView, ...]
    assignments: tuple[AssignmentView, ...]
    strays: tuple[StrayView, ...]
    paused: str
    last_word: WordView | None
