"""Is it alive, healthy, ready: a loop that hangs, a log that fails, a cloud that is away."""

import asyncio
import os
import re
import socket
import threading
import time

import pytest
from structlog.testing import capture_logs

from poolsm.events import ListingCompleted, Ticked
from poolsm_runners.clock import WallClock
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import ListingError
from poolsm_runners.health import checks, watchdog
from poolsm_runners.health.checks import healthy, live, ready
from poolsm_runners.health.systemd import Notifier
from poolsm_runners.health.vitals import Phase, Vitals
from poolsm_runners.log.port import LogWriteError
from poolsm_runners.log.writer import SqliteLog
from poolsm_runners.metrics import survey
from tests.unit.observing import Run, until


@pytest.fixture
def impatient(monkeypatch):
    """Limits of a second instead of ten."""
    monkeypatch.setattr(checks, "LOOP_LIMIT_S", 1.0)
    monkeypatch.setattr(survey, "HANGING_S", 0.9)
    monkeypatch.setattr(watchdog, "LOOK_EVERY_S", 0.05)


class Manager:
    """The service manager's side of sd_notify."""

    def __init__(self, address):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(0.01)
        self._heard = []

    def heard(self):
        while True:
            try:
                self._heard += self._socket.recv(4096).decode().split("\n")
            except TimeoutError:
                return list(self._heard)

    def close(self):
        self._socket.close()


@pytest.fixture
def manager(tmp_path, monkeypatch):
    address = str(tmp_path / "notify")
    found = Manager(address)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    yield found
    found.close()


class Stuck:
    """A watcher that blocks the loop once, when it is told to."""

    def __init__(self):
        self.wanted = threading.Event()
        self.released = threading.Event()
        self.is_stuck = threading.Event()

    def watcher(self, engine):
        def watch(event, step):
            if self.wanted.is_set():
                self.wanted.clear()
                self.read_a_slow_disk()

        return watch

    def read_a_slow_disk(self):
        self.is_stuck.set()
        while not self.released.is_set():
            time.sleep(0.05)


def test_a_loop_that_hangs_is_unhealthy_named_and_not_fed(tmp_path, impatient, manager):
    stuck = Stuck()
    with capture_logs() as lines, Run(tmp_path / "log.db", watchers=[stuck.watcher]) as run:
        run.until("/readyz", 200)
        until(lambda: "WATCHDOG=1" in manager.heard(), "it is fed")
        capacity = run.samples("poolsm_pool_capacity")
        stuck.wanted.set()
        assert stuck.is_stuck.wait(10)
        for path in ("/livez", "/healthz", "/readyz"):
            answer = run.until(path, 503)
            assert answer["ok"] is False
            assert re.match(
                r"the event loop hangs: .* \d+\.\d s ago", answer["checks"]["loop"]["text"]
            )
        until(lambda: any(line["event"] == "loop.hangs" for line in lines), "a line")
        fed = manager.heard().count("WATCHDOG=1")
        # metrics are answered, too: what was, and for how long nothing has been
        assert run.value("poolsm_loop_heartbeat_age_seconds") > 1
        assert run.value("poolsm_health_check", check="loop") == 0
        assert run.value("poolsm_loop_hangs_total") == 1
        assert run.samples("poolsm_pool_capacity") == capacity
        assert manager.heard().count("WATCHDOG=1") == fed
        assert any("STATUS=the event loop hangs" in text for text in manager.heard())
        stuck.released.set()
        run.until("/readyz", 200)
        until(lambda: manager.heard().count("WATCHDOG=1") > fed, "it is fed again")
        until(lambda: any(line["event"] == "loop.recovered" for line in lines), "a line")
    (hang,) = [line for line in lines if line["event"] == "loop.hangs"]
    assert re.fullmatch(r"unit/test_health\.py:\d+ read_a_slow_disk", hang["where"])
    assert "engine.py" in hang["stack"]
    assert "/asyncio/" not in hang["stack"]


def test_ticks_that_do_not_end_are_seen_though_the_loop_runs(tmp_path, impatient, monkeypatch):
    """An append that does not return: the loop beats, but nothing is decided any more."""
    monkeypatch.setattr(checks, "TICK_LIMIT_S", 1.0)
    held = threading.Event()
    append = SqliteLog.append

    door = asyncio.Lock()  # what comes later stays later

    async def slow(self, entries):
        async with door:
            if any(isinstance(entry.event, Ticked) for entry in entries) and not held.is_set():
                await wait_for_the_disk()
            await append(self, entries)

    async def wait_for_the_disk():
        while not held.is_set():
            await asyncio.sleep(0.02)

    monkeypatch.setattr(SqliteLog, "append", slow)
    with capture_logs() as lines, Run(tmp_path / "log.db") as run:
        answer = run.until("/livez", 503)
        assert answer["checks"]["loop"]["ok"]
        assert answer["checks"]["tick"]["text"].startswith("ticks do not end: last tick 1.")
        late = until(lambda: [line for line in lines if line["event"] == "loop.late"], "a line")
        assert re.search(r"unit/test_health\.py:\d+ wait_for_the_disk", late[0]["waiting"])
        held.set()
        run.until("/healthz", 200)


