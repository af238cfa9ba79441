"""Metrics of `poolsm run` on a served cloud, through openstacksdk: as the cloud counts."""

import os
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from poolsm.testing import Fault
from tests.integration.served import VM, serving
from tests.unit.observing import free_port, until

ROOT = Path(__file__).parents[2]
CODE = "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()"
POOL = """[[pool]]
id = "lab"
user = "ann"
image = "worker-image"
flavor = "m1.tiny"
networks = ["lab-net"]
min_vm = 2
max_vm = 3
"""
# operation of ours: those of the cloud's own account
OPERATIONS = {
    "create_server": "create",
    "list_servers": "list",
    "list_images": "images",
    "list_flavors": "flavors",
    "list_networks": "networks",
}


@pytest.fixture
def cloud(tmp_path):
    with serving(tmp_path / "cloud") as found:
        yield found


def _start(folder, cloud, port, lines):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "POOLSM_"))}
    return subprocess.Popen(
        [sys.executable, "-c", CODE, "run", "pools.toml", "--json"],
        cwd=folder,
        env={
            **clean,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}",
            "OS_CLOUD": VM,
            "OS_CLIENT_CONFIG_FILE": cloud.clouds_yaml,
            "POOLSM_METRICS": f"127.0.0.1:{port}",
        },
        stderr=lines,
    )


@contextmanager
def running(folder, cloud):
    """`poolsm run`; a function that scrapes it."""
    (folder / "pools.toml").write_text(POOL)
    port = free_port()
    with (folder / "lines").open("wb") as lines:
        process = _start(folder, cloud, port, lines)

    def scrape():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def listens():
        try:
            return bool(scrape())
        except OSError:
            assert process.poll() is None, (folder / "lines").read_text()
            return False

    try:
        until(listens, "it listens", 30)
        yield scrape
    finally:
        process.terminate()
        process.wait(30)


def requests_of(samples):
    """Requests by operation, and by status."""
    operations, statuses = Counter(), Counter()
    for (name, *labels), value in samples.items():
        if name == "poolsm_api_requests_total":
            found = dict(labels)
            operations[found["operation"]] += int(value)
            statuses[found["operation"], found["status"]] += int(value)
    return operations, statuses


def ready(scrape):
    return scrape().get(("poolsm_pool_ready", ("pool", "ann/lab")), 0)


def test_requests_are_counted_as_the_cloud_counts_them(tmp_path, cloud):
    with running(tmp_path, cloud) as scrape:
        until(lambda: ready(scrape) == 2, "two servers", 40)
        cloud.set_faults(Fault(kind="refuse", operations=("list",), status=500))
        failed = ("poolsm_listings_total", ("outcome", "failed"), ("what", "servers"))
        until(lambda: scrape()[failed] >= 1, "a listing failed", 30)
        cloud.heal()
        before = cloud.calls()
        operations, statuses = requests_of(scrape())
        after = cloud.calls()
    assert operations["other"] == 0
    for ours, its in OPERATIONS.items():
        assert operations[ours] > 0, ours
        # the cloud counts when it is asked, the runner when it was answered
        assert before[its] - 1 <= operations[ours] <= after[its], (ours, operations, after)
    assert operations["create_server"] == after["create"] == 2
    assert statuses["create_server", "202"] == 2
    assert statuses["list_servers", "500"] >= 1
    assert operations["authenticate"] >= 1
