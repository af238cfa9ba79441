"""What the loop leaves behind for those who look at it from outside of it.

The loop writes, other threads read. Each field is one reference or number that is replaced
whole, so a reader needs no lock, and a loop that hangs can still be looked at: what it wrote
last just grows old. All ages are of the monotonic clock, in real seconds, whatever clock the
runner itself uses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum

from attrs import define, field

from poolsm import Step
from poolsm.events import Event, Ticked
from poolsm_runners.clock import Clock
from poolsm_runners.engine import Engine, Watcher


class Phase(StrEnum):
    """What a run is about, from its beginning to its end."""

    OPENING = "opening"  # the log is read and folded
    CONNECTING = "connecting"  # authenticating; waits for a cloud that is away
    RUNNING = "running"
    LOG_FAILED = "log_failed"  # it cannot be written; opened again when it can
    STOPPING = "stopping"


@define(eq=False)
class Vitals:
    """The signs of life of one run.

    Attributes:
        clock: the runner's, for ages of what events are about.
        now_s: the monotonic clock; tests give their own.
        phase, phase_s: what the run is about, and since when.
        beat_s: when the loop last ran a task that only says that it runs.
        lag_s: how late that task was.
        tick_s: when a tick was last durable; 0 before the first.
        engine: of the present epoch of the log; None while there is none.
        failure: why the log cannot be written, while it cannot.
        start_position, start_s: where the log ended at the start, and how long reading it took.
        loop_thread: id of the thread that the loop runs in.
    """

    clock: Clock
    now_s: Callable[[], float] = time.monotonic
    phase: Phase = Phase.OPENING
    phase_s: float = field()
    beat_s: float = field()
    lag_s: float = 0.0
    tick_s: float = 0.0
    engine: Engine | None = None
    failure: str = ""
    start_position: int = 0
    start_s: float = 0.0
    loop_thread: int = field(factory=threading.get_ident)

    @phase_s.default
    def _phase_s(self) -> float:
        return self.now_s()

    @beat_s.default
    def _beat_s(self) -> float:
        return self.now_s()

    def enter(self, phase: Phase) -> None:
        """The run is about something else from now on; a stop is the end of it."""
        if self.phase is not Phase.STOPPING:
            self.phase_s = self.now_s()
            self.phase = phase

    def opened(self, position: int, seconds: float) -> None:
        """The log was read to its end; the cloud comes next."""
        self.start_position, self.start_s = position, seconds
        self.enter(Phase.CONNECTING)

    def log_failed(self, why: str) -> None:
        """The log cannot be written: nothing is carried out until it can."""
        self.failure = why
        self.enter(Phase.LOG_FAILED)

    def watcher(self, engine: Engine) -> Watcher:
        """A watcher of one epoch. Its first durable event shows that the log can be written."""
        self.engine = engine

        def watch(event: Event, step: Step) -> None:
            _ = step
            if self.phase in {Phase.CONNECTING, Phase.LOG_FAILED}:
                self.failure = ""
                self.enter(Phase.RUNNING)
            if isinstance(event, Ticked):
                self.tick_s = self.now_s()

        return watch

    # --- read from other threads -------------------------------------------------------

    def beat_age_s(self) -> float:
        """Seconds since the loop was last seen to run."""
        return max(0.0, self.now_s() - self.beat_s)

    def tick_age_s(self) -> float:
        """Seconds since the last tick, or since there should be ticks."""
        return max(0.0, self.now_s() - max(self.tick_s, self.phase_s))

    def listing_age_s(self) -> float | None:
        """Age of the last complete listing by the runner's clock; None before the first."""
        if self.engine is None:
            return None
        state = self.engine.state
        if not state.watch.listing_started_ms:
            return None
        at_ms = state.watch.listing_started_ms + state.skew_ms
        return max(0, self.clock.now_ms() - at_ms) / 1000