def test_a_log_that_cannot_be_written_is_unhealthy_but_alive(tmp_path, monkeypatch):
    """A restart does not mend a disk: the service manager goes on being fed."""
    append, full = SqliteLog.append, threading.Event()

    async def failing(self, entries):
        if full.is_set():
            raise LogWriteError("log.db: cannot be written (database or disk is full)")
        await append(self, entries)

    monkeypatch.setattr(SqliteLog, "append", failing)
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        full.set()
        run.until("/healthz", 503)
        until(lambda: run.asked("/healthz")[1]["phase"] == "log_failed", "the run knows")
        answer = run.until("/healthz", 503)
        assert "disk is full" in answer["checks"]["log"]["text"]
        assert answer["checks"]["loop"]["ok"]
        assert answer["checks"]["tick"]["ok"]
        assert run.asked("/livez")[0] == 200
        assert run.value("poolsm_log_failures_total") >= 1
        assert run.value("poolsm_health_check", check="log") == 0
        full.clear()
        run.until("/readyz", 200)


def test_a_cloud_that_is_away_is_healthy_but_not_ready(tmp_path, monkeypatch, manager):
    away = threading.Event()
    away.set()
    projects = Gateway.projects

    async def absent(self):
        if away.is_set():
            raise ListingError("no route to host", transport_error="connection")
        return await projects(self)

    monkeypatch.setattr(Gateway, "projects", absent)
    with Run(tmp_path / "log.db") as run:
        run.until("/livez", 200)
        until(lambda: run.asked("/livez")[1]["phase"] == "connecting", "the log is open")
        answer = run.until("/readyz", 503)
        assert answer["checks"]["listed"]["text"] == "the cloud is not looked at: connecting"
        assert run.asked("/healthz")[0] == 200
        assert "READY=1" in manager.heard()  # the service is up: it waits for its cloud
        away.clear()
        run.until("/readyz", 200)


def test_the_service_manager_is_told_the_whole_run(tmp_path, manager):
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        until(lambda: any("2 VMs" in text for text in manager.heard()), "a status line")
    heard = manager.heard()
    assert heard.count("READY=1") == 1
    assert "WATCHDOG=1" in heard
    assert "STOPPING=1" in heard
    status = next(text for text in heard if "2 VMs" in text)
    assert re.fullmatch(r"STATUS=running: 1 pools, 2 VMs, listed \d+ s ago", status)


# --- the questions themselves ---------------------------------------------------------------


class Time:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def vitals():
    found = Vitals(WallClock(), now_s=Time())
    found.enter(Phase.RUNNING)
    return found


def test_the_limits(vitals):
    vitals.now_s.now_s += checks.LOOP_LIMIT_S
    assert live(vitals).ok
    vitals.now_s.now_s += 0.1
    assert [check.name for check in live(vitals).failed] == ["loop"]
    vitals.beat_s, vitals.phase_s = vitals.now_s(), 0.0
    vitals.tick_s = vitals.now_s() - checks.TICK_LIMIT_S
    assert live(vitals).ok
    vitals.tick_s -= 0.1
    assert [check.name for check in live(vitals).failed] == ["tick"]
    vitals.enter(Phase.LOG_FAILED)  # no tick is due then
    assert live(vitals).ok


def test_a_stop_is_the_end(vitals):
    vitals.enter(Phase.STOPPING)
    vitals.log_failed("full")
    assert vitals.phase is Phase.STOPPING
    assert live(vitals).ok
    assert not healthy(vitals).ok
    assert not ready(vitals).ok


def test_a_stale_listing_is_not_ready(tmp_path, monkeypatch):
    listings, failing = Gateway.list_servers, threading.Event()

    async def fail(self):
        if failing.is_set():
            raise ListingError("503 busy", http_status=503)
        return await listings(self)

    monkeypatch.setattr(Gateway, "list_servers", fail)
    with Run(tmp_path / "log.db", speed=60) as run:
        run.until("/readyz", 200)
        failing.set()
        answer = run.until("/readyz", 503)
        text = answer["checks"]["fresh"]["text"]
        assert re.fullmatch(
            r"the last complete listing is \d+\.\d s old, the limit is 30 s; last error: 503 busy",
            text,
        )
        assert answer["checks"]["listed"]["ok"]
        assert run.asked("/healthz")[0] == 200
        failed = run.value("poolsm_listings_total", what="servers", outcome="failed")
        assert failed >= 1
        failing.clear()
        run.until("/readyz", 200)


# --- sd_notify ------------------------------------------------------------------------------


def test_without_a_service_manager_nothing_is_sent():
    notifier = Notifier({})
    assert not notifier
    notifier.ready("up")


def test_a_manager_that_is_gone_does_no_harm(tmp_path):
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    notifier.alive("up")
    notifier.stopping()


def test_an_abstract_address_and_a_status_of_several_lines():
    name = f"poolsm-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready("one\ntwo")
    assert manager.heard() == ["READY=1", "STATUS=one two"]
    manager.close()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_is_ours_only_if_it_says_so(environment, seconds):
    assert Notifier({"NOTIFY_SOCKET": "/x", **environment}).watchdog_s == seconds


def test_listings_are_noted_though_nothing_changed(tmp_path):
    """A quiet fleet stores nothing, and still is fresh."""
    listed = []

    def watcher(engine):
        return lambda event, step: (
            listed.append(event) if isinstance(event, ListingCompleted) else None
        )

    with Run(tmp_path / "log.db", speed=60, watchers=[watcher]) as run:
        run.until("/readyz", 200)
        count = len(listed)
        until(lambda: len(listed) > count + 15, "15 listings, more than 30 s of them")
        assert run.asked("/readyz")[0] == 200
