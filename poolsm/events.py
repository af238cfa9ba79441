"""Events: observed facts, and the only inputs of the core (C2).

``at_ms`` is the runner's clock in integer milliseconds since 1970-01-01 UTC. It is the only
time there is. Times named ``started_ms`` are when the runner sent the request that the event
answers: an answer describes the cloud no earlier than that.
"""

from __future__ import annotations

from attrs import frozen

from poolsm.records import FlavorRecord, ImageRecord, NetworkRecord, ServerRecord
from poolsm.spec import PoolKey, PoolSpec, RunnerSettings, SecretRef


@frozen(kw_only=True)
class Event:
    """What all events have."""

    at_ms: int


# --- the log and its runners ---------------------------------------------------------------


@frozen(kw_only=True)
class LogOpened(Event):
    """A log was made: always its first event. ``log_id`` is a random UUID."""

    log_id: str
    fleet_id: str = ""


@frozen(kw_only=True)
class RunnerStarted(Event):
    """A runner took the log over. ``epoch`` is a random UUID (C3)."""

    epoch: str
    version: str
    settings: RunnerSettings


@frozen(kw_only=True)
class RunnerStopped(Event):
    """A runner ended cleanly: whatever it had dispatched, it heard the answer of."""

    why: str


@frozen(kw_only=True)
class Ticked(Event):
    """The runner's clock reached the next tick: time to plan."""


@frozen(kw_only=True)
class QuietPeriod(Event):
    """Stands for ticks and complete listings that changed and caused nothing (C9).

    Attributes:
        from_ms: time of the first of them; ``at_ms`` is the time of the last.
        ticks: how many ticks.
        listings: how many complete listings.
        listing_started_ms: start of the last of these listings; 0 when there was none.
    """

    from_ms: int
    ticks: int
    listings: int
    listing_started_ms: int


@frozen(kw_only=True)
class ClockStepped(Event):
    """The wall clock moved by ``by_ms`` against the monotonic one; ``at_ms`` is after it (C12)."""

    by_ms: int


@frozen(kw_only=True)
class ZoneRulesLoaded(Event):
    """UTC offsets of one time zone over the coming years; see :mod:`poolsm.calendar`."""

    zone: str
    tzdata_version: str
    offsets: tuple[tuple[int, int], ...]


# --- observations of the cloud -------------------------------------------------------------


@frozen(kw_only=True)
class ListingCompleted(Event):
    """A complete listing of the project's servers, as a difference (R10).

    Attributes:
        total: servers in the listing, ours and others'.
        changed: records of ours that are new or differ from the last one known.
        absent: ids that were expected and are not in the listing.
    """

    started_ms: int
    total: int
    changed: tuple[ServerRecord, ...] = ()
    absent: tuple[str, ...] = ()


@frozen(kw_only=True)
class ListingFailed(Event):
    """A listing did not complete; it proves nothing. ``what`` is servers, images ..."""

    started_ms: int
    what: str
    message: str
    http_status: int | None = None
    transport_error: str | None = None


@frozen(kw_only=True)
class ServerObserved(Event):
    """One server was read outside a listing (an embedding service's own knowledge)."""

    started_ms: int
    server: ServerRecord


@frozen(kw_only=True)
class ImagesListed(Event):
    """A complete image listing of one project (``vm`` or ``infra``), as a difference."""

    project: str
    started_ms: int
    total: int
    changed: tuple[ImageRecord, ...] = ()
    gone: tuple[str, ...] = ()


@frozen(kw_only=True)
class FlavorsListed(Event):
    """A complete listing of the flavors, as a difference."""

    started_ms: int
    total: int
    changed: tuple[FlavorRecord, ...] = ()
    gone: tuple[str, ...] = ()


@frozen(kw_only=True)
class NetworksListed(Event):
    """A complete listing of the networks, as a difference."""

    started_ms: int
    total: int
    changed: tuple[NetworkRecord, ...] = ()
    gone: tuple[str, ...] = ()


# --- commands on their way -----------------------------------------------------------------


@frozen(kw_only=True)
class CommandsDispatched(Event):
    """These commands are about to be sent; durable before the first byte leaves (C8)."""

    command_ids: tuple[str, ...]


