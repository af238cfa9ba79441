"""Metrics of real runs on the embedded cloud, read over HTTP by Prometheus' own parser."""

import gzip
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from poolsm.commands import COMMAND_TYPES
from poolsm.conditions import concerns
from poolsm.events import EVENT_TYPES
from poolsm.shapes import FleetView
from poolsm.vm import STATES
from poolsm_runners.cloud.operations import operation
from poolsm_runners.control_requests import Assign, Status
from poolsm_runners.metrics.address import Address, AddressError
from poolsm_runners.metrics.catalogue import COUNTER, HISTOGRAM, METRICS
from poolsm_runners.session import perform
from tests.unit.observing import Run, spec, until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two pools of which one is busy, until all is built; one request is granted, one waits."""
    log = tmp_path_factory.mktemp("metrics") / "log.db"
    pools = (spec(), spec("seats", "bob", 1, 1), spec("off", "bob", 0, 0))
    with Run(log, *pools) as running:
        running.until("/readyz", 200)
        until(lambda: all(p.reason == "Satisfied" for p in running.fleet().pools), "3 servers")
        for name, claimant in (("one", "eve"), ("two", "dan")):
            perform(log, Assign("bob/seats", name, claimant, 3600.0))
        until(
            lambda: running.value("poolsm_requests", state="granted") == 1, "the first is granted"
        )
        yield running


def agreeing(run):
    """A scrape and a status between which nothing happened."""

    def attempt():
        before = run.fleet()
        families = run.metrics()
        after = run.fleet()
        return before.position == after.position and (families, after)

    return until(attempt, "a quiet moment")


def test_the_numbers_are_those_of_status(run):
    families, fleet = agreeing(run)
    assert isinstance(fleet, FleetView)

    def of(name, **labels):
        return [s.value for s in families[name].samples if labels.items() <= s.labels.items()]

    for pool in fleet.pools:
        label = {"pool": str(pool.key)}
        shown = {
            "poolsm_pool_wanted": pool.min_vm,
            "poolsm_pool_owned": pool.owned,
            "poolsm_pool_capacity": pool.capacity,
            "poolsm_pool_ready": pool.ready,
            "poolsm_pool_attributed": pool.attributed,
            "poolsm_pool_pending_jobs": pool.pending_jobs,
            "poolsm_pool_requests_waiting": pool.requests_waiting,
            "poolsm_pool_commands_in_flight": pool.in_flight,
            "poolsm_pool_failures": pool.failures,
            "poolsm_pool_off_day": pool.off_day,
        }
        for name, value in shown.items():
            assert of(name, **label) == [value], (name, pool.key)
        assert of("poolsm_pool_max", **label) == ([pool.max_vm] if pool.max_vm else [])
        states = {
            s.labels["state"]: s.value
            for s in families["poolsm_pool_servers"].samples
            if s.labels["pool"] == str(pool.key) and s.value
        }
        assert states == pool.by_state
        assert of("poolsm_pool_breaker", **label, state=pool.breaker) == [1]
        assert sum(of("poolsm_pool_breaker", **label)) == 1
        assert {
            (s.labels["type"], s.labels["reason"])
            for s in families["poolsm_pool_condition"].samples
            if s.labels["pool"] == str(pool.key)
        } == {
            (c.type, c.reason)
            for c in pool.conditions
            if c.type == "Provisioned" or c in concerns(pool.conditions)
        }
    assert of("poolsm_log_position") == [fleet.position]
    assert of("poolsm_creations_in_flight") == [fleet.creations]
    assert of("poolsm_creations_limit") == [fleet.creations_limit]
    requests = Counter(request.state for request in fleet.assignments)
    assert requests == {"granted": 1, "waiting": 1}
    for state, count in requests.items():
        assert of("poolsm_requests", state=state) == [count]
    assert sum(of("poolsm_pool_requests_waiting")) == 1


def test_what_is_exposed_is_the_catalogue(run):
    """Names, kinds and labels: what the documentation and the dashboard are made from."""
    families = run.metrics()
    ours = {name: family for name, family in families.items() if name.startswith("poolsm_")}
    wanted = {m.name.removesuffix("_total"): m for m in METRICS.values()}
    assert ours.keys() == wanted.keys()
    for name, family in ours.items():
        metric = wanted[name]
        assert family.type == metric.kind, name
        extra = {"le"} if metric.kind == HISTOGRAM else set()
        for sample in family.samples:
            assert sample.labels.keys() - extra == set(metric.labels), sample
    assert {"process_resident_memory_bytes", "process_open_fds"} <= families.keys()


def test_names_and_units_follow_the_conventions():
    for metric in METRICS.values():
        assert re.fullmatch(r"poolsm_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") is (metric.kind == COUNTER), metric.name
        assert not re.search(r"_(ms|milliseconds|kb|mb|minutes|percent|count)\b", metric.name)
        assert bool(metric.buckets) is (metric.kind == HISTOGRAM), metric.name
        assert metric.kind != HISTOGRAM or metric.unit == "seconds"
        assert not metric.meaning.endswith("."), metric.name


def test_label_values_are_bounded(run):
    """No id of a server, command or request, no claimant, no message is a label."""
    standing, _ = perform(run.log, Status(vms=True))
    ids = {vm.server_id for vm in standing.vms} | {vm.key for vm in standing.vms}
    ids |= {vm.name for vm in standing.vms} | {"eve", "dan", "one", "two"}
    pools = {str(pool.key) for pool in standing.fleet.pools}
    words = {
        "pool": pools,
        "state": {*STATES, "active", "draining", "closed", "open", "half_open", "waiting"}
        | {"claiming", "granted", "refused", "expired", "released", "lost"},
        "command": {kind.__name__ for kind in COMMAND_TYPES},
        "event": {kind.__name__ for kind in EVENT_TYPES},
        "service": {"identity", "compute", "image", "network"},
    }
    seen = Counter()
    for name, family in run.metrics().items():
        if not name.startswith("poolsm_"):
            continue
        for sample in family.samples:
            for label, value in sample.labels.items():
                assert value not in ids, sample
                assert label not in words or value in words[label], sample
                seen[label] += 1
    assert seen["pool"] > 3
    assert seen["command"] > 2


def test_what_was_done_is_counted(run):
    assert run.value("poolsm_commands_issued_total", command="CreateServer") == 3
    assert run.value("poolsm_commands_answered_total", command="CreateServer", outcome="done") == 3
    families = run.metrics()

    def histogram(name, **labels):
        return {
            s.name.removeprefix(name): s.value
            for s in families[name].samples
            if labels.items() <= s.labels.items()
        }

    created = {"service": "compute", "operation": "create_server"}
    assert run.value("poolsm_api_requests_total", **created, status="202") == 3
    assert histogram("poolsm_api_request_duration_seconds", **created)["_count"] == 3
    assert histogram("poolsm_server_boot_duration_seconds")["_count"] == 3
    assert histogram("poolsm_command_duration_seconds", command="CreateServer")["_count"] == 3
    assert histogram("poolsm_command_wait_seconds", command="CreateServer")["_count"] == 3
    assert histogram("poolsm_request_wait_seconds", outcome="granted")["_count"] == 1
    listings = run.value("poolsm_listings_total", what="servers", outcome="complete")
    assert listings >= histogram("poolsm_listing_duration_seconds", what="servers")["_count"] > 0
    assert histogram("poolsm_tick_duration_seconds")["_count"] > 0
    assert histogram("poolsm_log_append_duration_seconds")["_count"] > 0
    assert run.value("poolsm_log_entries_total") > 10
    assert run.value("poolsm_events_total", event="CallAnswered") >= 4
    assert run.value("poolsm_event_fold_seconds_total", event="Ticked") > 0
    moved = {"source": "BUILD", "dest": "ACTIVE"}
    assert run.value("poolsm_server_transitions_total", **moved) > 0


def test_ages_and_sizes_are_of_now(run):
    assert 0 <= run.value("poolsm_listing_age_seconds") < 30
    assert run.value("poolsm_listing_age_limit_seconds") == 30
    assert run.value("poolsm_log_size_bytes", file="db") == run.log.stat().st_size
    assert run.value("poolsm_log_filesystem_avail_bytes") > 0
    assert run.value("poolsm_start_duration_seconds") > 0
    assert run.value("poolsm_listed_servers") == 3
    assert run.value("poolsm_run_phase", phase="running") == 1
    assert all(value == 1 for value in run.samples("poolsm_health_check").values())


def test_a_scrape_may_be_compressed_and_in_openmetrics(run):
    url = f"http://127.0.0.1:{run.port}/metrics"
    headers = {"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text; version=1.0.0"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        text = gzip.decompress(answer.read()).decode()
    assert text.endswith("# EOF\n")
    assert "poolsm_pool_capacity" in text


def test_other_paths_and_methods_are_refused_and_say_what_there_is(run):
    status, text = run.get("/")
    assert status == 404
    assert {"/metrics", "/livez", "/healthz", "/readyz"} <= set(text.split())
    with socket.create_connection(("127.0.0.1", run.port), 10) as client:
        client.sendall(b"DELETE /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 405 " in client.recv(100)


def test_silent_clients_do_not_keep_others_out(run):
    """One too many is hung up on; when they go, others are served."""
    idle = [socket.create_connection(("127.0.0.1", run.port), 10) for _ in range(30)]
    for client in idle:
        client.close()
    assert until(lambda: (run.get("/livez") or (0,))[0] == 200, "an answer")


def test_a_taken_port_is_an_error_before_anything_is_done(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with Run(tmp_path / "log.db", metrics=f"127.0.0.1:{port}") as run:
            pass
    assert isinstance(run.error, AddressError)
    assert f"127.0.0.1:{port}" in str(run.error)
    assert "--metrics" in str(run.error)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:9464", "127.0.0.1", 9464), ("[::1]:0", "::1", 0), ("localhost:1", "localhost", 1)],
)
def test_addresses(text, host, port):
    assert Address.parse(text) == Address(host, port)
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["9464", ":9464", "::1:9464", "h:", "h:65536", "h:+1", "[::1]", "h:x"]
)
def test_what_is_no_address_is_refused_with_an_example(text):
    with pytest.raises(AddressError, match=re.escape(repr(text)) + r".*127\.0\.0\.1:9464"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("service", "method", "path", "name"),
    [
        ("compute", "GET", "/servers/detail?limit=3", "list_servers"),
        ("compute", "GET", "/servers/4711", "read_server"),
        ("compute", "POST", "/servers", "create_server"),
        ("compute", "DELETE", "/servers/4711", "delete_server"),
        ("compute", "POST", "/servers/4711/action", "act_on_server"),
        ("compute", "POST", "/servers/4711/metadata", "write_metadata"),
        ("compute", "PUT", "/servers/4711", "rename_server"),
        ("image", "GET", "/images?limit=1000", "list_images"),
        ("compute", "PATCH", "/servers/4711", "other"),
        ("volume", "GET", "/volumes", "other"),
    ],
)
def test_requests_are_named_by_what_they_are(service, method, path, name):
    assert operation(service, method, path) == name


CODE = "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()"


@pytest.mark.parametrize(
    ("address", "code", "says"),
    [
        ("taken", 3, "poolsm: error: metrics at {}: cannot listen there (Address already in use)"),
        ("9464", 2, "poolsm: error: metrics address '9464': is no host:port; give one like"),
    ],
)
def test_the_command_line_says_in_one_line_what_is_wrong(tmp_path, address, code, says):
    """3 may mend itself and is tried again by a service manager; 2 is not."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        if address == "taken":
            address = f"127.0.0.1:{other.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", CODE, "run", "--metrics", address, "--for", "1"],
            cwd=tmp_path,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}", "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == code
    last = done.stderr.splitlines()[-1]
    assert last.startswith(says.format(address))
    assert not list(tmp_path.iterdir())
