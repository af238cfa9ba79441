"""The fold: events in, commands out.

    cloud, clock, people -> event -> Fleet.step -> Step(entries, commands) -> log -> cloud

One :class:`Fleet` is one OpenStack project. It holds no clock, no socket and no randomness:
the same events give the same commands on any machine (I8).
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from poolsm import halts, requests
from poolsm.calendar import ZoneRules
from poolsm.commands import Command, Reason, RebuildServer
from poolsm.conditions import FALSE, alarms, note_statuses
from poolsm.entries import Entry
from poolsm.errors import PoolsmError
from poolsm.events import (
    AssignmentRequested,
    AttributionDeclared,
    CallAnswered,
    ClockStepped,
    CommandsDispatched,
    ConfigDeclared,
    ConfigRemoved,
    Event,
    FlavorsListed,
    FleetPaused,
    FleetResumed,
    ImagesListed,
    ListingCompleted,
    ListingFailed,
    LogOpened,
    LossConfirmed,
    NetworksListed,
    PoolAcknowledged,
    PoolDeclared,
    PoolPaused,
    PoolRemovalRequested,
    PoolReset,
    PoolResumed,
    QuietPeriod,
    RebuildRequested,
    ReleaseRequested,
    RunnerStarted,
    RunnerStopped,
    ServerObserved,
    Ticked,
    VmHeld,
    VmUnheld,
    ZoneRulesLoaded,
)
from poolsm.images import resolve_image
from poolsm.issue import issue
from poolsm.listing import diff_listing
from poolsm.members import Anomaly, Moved, Vm
from poolsm.observe import expected_servers, fold_listing, fold_record, missed_servers
from poolsm.outcomes import begin_epoch, fold_answer, fold_dispatch
from poolsm.ownership import declare_attribution
from poolsm.plan import may_plan, plan
from poolsm.records import ServerRecord
from poolsm.snapshot import decode_state, encode_state
from poolsm.spec import PoolSpec
from poolsm.state import State
from poolsm.words import listing_is_fresh, pause_of


class MisuseError(PoolsmError):
    """The API was used out of order; the fold is as it was."""


@frozen
class Step:
    """What one event led to.

    Attributes:
        entries: to be appended to the log in one transaction before any command runs (C8);
            empty for a quiet event (C9).
        commands: what the event caused; the last entry's.
        anomalies: facts that did not fit (C5).
        moves: transitions of VMs.
    """

    entries: tuple[Entry, ...]
    commands: tuple[Command, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    moves: tuple[Moved, ...] = ()


@frozen
class _Quiet:
    """Events since the last stored one, all of which changed and caused nothing."""

    from_ms: int
    to_ms: int
    ticks: int = 0
    listings: int = 0
    listing_started_ms: int = 0


class Fleet:
    """All pools and VMs of one project, folded from its log."""

    def __init__(self, state: State | None = None) -> None:
        self._state = state or State()
        self._quiet: _Quiet | None = None

    @property
    def state(self) -> State:
        """The private state, for views, tests and explanations; to be read only."""
        return self._state

    @property
    def position(self) -> int:
        """Position of the last stored event."""
        return self._state.position

    def step(self, event: Event) -> Step:
        """Fold one event.

        Raises:
            MisuseError: a log does not begin with LogOpened, or has a second one.
        """
        state = self._state
        if isinstance(event, LogOpened) is bool(state.log_id):
            raise MisuseError(f"{type(event).__name__}: a log begins with LogOpened, exactly once")
        state.issued = 0
        state.anomalies, state.moves = [], []
        position = state.position + (2 if self._quiet else 1)
        if isinstance(event, ClockStepped):
            state.skew_ms += event.by_ms
        before_ms = state.watch.now_ms
        state.watch.now_ms = max(before_ms, event.at_ms - state.skew_ms)
        quiet = self._is_quiet(event)
        commands = () if quiet else tuple(self._fold(event, position))
        if quiet:
            self._note_quiet(event)
            return Step(())
        return self._store(event, position, commands)

    def _store(self, event: Event, position: int, commands: tuple[Command, ...]) -> Step:
        state, quiet = self._state, self._quiet
        entry = Entry(position, event, commands)
        entries: tuple[Entry, ...] = (entry,)
        if quiet is not None:
            summary = QuietPeriod(
                at_ms=quiet.to_ms,
                from_ms=quiet.from_ms,
                ticks=quiet.ticks,
                listings=quiet.listings,
                listing_started_ms=quiet.listing_started_ms,
            )
            entries = (Entry(position - 1, summary), entry)
            self._quiet = None
        state.position = position
        return Step(entries, commands, tuple(state.anomalies), tuple(state.moves))

    # --- quiet events (C9) -------------------------------------------------------------

    def _is_quiet(self, event: Event) -> bool:
        """Whether an event changes nothing but the watch, and causes nothing."""
        state = self._state
        match event:
            case Ticked():
                due = bool(state.heap) and state.heap[0][0] <= state.now_ms
                return not state.overdue() and not (
                    may_plan(state) and (state.dirty or state.touched or due)
                )
            case ListingCompleted():
                waited_for = state.adopting or state.guard_listings or state.loss is not None
                news = event.changed or event.absent or state.listing_error
                return not waited_for and not news and listing_is_fresh(state)
            case ListingFailed():
                return event.what != "servers" or state.listing_error == event.message
            case ImagesListed():
                known = event.project in state.images
                return known and not event.changed and not event.gone
            case FlavorsListed():
                return "flavors" in state.catalogs_listed and not event.changed and not event.gone
            case NetworksListed():
                return "networks" in state.catalogs_listed and not event.changed and not event.gone
            case _:
                return False

    def _note_quiet(self, event: Event) -> None:
        """Let a quiet event move the watch, and count it for the summary."""
        quiet = self._quiet or _Quiet(event.at_ms, event.at_ms)
        ticks, listings, started_ms = quiet.ticks, quiet.listings, quiet.listing_started_ms
        if isinstance(event, Ticked):
            ticks += 1
        elif isinstance(event, ListingCompleted):
            listings += 1
            started_ms = max(started_ms, event.started_ms)
            self._watch_listing(event.started_ms)
        self._quiet = _Quiet(quiet.from_ms, event.at_ms, ticks, listings, started_ms)

    def _watch_listing(self, started_ms: int) -> None:
        watch, started_ms = self._state.watch, started_ms - self._state.skew_ms
        if started_ms <= watch.now_ms:
            watch.listing_started_ms = max(watch.listing_started_ms, started_ms)

    # --- everything else ---------------------------------------------------------------

    def _fold(self, event: Event, position: int) -> Sequence[Command]:
        state = self._state
        match event:
            case Ticked():
                return self._tick(position)
            case ListingCompleted():
                # newer than what is known, or it is a late answer that proves nothing new;
                # begun after now: it was begun before the clock was set back
                started_ms = event.started_ms - state.skew_ms
                if state.watch.listing_started_ms <= started_ms <= state.now_ms:
                    stale, before = not listing_is_fresh(state), alarms(state)
                    self._watch_listing(event.started_ms)
                    fold_listing(state, event, started_ms)
                    if stale:  # while it was, nothing was planned, so nobody noted it
                        state.since["ListingStale"] = (FALSE, state.now_ms)
                    if alarms(state) != before:
                        note_statuses(state, ())
            case ServerObserved():
                started_ms = event.started_ms - state.skew_ms
                if started_ms <= state.now_ms:
                    fold_record(state, event.server, started_ms)
            case CallAnswered():
                fold_answer(state, event)
            case CommandsDispatched():
                fold_dispatch(state, event)
            case QuietPeriod():
                if event.listings:
                    self._watch_listing(event.listing_started_ms)
            case ListingFailed():
                state.listing_failed_ms = state.listing_failed_ms or state.now_ms
                state.listing_error = event.message
                note_statuses(state, ())
            case ImagesListed() | FlavorsListed() | NetworksListed():
                self._fold_catalog(event)
            case RebuildRequested():
                return self._rebuild(event, position)
            case _:
                self._fold_rest(event)
        return ()

    def _tick(self, position: int) -> Sequence[Command]:
        state = self._state
        requests.expire_assignments(state)
        if not may_plan(state):
            return ()
        state.due()
        return plan(state, position)

    def _fold_catalog(self, event: ImagesListed | FlavorsListed | NetworksListed) -> None:
        state = self._state
        state.targets.clear()
        match event:
            case ImagesListed():
                images = state.images.setdefault(event.project, {})
                images.update({image.image_id: image for image in event.changed})
                for key in event.gone:
                    images.pop(key, None)
            case FlavorsListed():
                state.catalogs_listed.add("flavors")
                state.flavors.update({flavor.flavor_id: flavor for flavor in event.changed})
                for key in event.gone:
                    state.flavors.pop(key, None)
            case NetworksListed():
                state.catalogs_listed.add("networks")
                state.networks.update({network.network_id: network for network in event.changed})
                for key in event.gone:
                    state.networks.pop(key, None)
        self._wake_all()

    def _rebuild(self, event: RebuildRequested, position: int) -> Sequence[Command]:
        """An operator's rebuild in place; the image is resolved like a pool's (R13)."""
        state = self._state
        vm = requests.find_vm(state, event.server_id)
        why = _no_rebuild(state, vm)
        if vm is None or why:
            state.anomaly("rebuild_refused", event.server_id, why)
            return ()
        spec = state.pools[vm.pool].spec
        asked = PoolSpec(spec.serverpool_id, spec.user_id, 0, 0, event.image_ref, spec.flavor_ref)
        found = resolve_image(asked, state)
        if found is None or not found.image_id:
            why = found.text if found else "the images are not listed yet"
            state.anomaly("rebuild_refused", event.server_id, why)
            return ()
        reason = Reason("rebuild", f"asked for by {event.origin}; image: {found.text}")
        draft = RebuildServer(
            server_id=vm.server_id,
            image_id=found.image_id,
            name=event.name or vm.name,
            reason=reason,
        )
        return (issue(state, draft, position),)

    def _fold_rest(self, event: Event) -> None:
        state = self._state
        match event:
            case LogOpened():
                state.log_id, state.fleet_id = event.log_id, event.fleet_id
            case RunnerStarted():
                state.epoch, state.settings = event.epoch, event.settings
                state.targets.clear()
                state.epoch_started_ms = state.now_ms
                state.adopting = True
                begin_epoch(state)
                note_statuses(state, ())
                self._new_days()
            case RunnerStopped():
                pass
            case ClockStepped():
                state.guard_listings = 2
                self._new_days()
            case ZoneRulesLoaded():
                rules = ZoneRules(event.zone, event.tzdata_version, event.offsets)
                state.zones[event.zone] = rules
                self._new_days()
            case PoolDeclared():
                requests.declare_pool(state, event)
            case PoolRemovalRequested():
                requests.remove_pool(state, event)
            case PoolReset():
                requests.reset(state, event)
            case PoolAcknowledged():
                requests.acknowledge(state, event)
            case LossConfirmed():
                requests.confirm_loss(state, event)
            case PoolPaused() | PoolResumed() | FleetPaused() | FleetResumed():
                halts.pause(state, event)
            case VmHeld():
                halts.hold_vm(state, event)
            case VmUnheld():
                halts.unhold_vm(state, event)
            case ConfigDeclared():
                requests.declare_config(state, event)
            case ConfigRemoved():
                requests.remove_config(state, event)
            case AssignmentRequested():
                requests.request_assignment(state, event)
            case AttributionDeclared():
                declare_attribution(state, event)
            case ReleaseRequested():
                requests.release(state, event)
            case _:
                raise MisuseError(f"{type(event).__name__} is no event that the fold knows")

    def _new_days(self) -> None:
        """Every pool's day may be another one, and change at another instant."""
        for pool in self._state.pools.values():
            pool.day_wake_ms = 0
        self._wake_all()

    def _wake_all(self) -> None:
        for key in self._state.pools:
            self._state.wake(key)

    # --- for runners -------------------------------------------------------------------

    def diff(
        self, records: Sequence[ServerRecord], *, started_ms: int, at_ms: int
    ) -> ListingCompleted | ListingFailed:
        """A complete listing as the event that says what is new in it."""
        return diff_listing(
            records,
            expected_servers(self._state),
            missed_servers(self._state),
            started_ms=started_ms,
            at_ms=at_ms,
        )

    def stands(self, command_id: str) -> bool:
        """Whether a command is still to be sent: ask right before recording its dispatch.

        A pause or a hold ends what was decided and not sent; so does the end of its VM.
        """
        op = self._state.ops.get(command_id)
        return op is not None and op.dispatched_ms is None

    def snapshot(self) -> bytes | None:
        """The state for a log snapshot; None while quiet events wait for their summary."""
        return None if self._quiet else encode_state(self._state)

    @classmethod
    def restore(cls, data: bytes) -> Fleet:
        """A fold that goes on from a snapshot."""
        return cls(decode_state(data))


def _no_rebuild(state: State, vm: Vm | None) -> str:
    """Why a VM is not rebuilt now; empty if it is."""
    if vm is None:
        return "no VM is known by that"
    if vm.op or not vm.server_id:
        return "another command is in flight"
    stop = vm.held or pause_of(state.pools[vm.pool], state)
    return f"it is left as it is, {stop.text}" if stop else ""
