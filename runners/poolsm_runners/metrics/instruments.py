"""Counters and histograms: what is counted as it happens.

A watcher of the engine, and a clock at its two steps; each adds a few numbers in memory. The
registry belongs to one run, so two runs in one process share nothing.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from poolsm import Step
from poolsm.answers import classify
from poolsm.assignment import OPEN_STATES
from poolsm.commands import COMMAND_TYPES
from poolsm.events import (
    AssignmentRequested,
    CallAnswered,
    CommandsDispatched,
    Event,
    FlavorsListed,
    ImagesListed,
    ListingCompleted,
    ListingFailed,
    NetworksListed,
    Ticked,
)
from poolsm.members import Moved
from poolsm.state import State
from poolsm.vm import ACTIVE, BUILD, PENDING
from poolsm_runners.engine import Engine, Watcher
from poolsm_runners.metrics.catalogue import COUNTER, HISTOGRAM, METRICS

COMPLETE, FAILED = "complete", "failed"
_WHAT: Final = {
    ListingCompleted: "servers",
    ImagesListed: "images",
    FlavorsListed: "flavors",
    NetworksListed: "networks",
}


class Instruments:
    """The counters and histograms of one run, by their names in the catalogue."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {
            m.name: Counter(m.name, m.meaning, m.labels, registry=registry)
            for m in METRICS.values()
            if m.kind == COUNTER
        }
        self._histograms = {
            m.name: Histogram(m.name, m.meaning, m.labels, registry=registry, buckets=m.buckets)
            for m in METRICS.values()
            if m.kind == HISTOGRAM
        }
        self._children: dict[tuple[str, ...], Counter] = {}
        self._series: dict[tuple[str, ...], Histogram] = {}
        self.listed_servers = 0
        for command in COMMAND_TYPES:  # from 0 on, so that the first one is an increase
            self.count("poolsm_commands_issued_total", command.__name__, by=0)
        for what in _WHAT.values():
            for outcome in (COMPLETE, FAILED):
                self.count("poolsm_listings_total", what, outcome, by=0)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        key = (name, *labels)
        child = self._children.get(key)
        if child is None:  # asked for once: the library takes a lock and 1 us for it
            counter = self._counters[name]
            child = self._children[key] = counter.labels(*labels) if labels else counter
        child.inc(by)

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        key = (name, *labels)
        child = self._series.get(key)
        if child is None:
            histogram = self._histograms[name]
            child = self._series[key] = histogram.labels(*labels) if labels else histogram
        child.observe(max(0.0, seconds))

    def timed(self, event: Event, step: Step, fold_s: float, append_s: float) -> None:
        """The engine's clock: one event was folded, and what it led to is durable."""
        kind = type(event).__name__
        self.count("poolsm_events_total", kind)
        self.count("poolsm_event_fold_seconds_total", kind, by=fold_s)
        if step.entries:
            self.count("poolsm_log_entries_total", by=len(step.entries))
            self.observe("poolsm_log_append_duration_seconds", append_s)
        if isinstance(event, Ticked):
            self.observe("poolsm_tick_duration_seconds", fold_s + append_s)

    def watcher(self, engine: Engine) -> Watcher:
        """A watcher of one epoch."""
        return _Epoch(self, engine.state).watch


class _Epoch:
    """What has to be remembered from a command's or request's beginning to its end."""

    def __init__(self, instruments: Instruments, state: State) -> None:
        self._instruments = instruments
        self._state = state
        # kind and time of the decision, of each command in flight
        self._commands = {
            op.command_id: (op.kind, _wall_ms(state, op.planned_ms)) for op in state.ops.values()
        }
        self._open = set(state.waiting)

    def watch(self, event: Event, step: Step) -> None:
        """Count one event that is durable."""
        match event:
            case Ticked():
                pass
            case CallAnswered():
                self._answered(event)
            case CommandsDispatched():
                self._dispatched(event)
            case ListingCompleted() | ImagesListed() | FlavorsListed() | NetworksListed():
                self._listed(event)
            case ListingFailed():
                what = event.what.split()[0]  # images of the vm project
                self._instruments.count("poolsm_listings_total", what, FAILED)
        if step.entries:
            self._stored(event, step)

    def _stored(self, event: Event, step: Step) -> None:
        instruments = self._instruments
        for command in step.commands:
            kind = type(command).__name__
            instruments.count("poolsm_commands_issued_total", kind)
            self._commands[command.command_id] = (kind, event.at_ms)
        for anomaly in step.anomalies:
            instruments.count("poolsm_anomalies_total", anomaly.kind)
        for move in step.moves:
            instruments.count("poolsm_server_transitions_total", move.source, move.dest)
            if move.dest == ACTIVE:
                self._booted(move)
        if isinstance(event, AssignmentRequested):
            self._open.add(event.request_id)  # it may have ended with its own event
        if self._open or self._state.waiting:
            self._requests_ended()

    def _answered(self, event: CallAnswered) -> None:
        kind, _ = self._commands.pop(event.command_id, ("", 0))
        if kind:
            outcome = classify(kind, event).kind
            self._instruments.count("poolsm_commands_answered_total", kind, outcome)
            seconds = (event.at_ms - event.started_ms) / 1000
            self._instruments.observe("poolsm_command_duration_seconds", seconds, kind)

    def _dispatched(self, event: CommandsDispatched) -> None:
        for command_id in event.command_ids:
            kind, issued_ms = self._commands.get(command_id, ("", 0))
            if kind:
                seconds = (event.at_ms - issued_ms) / 1000
                self._instruments.observe("poolsm_command_wait_seconds", seconds, kind)

    def _listed(
        self, event: ListingCompleted | ImagesListed | FlavorsListed | NetworksListed
    ) -> None:
        what = _WHAT[type(event)]
        self._instruments.count("poolsm_listings_total", what, COMPLETE)
        seconds = (event.at_ms - event.started_ms) / 1000
        self._instruments.observe("poolsm_listing_duration_seconds", seconds, what)
        if isinstance(event, ListingCompleted):
            self._instruments.listed_servers = event.total

    def _booted(self, move: Moved) -> None:
        """A server that we made is ACTIVE; of an adopted one the beginning is not known."""
        vm = self._state.vms.get(move.vm)
        if move.source in (PENDING, BUILD) and vm is not None and vm.key != vm.server_id:
            seconds = (self._state.now_ms - vm.since_ms) / 1000
            self._instruments.observe("poolsm_server_boot_duration_seconds", seconds)

    def _requests_ended(self) -> None:
        state = self._state
        for request_id in self._open - state.waiting:
            found = state.assignments.get(request_id)
            if found is not None and found.state not in OPEN_STATES:
                seconds = (found.ended_ms - found.requested_ms) / 1000
                self._instruments.observe("poolsm_request_wait_seconds", seconds, found.state)
        self._open = set(state.waiting)


def _wall_ms(state: State, at_ms: int) -> int:
    return at_ms + state.skew_ms
