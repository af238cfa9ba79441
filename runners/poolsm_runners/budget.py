"""One budget of calls per project: who may call the cloud now, and who waits.

Reads have slots of their own, so a listing never waits behind creates. All other calls share
the write slots: the more urgent priority first, pools in rotation within a priority, and no
pool more than its share of the slots, so that a pool whose calls hang cannot take them all.

A cloud that says it is busy (429, 413, 503) pauses every call but reads; said to a read, it
pauses reads too, though never for long: without listings nothing can be decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import IntEnum

from attrs import frozen

from poolsm_runners.clock import Clock

BUSY = frozenset({413, 429, 503})


class Priority(IntEnum):
    """Classes of calls, the most urgent first."""

    READ = 0  # listings, one server's state
    CLAIM = 1  # what a person waits for: claims, renames, starts on request
    WRITE = 2  # deletes, stops, starts
    CREATE = 3


@frozen
class Limits:
    """How much at once, and how long a pause may be.

    Attributes:
        read_slots: reads at once.
        write_slots: all other calls at once.
        pool_share: of the write slots, those that one pool may hold; at least one.
        pause_limit_s: the longest pause of writes, whatever Retry-After says.
        read_pause_limit_s: the longest pause of reads.
        pause_base_s: the first pause when the cloud does not say how long; it doubles each
            time that the cloud is still busy after one.
        guess_limit_s: the longest pause when the cloud does not say how long.
    """

    read_slots: int = 4
    write_slots: int = 8
    pool_share: float = 0.5
    pause_limit_s: float = 600.0
    read_pause_limit_s: float = 30.0
    pause_base_s: float = 1.0
    guess_limit_s: float = 60.0

    @property
    def per_pool(self) -> int:
        """Write slots that one pool may hold."""
        return max(1, int(self.write_slots * self.pool_share))


@frozen
class Usage:
    """What a budget is doing, for metrics.

    Attributes:
        calls: how many calls ended, by class (``read`` ...) and outcome: the status as text,
            or the transport error.
        in_flight: calls that hold a slot, by class.
        waiting: calls that wait for one, by class.
        writes_paused_s: seconds until the pause of writes ends, 0 if there is none.
        reads_paused_s: the same for reads.
    """

    calls: dict[tuple[str, str], int]
    in_flight: dict[str, int]
    waiting: dict[str, int]
    writes_paused_s: float
    reads_paused_s: float


class Backoff:
    """Delays between attempts that fail: doubling, with jitter, up to a limit.

    Each delay is between half of the step and the whole of it, so that several runners that
    failed together do not come back together.
    """

    def __init__(
        self,
        base_s: float = 1.0,
        limit_s: float = 60.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._base_s = base_s
        self._limit_s = limit_s
        self._chance = chance
        self.failures = 0

    def next_delay_s(self) -> float:
        """Seconds to wait after one more failure."""
        # 2 ** 30 seconds are beyond any limit, and 2.0 ** 1024 is beyond float.
        step_s = min(self._limit_s, self._base_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return step_s * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """It worked: the next failure is the first again."""
        self.failures = 0


@frozen(eq=False)
class _Waiter:
    priority: Priority
    pool: str
    granted: asyncio.Future[None]


class _Lane:
    """Slots of one kind, who waits for them, and when their pause ends.

    Waiters stand by priority, then by pool, then in order of arrival. A pool that was served
    goes to the end of its priority's rotation.
    """

    def __init__(self, slots: int, per_pool: int) -> None:
        self.slots = slots
        self.per_pool = per_pool
        self.held = 0
        self.held_by: Counter[str] = Counter()
        self.paused_until_ms = 0
        self.backoff_steps = 0
        self._queues: dict[Priority, OrderedDict[str, deque[_Waiter]]] = {
            priority: OrderedDict() for priority in Priority
        }

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return any(self._queues.values())

    def add(self, waiter: _Waiter) -> None:
        self._queues[waiter.priority].setdefault(waiter.pool, deque()).append(waiter)

    def remove(self, waiter: _Waiter) -> None:
        queues = self._queues[waiter.priority]
        queue = queues.get(waiter.pool)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del queues[waiter.pool]

    def take(self) -> _Waiter | None:
        """The next to be served, who then holds a slot; None if nobody may be."""
        if self.held >= self.slots:
            return None
        for queues in self._queues.values():
            for pool, queue in queues.items():
                if self.held_by[pool] >= self.per_pool:
                    continue
                waiter = queue.popleft()
                if queue:
                    queues.move_to_end(pool)
                else:
                    del queues[pool]
                self.held += 1
                self.held_by[pool] += 1
                return waiter
        return None

    def give_back(self, pool: str) -> None:
        self.held -= 1
        self.held_by[pool] -= 1
        if not self.held_by[pool]:
            del self.held_by[pool]


class Budget:
    """The calls of one project. Used from one event loop; nothing in it blocks."""

    def __init__(
        self,
        clock: Clock,
        limits: Limits | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        limits = limits or Limits()
        self._clock = clock
        self._limits = limits
        self._chance = chance
        self._reads = _Lane(limits.read_slots, limits.read_slots)
        self._writes = _Lane(limits.write_slots, limits.per_pool)
        self._calls: Counter[tuple[str, str]] = Counter()
        self._in_flight: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._alarms: dict[int, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def slot(self, priority: Priority, pool: str = "") -> AsyncIterator[None]:
        """Wait for a slot, hold it in the ``async with`` body, give it back.

        Args:
            priority: the class of the call.
            pool: whose call it is, for fairness; any text, empty for the project's own.
        """
        lane = self._lane(priority)
        name = _name(priority)
        await self._acquire(lane, priority, pool)
        self._in_flight[name] += 1
        try:
            yield
        finally:
            self._in_flight[name] -= 1
            lane.give_back(pool)
            self._serve(lane)

    def note(
        self,
        priority: Priority,
        status: int | None,
        retry_after_s: float | None = None,
        transport_error: str | None = None,
    ) -> None:
        """Count how a call ended, and pause if the cloud says that it is busy.

        Args:
            priority: the class of the call.
            status: HTTP status of the answer; None if there was none.
            retry_after_s: of its Retry-After header.
            transport_error: why there was no answer.
        """
        outcome = str(status) if status is not None else transport_error or "none"
        self._calls[_name(priority), outcome] += 1
        if status in BUSY:
            self._pause(self._lane(priority), retry_after_s)
        elif status is not None and status < 500:
            self._lane(priority).backoff_steps = 0

    def usage(self) -> Usage:
        """Counters and gauges as they are now."""
        return Usage(
            calls=dict(self._calls),
            in_flight=dict(self._in_flight),
            waiting=dict(self._waiting),
            writes_paused_s=self._paused_s(self._writes),
            reads_paused_s=self._paused_s(self._reads),
        )

    async def close(self) -> None:
        """End the budget's own timers; calls that wait go on waiting."""
        for alarm in list(self._alarms.values()):
            alarm.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await alarm

    async def _acquire(self, lane: _Lane, priority: Priority, pool: str) -> None:
        granted = asyncio.get_running_loop().create_future()
        waiter = _Waiter(priority, pool, granted)
        lane.add(waiter)
        self._waiting[_name(priority)] += 1
        try:
            self._serve(lane)
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                lane.give_back(pool)  # the slot came together with the cancellation
                self._serve(lane)
            else:
                lane.remove(waiter)
            raise
        finally:
            self._waiting[_name(priority)] -= 1

    def _serve(self, lane: _Lane) -> None:
        if self._paused_s(lane) > 0:
            self._set_alarm(lane)
            return
        while (waiter := lane.take()) is not None:
            if waiter.granted.cancelled():
                lane.give_back(waiter.pool)
            else:
                waiter.granted.set_result(None)

    def _pause(self, lane: _Lane, retry_after_s: float | None) -> None:
        limits = self._limits
        if retry_after_s is None:
            if self._paused_s(lane) > 0:
                return  # the answer to a call from before the pause: one burst is one step
            step_s = limits.pause_base_s * 2.0 ** min(lane.backoff_steps, 30)
            lane.backoff_steps += 1
            seconds = min(limits.guess_limit_s, step_s) * (0.5 + self._chance() / 2)
        else:
            seconds = max(0.0, retry_after_s)
        if lane is self._reads:
            # A guess is the reads' own: listings that fail for hours, one after the other,
            # must not add up to a pause of writes that goes on when the cloud is back.
            self._pause_until(self._reads, min(limits.read_pause_limit_s, seconds))
            if retry_after_s is None:
                seconds = min(limits.read_pause_limit_s, seconds)
        self._pause_until(self._writes, min(limits.pause_limit_s, seconds))

    def _pause_until(self, lane: _Lane, seconds: float) -> None:
        until_ms = self._clock.elapsed_ms() + round(seconds * 1000)
        lane.paused_until_ms = max(lane.paused_until_ms, until_ms)

    def _paused_s(self, lane: _Lane) -> float:
        return max(0, lane.paused_until_ms - self._clock.elapsed_ms()) / 1000

    def _set_alarm(self, lane: _Lane) -> None:
        if lane and id(lane) not in self._alarms:
            alarm = asyncio.get_running_loop().create_task(self._alarm(lane))
            self._alarms[id(lane)] = alarm

    async def _alarm(self, lane: _Lane) -> None:
        try:
            # A pause may have been made longer meanwhile.
            while (seconds := self._paused_s(lane)) > 0:
                await self._clock.sleep(seconds)
        finally:
            del self._alarms[id(lane)]
        self._serve(lane)

    def _lane(self, priority: Priority) -> _Lane:
        return self._reads if priority is Priority.READ else self._writes


def _name(priority: Priority) -> str:
    return priority.name.lower()
