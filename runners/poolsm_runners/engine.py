"""Fold and log together: observe, decide, append, and only then dispatch (C8)."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from poolsm import STATE_VERSION, Fleet, Step
from poolsm.events import Event
from poolsm.state import State
from poolsm_runners.log.port import Log, LogSource, LogWriteError, Snapshot

logger = structlog.get_logger("poolsm")

SNAPSHOT_EVERY = 5_000  # stored events between two snapshots of the state

Watcher = Callable[[Event, Step], None]
# told after each durable event: seconds of folding it, seconds until it was durable
Stopwatch = Callable[[Event, Step, float, float], None]


@contextmanager
def uncollected() -> Iterator[None]:
    """Fold without garbage collection: it leaves no cycles, and each collection walks over all."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def open_fleet(log: LogSource) -> Fleet:
    """The fold as the log has it: from its newest usable snapshot, then event by event."""
    snapshot = log.load_snapshot(STATE_VERSION)
    fleet = Fleet.restore(snapshot.payload) if snapshot else Fleet()
    with uncollected():
        for entry in log.read(after=fleet.position):
            fleet.step(entry.event)
    return fleet


class Engine:
    """The only way by which an event reaches the fold and the log.

    When an append fails the fold is ahead of the log, so the engine must be dropped and made
    anew from what the log holds; :attr:`broken` says so, and every later call raises again.
    """

    def __init__(self, log: Log, fleet: Fleet) -> None:
        self.log = log
        self.fleet = fleet
        self.broken = False
        self._watchers: list[Watcher] = []
        self._stopwatch: Stopwatch | None = None
        self._snapshot_position = fleet.position

    @property
    def state(self) -> State:
        """The fold's state, to be read only."""
        return self.fleet.state

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher(event, step)`` after each event that is durable, quiet ones too."""
        self._watchers.append(watcher)

    def time(self, stopwatch: Stopwatch) -> None:
        """Tell ``stopwatch`` how long each event took, before the watchers hear of it."""
        self._stopwatch = stopwatch

    async def record(self, event: Event) -> Step:
        """Fold one event and return when it is durable with the commands that it caused.

        Events of concurrent callers are folded and appended in the order of the calls.

        Raises:
            LogWriteError: not durable; nothing of it may be carried out.
        """
        began_s = time.perf_counter()
        step = self.fleet.step(event)
        folded_s = durable_s = time.perf_counter()
        if step.entries:
            snapshot = self._snapshot_due()
            # A call that is cancelled here has been folded: it has to reach the log, too.
            try:
                await asyncio.shield(self.log.append(step.entries))
            except asyncio.CancelledError:
                raise
            except BaseException:
                self.broken = True
                raise
            durable_s = time.perf_counter()
            if snapshot is not None:
                await self.save(snapshot)
        if self._stopwatch is not None:
            self._stopwatch(event, step, folded_s - began_s, durable_s - folded_s)
        for watcher in self._watchers:
            watcher(event, step)
        return step

    def _snapshot_due(self) -> Snapshot | None:
        if self.fleet.position - self._snapshot_position < SNAPSHOT_EVERY:
            return None
        return self.take_snapshot()

    async def save(self, snapshot: Snapshot) -> None:
        """Have the log keep a snapshot; without it the next start takes longer, no more."""
        try:
            await self.log.save_snapshot(snapshot)
        except LogWriteError as error:
            logger.warning("snapshot.failed", error=str(error), position=snapshot.position)

    def take_snapshot(self) -> Snapshot | None:
        """The state as it is now, if the log holds all that led to it."""
        payload = self.fleet.snapshot()
        if payload is None:
            return None
        self._snapshot_position = self.fleet.position
        return Snapshot(self.fleet.position, STATE_VERSION, payload)
