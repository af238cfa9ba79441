"""The loop: observe, record, carry out. The only part with a clock; it decides nothing.

    listings, ticks, requests -> Engine.record -> commands -> budget -> cloud -> CallAnswered

Everything that waits, waits here, and each wait has its deadline: a listing that hangs delays
no tick, a create that hangs holds one slot of its pool.
"""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Awaitable, Callable, Sequence

from attrs import frozen

from poolsm import Step, __version__
from poolsm.answers import NOT_SENT
from poolsm.commands import (
    ClaimServer,
    Command,
    CreateServer,
    FetchImage,
    FindServer,
    RenameServer,
)
from poolsm.errors import PoolsmError
from poolsm.events import (
    CallAnswered,
    ClockStepped,
    CommandsDispatched,
    Event,
    RunnerStarted,
    RunnerStopped,
    Ticked,
)
from poolsm.spec import RunnerSettings
from poolsm_runners.budget import Backoff, Budget, Priority
from poolsm_runners.catalogs import Catalogs, failure
from poolsm_runners.clock import STEP_LIMIT_MS, Clock
from poolsm_runners.cloud.port import VM, Answer, Cloud, ListingError
from poolsm_runners.engine import Engine
from poolsm_runners.operations import Desk
from poolsm_runners.secrets import encoded_user_data
from poolsm_runners.zones import needs_renewal, zone_rules

LIST_EVERY_S = 5.0
CATALOGS_EVERY_S = 60.0
TICK_EVERY_S = 2.0
GRACE_S = 5.0  # for calls in flight at the end

Make = Callable[[Desk], Awaitable[list[Event]]]


@frozen
class RunnerOptions:
    """How a runner runs: recorded settings, and what only the loop needs."""

    settings: RunnerSettings
    two_projects: bool = False
    dry_run: bool = False
    list_every_s: float = LIST_EVERY_S
    catalogs_every_s: float = CATALOGS_EVERY_S
    tick_every_s: float = TICK_EVERY_S


