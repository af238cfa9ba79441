"""Traces of real runs: from the event that caused a command to the answer's event."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from poolsm.events import CallAnswered, CommandsDispatched
from poolsm_runners import traces
from poolsm_runners.cloud.port import Reply, TransportError
from poolsm_runners.cloud.simulated import SimulatedTransport
from poolsm_runners.control_requests import Assign, Release
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import LogWriteError
from poolsm_runners.log.writer import SqliteLog
from poolsm_runners.session import perform
from poolsm_runners.traces import export
from poolsm_runners.traces.spans import UNANSWERED
from tests.unit.observing import Run, free_port, spec, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def memory(monkeypatch):
    """Spans are kept here instead of being sent."""
    exporter = InMemorySpanExporter()

    def provider():
        found = TracerProvider(shutdown_on_exit=False)
        found.add_span_processor(SimpleSpanProcessor(exporter))
        return found

    monkeypatch.setattr(export, "make_provider", provider)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    return exporter


def named(exporter, *names):
    return [span for span in exporter.get_finished_spans() if span.name in names]


def of_commands(exporter):
    found = [s for s in exporter.get_finished_spans() if "poolsm.command_id" in s.attributes]
    return {span.attributes["poolsm.command_id"]: span for span in found}


def test_every_command_of_the_log_is_a_span_from_its_cause_to_its_answer(tmp_path, memory):
    log = tmp_path / "log.db"
    with Run(log, spec(min_vm=1, max_vm=1)) as run:
        until(lambda: named(memory, "CreateServer"), "it is created")
        perform(log, Assign("ann/lab", "seat-1", "eve", 600.0))
        until(lambda: named(memory, "ClaimServer"), "it is claimed")
        perform(log, Release("seat-1"))
        until(lambda: named(memory, "DeleteServer"), "it is deleted")
        run.stop()
    entries = list(sqlite.open_read_only(log).read())
    by_id = {span.context.span_id: span for span in memory.get_finished_spans()}
    spans = of_commands(memory)
    commands = [(entry, command) for entry in entries for command in entry.commands]
    assert spans.keys() == {command.command_id for _, command in commands}
    for entry, command in commands:
        span = spans[command.command_id]
        assert span.name == type(command).__name__
        assert span.attributes["poolsm.position"] == entry.position
        assert span.attributes["poolsm.pool"] == "ann/lab"
        assert span.attributes["poolsm.reason"] == command.reason.text
        assert span.attributes["poolsm.rule"] == command.reason.rule
        cause = by_id[span.parent.span_id]
        assert cause.parent is None
        assert cause.name == type(entry.event).__name__
        assert cause.attributes["poolsm.position"] == entry.position
        assert cause.start_time == span.start_time == entry.event.at_ms * 1_000_000
        check_dispatch_and_answer(span, entries, command)
        check_requests(span, by_id.values(), type(command).__name__)


def check_dispatch_and_answer(span, entries, command):
    (sent,) = [
        entry
        for entry in entries
        if isinstance(entry.event, CommandsDispatched)
        and command.command_id in entry.event.command_ids
    ]
    (dispatched,) = span.events
    assert dispatched.name == "dispatched"
    assert dispatched.attributes["poolsm.position"] == sent.position
    (answer,) = [
        entry
        for entry in entries
        if isinstance(entry.event, CallAnswered) and entry.event.command_id == command.command_id
    ]
    assert span.end_time == answer.event.at_ms * 1_000_000
    assert span.attributes["poolsm.answer.position"] == answer.position
    assert span.attributes["poolsm.server_id"] == answer.event.server_id
    assert span.attributes["poolsm.outcome"] == "done"
    assert span.status.status_code is StatusCode.UNSET


def check_requests(span, all_spans, kind):
    wanted = {
        "CreateServer": ["create_server"],
        "DeleteServer": ["read_server", "delete_server"],  # it looks before it deletes
        "ClaimServer": ["read_server", "write_metadata"],
    }
    found = [s for s in all_spans if s.parent and s.parent.span_id == span.context.span_id]
    found.sort(key=lambda s: (s.start_time, s.end_time))
    assert sorted(s.name for s in found) == sorted(wanted.get(kind, [s.name for s in found]))
    for request in found:
        assert request.kind is SpanKind.CLIENT
        assert 200 <= request.attributes["http.response.status_code"] < 300
        assert span.start_time <= request.start_time <= request.end_time <= span.end_time
        assert request.context.trace_id == span.context.trace_id


def test_listings_are_no_spans(tmp_path, memory):
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        until(lambda: len(named(memory, "CreateServer")) == 2, "two servers")
    assert not named(memory, "list_servers", "list_images", "list_flavors", "ListingCompleted")


QUOTA = b'{"forbidden": {"message": "Quota exceeded for cores", "code": 403}}'
ERRORS = {  # what the transport gives: outcome, text, and error.type of the request
    "refused": (Reply(403, {}, QUOTA), "quota", "403 Quota exceeded for cores", None),
    "no answer": (TransportError("timeout", "late"), "unknown", "no answer (timeout)", "timeout"),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_an_error_is_the_status_of_the_span(tmp_path, memory, monkeypatch, case):
    reply, outcome, text, request_error = case
    send = SimulatedTransport.request

    async def answer(self, project, service, method, path, **more):
        if method == "POST":
            if isinstance(reply, TransportError):
                raise reply
            return reply
        return await send(self, project, service, method, path, **more)

    monkeypatch.setattr(SimulatedTransport, "request", answer)
    with Run(tmp_path / "log.db"):
        until(lambda: named(memory, "CreateServer"), "an answer")
    span = named(memory, "CreateServer")[0]
    assert span.attributes["poolsm.outcome"] == outcome
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, text)
    request = named(memory, "create_server")[0]
    assert request.status.status_code is StatusCode.ERROR
    assert request.attributes.get("error.type") == request_error


def test_what_a_lost_log_leaves_unanswered_ends_without_an_answer(tmp_path, memory, monkeypatch):
    """The epoch ends while a create is on its way: its span ends, too, and says so."""
    send, append, full = SimulatedTransport.request, SqliteLog.append, threading.Event()

    async def slow(self, project, service, method, path, **more):
        if method == "POST" and not full.is_set():
            full.set()
            await asyncio.sleep(60)
        return await send(self, project, service, method, path, **more)

    failed = threading.Event()

    async def fail_once(self, entries):
        if full.is_set() and not failed.is_set():
            failed.set()
            raise LogWriteError("log.db: cannot be written (disk full)")
        await append(self, entries)

    monkeypatch.setattr(SimulatedTransport, "request", slow)
    monkeypatch.setattr(SqliteLog, "append", fail_once)
    with Run(tmp_path / "log.db"):
        until(lambda: named(memory, "CreateServer"), "the span ended")
    ended = [s.status.description for s in named(memory, "CreateServer")]
    assert UNANSWERED in ended


# --- sending --------------------------------------------------------------------------------


class Collector(HTTPServer):
    """A collector: keeps what it is sent."""

    def __init__(self):
        self.batches = []
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.batches.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    found = Collector()
    yield found
    found.shutdown()
    found.server_close()


def test_spans_reach_a_collector_over_http(tmp_path, monkeypatch, collector):
    url = f"http://127.0.0.1:{collector.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        until(lambda: run.fleet().pools[0].ready, "servers")
    assert {path for path, _ in collector.batches} == {"/v1/traces"}
    resources = [r for _, batch in collector.batches for r in batch.resource_spans]
    about = {a.key: a.value.string_value for a in resources[0].resource.attributes}
    assert about["service.name"] == "poolsm"
    assert about["service.version"]
    assert about["deployment.environment"] == "test"
    spans = {span.name for r in resources for scope in r.scope_spans for span in scope.spans}
    assert {"Ticked", "CreateServer", "create_server"} <= spans


def test_a_collector_that_is_away_holds_nothing_up(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with capture_logs() as lines:
        with Run(tmp_path / "log.db") as run:
            run.until("/readyz", 200)
            until(lambda: run.value("poolsm_pool_ready", pool="ann/lab") == 2, "servers")
            began_s = time.monotonic()
            run.stop()
        assert time.monotonic() - began_s < 20
    assert run.error is None
    assert any(line["event"] == "traces.not_sent" for line in lines)


def test_without_the_extra_a_line_says_so_and_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces")
    monkeypatch.setitem(sys.modules, "poolsm_runners.traces.export", None)
    with capture_logs() as lines, Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
    (line,) = [line for line in lines if line["event"] == "traces.unavailable"]
    assert "poolsm[otel]" in line["remedy"]


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
    ],
)
def test_only_an_endpoint_switches_traces_on(environment, wanted):
    assert traces.are_wanted(environment) is wanted


def test_nothing_of_it_is_loaded_when_it_is_off(tmp_path):
    """Nor of Prometheus: who asks for neither pays for neither."""
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from poolsm_runners.runconfig import RunConfig\n"
        "from poolsm_runners.service import serve\n"
        "config = RunConfig(log=Path('log.db'), speed=20, stop_after_s=0.5)\n"
        "asyncio.run(serve(config, stop=asyncio.Event()))\n"
        "print(sorted({m.split('.')[0] for m in sys.modules}))\n"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "POOLSM_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "poolsm_runners" in done.stdout
    assert "opentelemetry" not in done.stdout
    assert "prometheus_client" not in done.stdout
