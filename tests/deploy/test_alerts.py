"""Each alert's expression, over what a real run exposes: quiet while all is well, true when not.

The runs are on the embedded cloud, with the faults that the alerts are for. How long an alert
waits (``for:``) and rates are Prometheus' own business and are not looked at here.
"""

import threading
from pathlib import Path

import pytest
import yaml
from promql import LATER, now, parse

from poolsm.testing import Fault, SimulatedCloud
from poolsm_runners.cloud import embedded
from poolsm_runners.control_requests import Assign, Pause, Remove
from poolsm_runners.log.port import LogWriteError
from poolsm_runners.log.writer import SqliteLog
from poolsm_runners.session import perform
from tests.unit.observing import Run, spec, until

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "poolsm.rules.yml"
ALERTS = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
MOMENTARY = {
    name: parse(expression)
    for name, expression in ALERTS.items()
    if not any(word in expression for word in (*LATER, "absent"))
}
WHERE = {"job": "poolsm", "instance": "host:9464"}


@pytest.fixture
def cloud(monkeypatch):
    """The embedded cloud of the run, to be broken."""
    found = SimulatedCloud()
    monkeypatch.setattr(embedded, "SimulatedCloud", lambda: found)
    return found


def firing(run, within=MOMENTARY):
    """Alerts whose expression is true now, each with the labels that it is true for."""
    families = run.metrics()
    found = {name: now(tree, families, WHERE) for name, tree in within.items()}
    return {name: [dict(labels) for labels in hits] for name, hits in found.items() if hits}


def fires(run, name, seconds=30.0, **labels):
    """Wait until an alert is true, for these labels."""

    def hit():
        hits = firing(run, {name: MOMENTARY[name]}).get(name, [])
        return any(labels.items() <= found.items() for found in hits)

    until(hit, f"{name} {labels}", seconds)


def test_nearly_all_alerts_can_be_asked_of_one_moment():
    assert len(ALERTS) - len(MOMENTARY) <= 4


def test_all_is_well(tmp_path, cloud):
    with Run(tmp_path / "log.db", spec(), spec("warm", "admin", 1, 0, warm=True)) as run:
        run.until("/readyz", 200)
        until(lambda: all(p.ready >= p.min_vm for p in run.fleet().pools), "all servers")
        assert firing(run) == {}


def test_boots_that_fail(tmp_path, cloud):
    cloud.add_fault(Fault(kind="spawn_error", message="No valid host was found"))
    with Run(tmp_path / "log.db", speed=150) as run:
        run.until("/readyz", 200)
        fires(run, "PoolsmPoolBelowMinimum", pool="ann/lab")
        perform(run.log, Assign("ann/lab", "seat-1", "eve", 86_400.0))
        fires(run, "PoolsmRequestsWaiting", pool="ann/lab")
        fires(run, "PoolsmBreakerOpen", pool="ann/lab", state="open")
        perform(run.log, Remove("ann/lab"))  # a pool that is drained lacks nothing
        until(lambda: "PoolsmPoolBelowMinimum" not in firing(run), "it is quiet")


def test_a_quota(tmp_path, cloud):
    cloud.hands.set_quota(instances=0)
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        fires(run, "PoolsmQuotaExceeded", flavor="m1.tiny")


def test_a_declaration_that_can_never_succeed(tmp_path, cloud):
    refusal = Fault(kind="refuse", operations=("create",), status=400, message="no such thing")
    cloud.add_fault(refusal)
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        fires(run, "PoolsmSpecInvalid", pool="ann/lab")


def test_a_pause(tmp_path, cloud):
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        perform(run.log, Pause("ann/lab", "maintenance"))
        fires(run, "PoolsmPausedForLong", pool="ann/lab")
        perform(run.log, Pause())
        until(lambda: len(firing(run)["PoolsmPausedForLong"]) == 2, "pool and fleet")


def test_a_fleet_that_is_lost(tmp_path, cloud):
    with Run(tmp_path / "log.db", spec(min_vm=8, max_vm=9), speed=60) as run:
        run.until("/readyz", 200)
        until(lambda: run.fleet().pools[0].ready == 8, "eight servers")
        run.do(lambda: [cloud.hands.vanish(s.server_id) for s in cloud.live_servers()])
        fires(run, "PoolsmLossSuspected")
        fires(run, "PoolsmSuspended", pool="ann/lab", reason="FleetLost")


def test_a_deletion_that_has_no_effect(tmp_path, cloud):
    with Run(tmp_path / "log.db", speed=150) as run:
        run.until("/readyz", 200)
        until(lambda: run.fleet().pools[0].ready == 2, "two servers")
        run.do(lambda: cloud.add_fault(Fault(kind="ignore", operations=("delete",))))
        perform(run.log, Remove("ann/lab"))
        fires(run, "PoolsmDeletionStuck", 60, pool="ann/lab")


def test_a_cloud_that_lists_no_more(tmp_path, cloud):
    with Run(tmp_path / "log.db", speed=60) as run:
        run.until("/readyz", 200)
        assert "PoolsmListingStale" not in firing(run)
        run.do(lambda: cloud.add_fault(Fault(kind="refuse", operations=("list",), status=500)))
        fires(run, "PoolsmListingStale")


def test_a_log_that_cannot_be_written(tmp_path, cloud, monkeypatch):
    append, full = SqliteLog.append, threading.Event()

    async def failing(self, entries):
        if full.is_set():
            raise LogWriteError("log.db: cannot be written (database or disk is full)")
        await append(self, entries)

    monkeypatch.setattr(SqliteLog, "append", failing)
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        full.set()
        fires(run, "PoolsmLogWriteFailing", check="log")
        full.clear()


def test_a_loop_that_hangs(tmp_path, cloud, monkeypatch):
    monkeypatch.setattr("poolsm_runners.health.checks.LOOP_LIMIT_S", 1.0)
    monkeypatch.setattr("poolsm_runners.metrics.survey.HANGING_S", 0.9)
    released = threading.Event()
    with Run(tmp_path / "log.db") as run:
        run.until("/readyz", 200)
        run.soon(lambda: released.wait(20))
        fires(run, "PoolsmLoopHangs", check="loop")
        released.set()