@frozen(kw_only=True)
class CallAnswered(Event):
    """The outcome of a command's call: what the cloud said, or why nothing is known (C4).

    Attributes:
        started_ms: when the call was sent.
        http_status: of the answer that ended the command; None when there was none.
        transport_error: ``timeout``, ``connection`` ... when there was no whole answer.
        error_kind: the key of Nova's error body (``badRequest``, ``forbidden`` ...); empty
            when the body was not Nova's, which a proxy's never is.
        message: the cloud's text.
        retry_after_s: of the Retry-After header.
        server_id: of the server that a create made.
        server: the record, when the command read one.
        unmet: how the server differed from the command's expectation; nothing was done.
    """

    command_id: str
    started_ms: int
    http_status: int | None = None
    transport_error: str | None = None
    error_kind: str = ""
    message: str = ""
    retry_after_s: int | None = None
    server_id: str | None = None
    server: ServerRecord | None = None
    unmet: str = ""


# --- what people and services ask for; ``origin`` is file, command line or call -------------


@frozen(kw_only=True)
class PoolDeclared(Event):
    """A pool is to be as this spec says: new, or changed."""

    spec: PoolSpec
    origin: str


@frozen(kw_only=True)
class PoolRemovalRequested(Event):
    """A pool is to be drained and forgotten (R12)."""

    pool: PoolKey
    include_assigned: bool
    origin: str


@frozen(kw_only=True)
class PoolReset(Event):
    """An operator asks the pool to try again now: breaker, backoff, invalid spec (R6)."""

    pool: PoolKey
    origin: str


@frozen(kw_only=True)
class PoolAcknowledged(Event):
    """An operator has seen to the second manager or the disputed servers of a pool (R11)."""

    pool: PoolKey
    origin: str


@frozen(kw_only=True)
class PoolPaused(Event):
    """An operator wants nothing done to a pool by itself, until it is resumed."""

    pool: PoolKey
    why: str
    origin: str


@frozen(kw_only=True)
class PoolResumed(Event):
    """The rules apply to a paused pool again."""

    pool: PoolKey
    origin: str


@frozen(kw_only=True)
class FleetPaused(Event):
    """An operator wants nothing done to any pool by itself, until the fleet is resumed."""

    why: str
    origin: str


@frozen(kw_only=True)
class FleetResumed(Event):
    """The rules apply again; pools that were paused by themselves stay so."""

    origin: str


@frozen(kw_only=True)
class VmHeld(Event):
    """A VM is kept as it is, for somebody to look at. ``target`` is a server id, name or key."""

    target: str
    why: str
    origin: str


@frozen(kw_only=True)
class VmUnheld(Event):
    """The rules apply to a held VM again."""

    target: str
    origin: str


@frozen(kw_only=True)
class LossConfirmed(Event):
    """An operator confirms that the servers lost all at once are gone (R10)."""

    origin: str


@frozen(kw_only=True)
class ConfigDeclared(Event):
    """A named config: a user-data part that pools refer to by ``config_id`` (R14)."""

    user_id: str
    name: str
    data: SecretRef
    origin: str


@frozen(kw_only=True)
class ConfigRemoved(Event):
    """A named config is gone."""

    user_id: str
    name: str
    origin: str


@frozen(kw_only=True)
class AssignmentRequested(Event):
    """Somebody asks for a VM of a pool until ``deadline_ms`` (R16)."""

    request_id: str
    pool: PoolKey
    claimant: str
    deadline_ms: int
    origin: str


@frozen(kw_only=True)
class AttributionDeclared(Event):
    """Somebody who kept the servers before us says whose one of them is, or that it is free (R11).

    Known before the server is seen, or after. ``attributed`` holds whatever its metadata says;
    ``not attributed`` only where its metadata says nothing. ``claimant`` is empty when free.
    """

    server_id: str
    attributed: bool
    claimant: str
    origin: str


@frozen(kw_only=True)
class ReleaseRequested(Event):
    """The VM of this server id or request id is given back (R16)."""

    target: str
    origin: str


@frozen(kw_only=True)
class RebuildRequested(Event):
    """One server is to be rebuilt from ``image_ref`` (resolved as R13), under ``name``."""

    server_id: str
    image_ref: str
    name: str
    origin: str


EVENT_TYPES: tuple[type[Event], ...] = (
    LogOpened,
    RunnerStarted,
    RunnerStopped,
    Ticked,
    QuietPeriod,
    ClockStepped,
    ZoneRulesLoaded,
    ListingCompleted,
    ListingFailed,
    ServerObserved,
    ImagesListed,
    FlavorsListed,
    NetworksListed,
    CommandsDispatched,
    CallAnswered,
    PoolDeclared,
    PoolRemovalRequested,
    PoolReset,
    PoolAcknowledged,
    PoolPaused,
    PoolResumed,
    FleetPaused,
    FleetResumed,
    VmHeld,
    VmUnheld,
    LossConfirmed,
    ConfigDeclared,
    ConfigRemoved,
    AssignmentRequested,
    AttributionDeclared,
    ReleaseRequested,
    RebuildRequested,
)
