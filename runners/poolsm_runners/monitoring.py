"""What watches a run from beside it: signs of life, the watchdog, metrics, traces.

The one place that puts these together; a run gives it what it has, and is the same with and
without it.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

import structlog

from poolsm_runners import traces
from poolsm_runners.budget import Budget
from poolsm_runners.clock import Clock
from poolsm_runners.cloud.port import Transport
from poolsm_runners.engine import Engine
from poolsm_runners.health.systemd import Notifier
from poolsm_runners.health.vitals import Phase, Vitals
from poolsm_runners.health.watchdog import Watchdog, status_line
from poolsm_runners.runconfig import RunConfig

if TYPE_CHECKING:
    from poolsm_runners.metrics.metering import Metering
    from poolsm_runners.traces.export import TraceExport

BEAT_EVERY_S = 0.5

logger = structlog.get_logger("poolsm")


class Monitoring:
    """Used as ``async with``, in the loop of the run that it watches.

    Entering it takes the metrics' address, if the run has one, and raises AddressError if it
    cannot be had: before anything was done.
    """

    def __init__(self, config: RunConfig, clock: Clock, stop: asyncio.Event) -> None:
        self.vitals = Vitals(clock)
        self._config = config
        self._stop = stop
        self._notifier = Notifier()
        self._metering: Metering | None = None
        self._tracing: TraceExport | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin to watch."""
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            if self._config.metrics:
                # takes 100 ms, of those who ask for it
                from poolsm_runners.metrics.metering import Metering  # noqa: PLC0415

                self._metering = Metering(self.vitals, self._config.metrics, self._config.log)
                stack.callback(self._metering.server.close)
            if traces.are_wanted(os.environ):
                self._tracing = _export(self.vitals.clock)
            if self._tracing:
                stack.push_async_callback(self._tracing.close)
            hung = self._metering.hung if self._metering else _nothing
            watchdog = Watchdog(self.vitals, self._notifier, loop, on_hang=hung)
            stack.callback(watchdog.close)
            for work in (self._beat(), self._announce_the_stop()):
                task = loop.create_task(work)
                stack.callback(task.cancel)
            watchdog.start()
            if self._metering:
                self._metering.server.start()
                logger.info("metrics.listening", address=str(self._metering.server.address))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Watch no more."""
        self.vitals.enter(Phase.STOPPING)
        self._notifier.stopping()
        await self._stack.aclose()

    # --- what a run tells ----------------------------------------------------------------

    def opened(self, position: int, seconds: float) -> None:
        """The log is open and folded: the service is up, whatever the cloud does."""
        self.vitals.opened(position, seconds)
        self._notifier.ready(status_line(self.vitals))

    def transport(self, inner: Transport) -> Transport:
        """The transport, measured and traced."""
        measured = self._metering.transport(inner) if self._metering else inner
        return self._tracing.traces.transport(measured) if self._tracing else measured

    def running(self, engine: Engine, budget: Budget) -> None:
        """An epoch of the log begins."""
        engine.watch(self.vitals.watcher(engine))
        if self._metering:
            self._metering.running(engine, budget)
        if self._tracing:
            engine.watch(self._tracing.traces.watcher(engine))

    def log_failed(self, why: str) -> None:
        """The log cannot be written; :meth:`running` says that it can again."""
        self.vitals.log_failed(why)
        if self._metering:
            self._metering.log_failed()

    # --- in the loop ---------------------------------------------------------------------

    async def _beat(self) -> None:
        """The heartbeat: shows that the loop runs tasks, and how late it does."""
        while True:
            due_s = time.monotonic() + BEAT_EVERY_S
            await asyncio.sleep(BEAT_EVERY_S)
            now_s = time.monotonic()
            self.vitals.beat_s = self.vitals.now_s()
            if self._metering:
                self._metering.lagged(now_s - due_s)

    async def _announce_the_stop(self) -> None:
        await self._stop.wait()
        self.vitals.enter(Phase.STOPPING)
        self._notifier.stopping()


def _export(clock: Clock) -> TraceExport | None:
    """Where traces go; None, with a line, where the extra is not installed."""
    try:
        from poolsm_runners.traces.export import TraceExport  # noqa: PLC0415 - takes 300 ms
    except ModuleNotFoundError as error:
        logger.warning(
            "traces.unavailable",
            missing=error.name,
            remedy="pip install 'poolsm[otel]', or unset OTEL_EXPORTER_OTLP_ENDPOINT",
        )
        return None
    return TraceExport(clock)


def _nothing() -> None:
    pass