class Runner:
    """Keeps the pools of one project, from the recorded log on."""

    def __init__(
        self, engine: Engine, cloud: Cloud, clock: Clock, budget: Budget, options: RunnerOptions
    ) -> None:
        self.engine = engine
        self.budget = budget
        self._cloud = cloud
        self._clock = clock
        self._options = options
        self._calls: asyncio.TaskGroup | None = None
        self._in_flight: set[asyncio.Task[None]] = set()
        self._planned = asyncio.Event()
        self._catalogs = Catalogs(
            cloud, clock, budget, self._record, two_projects=options.two_projects
        )
        self._listing_backoff = Backoff(base_s=options.list_every_s, limit_s=60.0)
        self._catalogs_backoff = Backoff(base_s=options.list_every_s, limit_s=60.0)

    async def run(self, stop: asyncio.Event) -> None:
        """After :meth:`begin`: run until ``stop`` is set, then end within seconds.

        Raises:
            LogWriteError: the log cannot be written. Nothing of what was decided since was
                carried out; open the log again and make a new runner.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._calls = group
                loops = [
                    group.create_task(self._every(self._options.tick_every_s, self._tick)),
                    group.create_task(self._every(self._options.list_every_s, self._list)),
                    group.create_task(
                        self._every(self._options.catalogs_every_s, self._list_catalogs)
                    ),
                ]
                await self._until_stopped(stop)
                for task in loops:
                    task.cancel()
                await self._drain()
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        finally:
            self._calls = None
            await self.budget.close()
        await self._end()

    async def submit(self, make: Make, origin: str) -> list[Step]:
        """Check a request, record its events, and return when they are durable.

        Raises:
            RefusedError: it cannot be carried out as it is; nothing was recorded.
        """
        desk = Desk(
            self.engine.state,
            self._clock.now_ms(),
            self.engine.log.put_secret,
            self.engine.log.get_secret,
            origin,
        )
        return [await self._record(event) for event in await make(desk)]

    # --- beginning and end -------------------------------------------------------------

    async def begin(self) -> None:
        """Take the log over: a new epoch, and the zone rules that its pools need."""
        now_ms = self._clock.now_ms()
        state = self.engine.state
        behind_ms = now_ms - (state.now_ms + state.skew_ms)
        if behind_ms <= -STEP_LIMIT_MS:  # the wall clock was set back while nobody ran
            await self._record(ClockStepped(at_ms=now_ms, by_ms=behind_ms))
        settings = self._options.settings
        await self._record(
            RunnerStarted(
                at_ms=now_ms, epoch=str(uuid.uuid4()), version=__version__, settings=settings
            )
        )
        specs = [pool.spec for pool in state.pools.values()]
        for zone in sorted({settings.time_zone, *(spec.time_zone for spec in specs)} - {""}):
            await self._load_zone(zone)
        # What was folded from the log stays; a full collection over it costs milliseconds.
        gc.freeze()

    async def _load_zone(self, zone: str) -> None:
        now_ms = self._clock.now_ms()
        known = self.engine.state.zones.get(zone)
        if known is None or needs_renewal(known, now_ms):
            await self._record(zone_rules(zone, now_ms))

    async def _until_stopped(self, stop: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(stop.wait())]
        if self._options.dry_run:
            waits.append(asyncio.ensure_future(self._planned.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _drain(self) -> None:
        """Hear the answers of what is in flight, for a few seconds; the rest is unknown then."""
        if self._in_flight:
            _, late = await asyncio.wait(self._in_flight, timeout=GRACE_S)
            for task in late:
                task.cancel()

    async def _end(self) -> None:
        left = len(self.engine.state.ops)
        why = f"stopped; {left} commands unanswered" if left else "stopped; nothing in flight"
        await self._record(RunnerStopped(at_ms=self._clock.now_ms(), why=why))
        snapshot = self.engine.take_snapshot()
        if snapshot is not None and not self._options.dry_run:
            await self.engine.save(snapshot)

    async def _every(self, seconds: float, action: Callable[[], Awaitable[float | None]]) -> None:
        """Repeat an action, measured from start to start; it may ask for another pause."""
        while True:
            began_ms = self._clock.elapsed_ms()
            pause_s = await action()
            due_ms = began_ms + int((seconds if pause_s is None else pause_s) * 1000)
            await self._clock.sleep(max(0, due_ms - self._clock.elapsed_ms()) / 1000)

    # --- observing ---------------------------------------------------------------------

    async def _tick(self) -> None:
        step_ms = self._clock.step_ms()
        if step_ms:
            await self._record(ClockStepped(at_ms=self._clock.now_ms(), by_ms=step_ms))
        await self._record(Ticked(at_ms=self._clock.now_ms()))
        state = self.engine.state
        listed = {"flavors", "networks"} <= state.catalogs_listed and VM in state.images
        if not state.adopting and listed and not state.dirty:
            self._planned.set()

    async def _list(self) -> float | None:
        """All servers of the project, for all pools at once (R10)."""
        started_ms = self._clock.now_ms()
        try:
            async with self.budget.slot(Priority.READ):
                started_ms = self._clock.now_ms()
                records = await self._cloud.list_servers()
        except ListingError as error:
            now_ms = self._clock.now_ms()
            event = failure(self.budget, "servers", error, started_ms=started_ms, at_ms=now_ms)
            await self._record(event)
            return self._listing_backoff.next_delay_s()
        self._listing_backoff.reset()
        self.budget.note(Priority.READ, 200)
        await self._record(
            self.engine.fleet.diff(records, started_ms=started_ms, at_ms=self._clock.now_ms())
        )
        return None

    async def _list_catalogs(self) -> float | None:
        """Images, flavors, networks: every minute, sooner while there are none."""
        if await self._catalogs.list_all(self.engine.state):
            self._catalogs_backoff.reset()
            return None
        return self._catalogs_backoff.next_delay_s()

    # --- recording and carrying out ----------------------------------------------------

    async def _record(self, event: Event) -> Step:
        """Make an event durable, then begin what it caused."""
        step = await self.engine.record(event)
        if not self._options.dry_run:
            self._begin_calls(step.commands)
        return step

    def _begin_calls(self, commands: Sequence[Command]) -> None:
        if self._calls is None:
            return
        for command in commands:
            task = self._calls.create_task(self._carry_out(command))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)

    async def _carry_out(self, command: Command) -> None:
        """One command, from its slot to its recorded answer."""
        if isinstance(command, FetchImage):
            started_ms = await self._dispatch(command)
            answer = await self._fetch_images()
        else:
            priority = _priority(command)
            async with self.budget.slot(priority, self._pool_of(command)):
                if not self.engine.fleet.stands(command.command_id):
                    return  # a pause or a hold came before its turn
                started_ms = await self._dispatch(command)
                answer = await self._call(command)
                self.budget.note(
                    priority, answer.http_status, answer.retry_after_s, answer.transport_error
                )
        await self._record(
            CallAnswered(
                at_ms=self._clock.now_ms(),
                command_id=command.command_id,
                started_ms=started_ms,
                http_status=answer.http_status,
                transport_error=answer.transport_error,
                error_kind=answer.error_kind,
                message=answer.message,
                retry_after_s=answer.retry_after_s,
                server_id=answer.server_id,
                server=answer.server,
                unmet=answer.unmet,
            )
        )

    async def _dispatch(self, command: Command) -> int:
        """Make it durable that the command is about to be sent (C8); when that was."""
        dispatched = CommandsDispatched(
            at_ms=self._clock.now_ms(), command_ids=(command.command_id,)
        )
        await self._record(dispatched)
        return self._clock.now_ms()

    async def _fetch_images(self) -> Answer:
        # Its listings take slots of their own, so it holds none while it waits for them.
        if await self._catalogs.list_images(self.engine.state):
            return Answer(http_status=200)
        return Answer(transport_error="listing", message="the images could not be listed")

    async def _call(self, command: Command) -> Answer:
        user_data = ""
        if isinstance(command, CreateServer):
            try:
                user_data = encoded_user_data(command.user_data, self.engine.log.get_secret)
            except (PoolsmError, ValueError) as error:
                return Answer(transport_error=NOT_SENT, message=f"user-data: {error}")
        return await self._cloud.execute(command, user_data)

    def _pool_of(self, command: Command) -> str:
        op = self.engine.state.ops.get(command.command_id)
        return str(op.pool) if op else ""


def _priority(command: Command) -> Priority:
    if isinstance(command, FindServer):
        return Priority.READ
    if isinstance(command, ClaimServer | RenameServer):
        return Priority.CLAIM
    return Priority.CREATE if isinstance(command, CreateServer) else Priority.WRITE


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group of groups: one line for an operator, not a tree."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
