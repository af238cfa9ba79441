"""The only clock of the product (C12): wall time at start plus monotonic time, never decreasing.

A step of the wall clock against the monotonic one is reported by :meth:`WallClock.step_ms` and
becomes an event; until then time goes on as if there had been none.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds since 1970 UTC, and sleeping on the same scale."""

    def now_ms(self) -> int:
        """The time."""
        ...

    def elapsed_ms(self) -> int:
        """Milliseconds since some instant, on the scale of :meth:`sleep`, which no step moves.

        Whatever waits counts by this: by the time, a clock that is set back an hour would
        lengthen each wait by that hour.
        """
        ...

    def step_ms(self) -> int:
        """How far the wall clock has stepped since the last call, 0 if less than 30 s."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep seconds of this clock."""
        ...


STEP_LIMIT_MS = 30_000


class WallClock:
    """Real time."""

    def __init__(self) -> None:
        self._base_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        """Wall clock at start, carried on by the monotonic clock."""
        return self._base_ms + self.elapsed_ms()

    def elapsed_ms(self) -> int:
        """The monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def step_ms(self) -> int:
        """Adopt a step of the wall clock of at least 30 s and say how far it was."""
        step = time.time_ns() // 1_000_000 - self.now_ms()
        if abs(step) < STEP_LIMIT_MS:
            return 0
        self._base_ms += step
        return step

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)


class FastClock:
    """Time that starts anywhere and runs ``speed`` times as fast, for the simulated cloud."""

    def __init__(self, start_ms: int | None = None, speed: float = 1.0) -> None:
        self._start_ms = time.time_ns() // 1_000_000 if start_ms is None else start_ms
        self._began_ns = time.monotonic_ns()
        self._speed = speed

    def begin_at(self, at_ms: int) -> None:
        """Go on from this instant, if it has not come yet."""
        self._start_ms += max(0, at_ms - self.now_ms())

    def now_ms(self) -> int:
        """The simulated time."""
        return self._start_ms + self.elapsed_ms()

    def elapsed_ms(self) -> int:
        """Since it was made."""
        return int((time.monotonic_ns() - self._began_ns) / 1e6 * self._speed)

    def step_ms(self) -> int:
        """A simulated clock never steps."""
        return 0

    async def sleep(self, seconds: float) -> None:
        """Sleep simulated seconds."""
        await asyncio.sleep(seconds / self._speed)
