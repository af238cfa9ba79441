"""Metrics of one run, put together: registry, instruments, gauges, server."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    make_wsgi_app,
)

from poolsm_runners.budget import Budget
from poolsm_runners.cloud.port import Transport
from poolsm_runners.engine import Engine
from poolsm_runners.health.checks import QUESTIONS
from poolsm_runners.health.vitals import Vitals
from poolsm_runners.metrics.address import Address
from poolsm_runners.metrics.collector import GaugeCollector
from poolsm_runners.metrics.instruments import Instruments
from poolsm_runners.metrics.server import MetricsServer, application
from poolsm_runners.metrics.survey import Subjects, Surveyor
from poolsm_runners.metrics.transport import MeteredTransport


class Metering:
    """What a run's monitoring hands its news to.

    Args:
        vitals: the run's.
        address: ``host:port``; raises AddressError if it cannot be listened at.
        log: the log's path.
    """

    def __init__(self, vitals: Vitals, address: str, log: Path) -> None:
        # a second series beside each, for a format that nobody asked for
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        self._instruments = Instruments(registry)
        self._surveyor = Surveyor(asyncio.get_running_loop(), vitals)
        registry.register(GaugeCollector(self._surveyor, vitals, self._instruments, log))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        questions = {path: partial(ask, vitals) for path, ask in QUESTIONS.items()}
        app = application(make_wsgi_app(registry), questions)
        self.server = MetricsServer(Address.parse(address), app)

    def transport(self, inner: Transport) -> Transport:
        """The transport, measured."""
        return MeteredTransport(inner, self._instruments)

    def running(self, engine: Engine, budget: Budget) -> None:
        """From now on this engine and budget are measured."""
        engine.time(self._instruments.timed)
        engine.watch(self._instruments.watcher(engine))
        self._surveyor.subjects = Subjects(engine, budget)

    def hung(self) -> None:
        """The watchdog found that the loop or its ticks hang."""
        self._instruments.count("poolsm_loop_hangs_total")

    def log_failed(self) -> None:
        """The log could not be written."""
        self._instruments.count("poolsm_log_failures_total")

    def lagged(self, seconds: float) -> None:
        """The heartbeat came so late."""
        self._instruments.observe("poolsm_loop_lag_seconds", seconds)
