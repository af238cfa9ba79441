"""Sending spans to a collector: OTLP over HTTP, as OpenTelemetry's own variables say."""

from __future__ import annotations

import asyncio
import logging
import threading

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from poolsm import __version__
from poolsm_runners.clock import Clock
from poolsm_runners.traces.spans import Traces

CLOSE_WITHIN_S = 5.0

logger = structlog.get_logger("poolsm")


class TraceExport:
    """Traces of one run, and what sends them. Nothing of it is global."""

    def __init__(self, clock: Clock) -> None:
        self._provider = make_provider()
        self._lines = _Lines()
        logging.getLogger("opentelemetry").addHandler(self._lines)
        self.traces = Traces(self._provider, clock)

    async def close(self) -> None:
        """Send what is left, for a few seconds; a collector that is away holds nothing up."""
        self.traces.end_all()
        thread = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, CLOSE_WITHIN_S)
        logging.getLogger("opentelemetry").removeHandler(self._lines)


def make_provider() -> TracerProvider:
    """Batches to the collector; the resource says which program this is."""
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
    defaults = Resource({SERVICE_NAME: "poolsm", SERVICE_VERSION: __version__})
    provider = TracerProvider(resource=defaults.merge(_given()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _given() -> Resource:
    """What the variables say, without the SDK's own name for a service that has none."""
    found = Resource.create()
    named = str(found.attributes.get(SERVICE_NAME, ""))
    if named.startswith("unknown_service"):
        return Resource({k: v for k, v in found.attributes.items() if k != SERVICE_NAME})
    return found


class _Lines(logging.Handler):
    """What the SDK says (a collector that is away), as log lines of ours."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        logger.warning("traces.not_sent", error=record.getMessage())
