"""Moving in, end to end on the served cloud: from the old service's leavings to a quiet runner."""

import json
import os
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing

import openstack
import pytest
from attrs import frozen

from poolsm.replay import replay
from poolsm.testing import QUICK, CloudConfig, image_id_of, network_id_of
from poolsm_runners.control_requests import Release
from poolsm_runners.log import sqlite
from tests.integration.moving import Operator
from tests.integration.oldservice import OldService
from tests.integration.running import ROOT, RunnerProcess, until
from tests.integration.served import INFRA, VM, serving

IMPOSSIBLE = "99"
WRONG_IN_METADATA = ("metadata is wrong", "unknown to the database")


@pytest.fixture
def moving(tmp_path):
    """A served cloud with an old service on it, and an operator."""
    with serving(tmp_path / "cloud", CloudConfig(speeds=QUICK)) as cloud:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            config = openstack.config.OpenStackConfig(
                config_files=[cloud.clouds_yaml], load_envvars=False
            )
            connection = openstack.connection.Connection(config=config.get_one(cloud=VM))
        old = OldService(
            tmp_path / "openstack.db",
            connection,
            image=image_id_of("worker-image"),
            flavor="1",
            network=network_id_of("lab-net"),
        )
        yield cloud, old, Operator(tmp_path, cloud.clouds_yaml, VM, INFRA)
        connection.close()


def bytes_of(path):
    return {
        file.name: file.read_bytes()
        for file in path.parent.iterdir()
        if file.name.startswith(path.name)
    }


@frozen
class Left:
    """What the old service left behind: server ids."""

    warm: tuple[str, ...]
    theirs: dict[str, str]  # by who says so
    free: str
    unproven: str
    broken: str
    broken_free: str
    stranger: str

    @property
    def free_ones(self) -> set[str]:
        return {*self.warm, self.free, self.unproven}


def leave(old):
    old.pool("pool_vms", "admin", min_vm=2, max_vm=0)
    old.pool("intro", "alice", min_vm=2, max_vm=4, config_id="intro-config")
    old.pool("exam", "bob", min_vm=1, max_vm=2)
    old.config("system", "intro-config", "#!/bin/sh\necho sesame\n")
    left = Left(
        warm=tuple(old.server("pool_vms", "admin", tag="false", row=False) for _ in range(2)),
        theirs={
            "both": old.server("intro", "alice", tag="true", row=True),
            "database alone": old.server("intro", "alice", tag=None, row=True),
            "metadata is wrong": old.server("exam", "bob", tag="false", row=True),
            "unknown to the database": old.server("exam", "bob", tag="false", row=None),
            "database is wrong": old.server("exam", "bob", tag="true", row=False),
        },
        free=old.server("intro", "alice", tag="false", row=False),
        unproven=old.server("intro", "alice", tag=None, row=False),
        broken=old.server("exam", "bob", tag="true", row=True, flavor=IMPOSSIBLE),
        broken_free=old.server("intro", "alice", tag="false", row=False, flavor=IMPOSSIBLE),
        stranger=old.stranger(),
    )
    old.row("00000000-0000-4000-8000-000000000000", "exam", "bob", attributed=True)
    old.settled(30)
    assert {old.statuses()[left.broken], old.statuses()[left.broken_free]} == {"ERROR"}
    return left


def test_the_whole_cut_over(moving, tmp_path):
    cloud, old, operator = moving
    left = leave(old)
    there = set(old.statuses())
    before, files = cloud.writes(), bytes_of(old.path)
    refuse_while_it_is_used(old, operator)

    report = operator.migrate(old.path, "--dry-run", "--watch", "0.5")
    assert not report["declared"]
    assert not operator.log.exists()
    table = {row["key"]: row for row in report["pools"]}
    counts = {k: (r["vms"], r["attributed"], r["free"], r["unknown"]) for k, r in table.items()}
    assert counts == {
        "admin/pool_vms": (2, 0, 2, 0),
        "alice/intro": (5, 2, 3, 0),
        "bob/exam": (4, 3, 0, 1),
    }
    assert (report["others"], len(report["gone"])) == (1, 1)
    assert "sesame" not in str(report)
    done = operator.migrate(old.path, "--watch", "0.5")
    assert done["declared"]
    assert [row["outcome"] for row in done["pools"]] == ["declared"] * 3
    assert done["configs"][0]["size_bytes"] == len("#!/bin/sh\necho sesame\n")
    assert "sesame" not in str(done)

    # Exactly what the metadata does not say yet, and nothing else.
    would = operator.rehearse_run()
    claims = {left.unproven, *map(left.theirs.get, WRONG_IN_METADATA)}
    asked = {line.split()[3].rstrip(":"): line.split()[2] for line in would}
    assert asked == {**dict.fromkeys(claims, "ClaimServer"), left.broken_free: "DeleteServer"}
    assert bytes_of(old.path) == files
    assert cloud.writes() == before
    assert set(old.statuses()) == there

    runner = RunnerProcess(tmp_path, VM, INFRA, clouds_yaml=cloud.clouds_yaml)
    runner.start()
    try:
        runner.wait_listed()
        take_over(runner, old, left)
        until("nobody's failed one is gone", lambda: left.broken_free not in old.statuses(), 30)
        assert set(old.statuses()) == there - {left.broken_free}
        assert not cloud.creates()
        go_on(runner, old, left)
        runner.terminate()
    finally:
        runner.end()
    assert operator.rehearse_run() == ["would do nothing"]  # from here on
    go_back(operator, old, left)
    assert replay(sqlite.open_read_only(operator.log).read()).same


def refuse_while_it_is_used(old, operator):
    """The dry run says that the old service has its database open, the migration refuses."""
    files = bytes_of(old.path)
    with closing(sqlite3.connect(old.path)) as service:
        service.execute("SELECT count(*) FROM servers").fetchall()
        rehearsed = operator.migrate(old.path, "--dry-run", "--watch", "0.5")
        assert any("still uses it" in text for text in rehearsed["warnings"])
        refused = operator.poolsm("migrate", old.path, "--cloud", VM, "--watch", "0.5", check=1)
        assert f"pid {os.getpid()}" in refused.stderr
        assert not operator.log.exists()
    assert bytes_of(old.path) == files


def take_over(runner, old, left):
    """Whose each VM is, in poolsm and, where it said otherwise, in its metadata."""
    until("it is free by its metadata", lambda: tag_of(old, left.unproven) == "false", 30)
    for key in WRONG_IN_METADATA:
        until(f"attributed by its metadata: {key}", is_attributed(old, left.theirs[key]), 30)
    assert "reattrib" not in old.tags(left.theirs["database alone"])  # the log knows it
    until("the free one is known to be free", lambda: not held_of(runner, left.unproven), 30)
    held = {vm.server_id: vm for vm in runner.vms()}
    attributed = {key for key, vm in held.items() if vm.attributed}
    assert attributed == {*left.theirs.values(), left.broken}
    assert set(held) - attributed - {left.broken_free} == left.free_ones
    assert "second_manager" not in runner.anomalies()


def go_on(runner, old, left):
    """poolsm does its work, and notices when the old service comes back."""
    there = set(old.statuses())
    given_back = left.theirs["both"]
    runner.ask(Release(given_back))
    until("it is gone", lambda: given_back not in old.statuses(), 40)
    assert set(old.statuses()) == there - {given_back}
    intruder = old.server("exam", "bob", tag="false", row=None)
    until("a second manager", lambda: "SecondManager" in reasons(runner, "exam"), 40)
    assert intruder in old.statuses()


def go_back(operator, old, left):
    """The old file learns whose each VM is by now, the way the documentation says."""
    script = ROOT / "docs/examples/attributed_sql.py"
    told = operator.poolsm("status", "--vms", "--json").stdout
    made = subprocess.run(
        [sys.executable, script], input=told, capture_output=True, text=True, check=True
    )
    with closing(sqlite3.connect(old.path)) as connection:
        connection.executescript(made.stdout)
        rows = dict(connection.execute("SELECT id, reattrib FROM servers"))
        pools = dict(connection.execute("SELECT id, serverpool_id FROM servers"))
    attributed = {vm["server_id"] for vm in json.loads(told)["vms"] if vm["attributed"]}
    assert attributed == {server_id for server_id in rows if rows[server_id]} & attributed
    assert left.theirs["unknown to the database"] in attributed
    assert pools[left.theirs["unknown to the database"]] == "exam"
    assert {rows[server_id] for server_id in left.free_ones} == {0}


def tag_of(old, server_id):
    return old.tags(server_id).get("reattrib")


def is_attributed(old, server_id):
    return lambda: tag_of(old, server_id) == "true"


def reasons(runner, pool):
    return {condition.reason for condition in runner.pool(pool).conditions}


def held_of(runner, server_id):
    return next(vm.attributed for vm in runner.vms() if vm.server_id == server_id)


def test_again_after_the_runner_ran_changes_nothing(moving, tmp_path):
    cloud, old, operator = moving
    old.pool("intro", "alice", min_vm=1, max_vm=2)
    old.server("intro", "alice", tag="false", row=True)
    old.settled(30)
    operator.migrate(old.path, "--watch", "0")
    first = operator.status()["fleet"]["position"]
    operator.migrate(old.path, "--watch", "0")
    assert operator.status()["fleet"]["position"] == first
    runner = RunnerProcess(tmp_path, VM, INFRA, clouds_yaml=cloud.clouds_yaml)
    runner.start()
    try:
        runner.wait_listed()
        until("it is known", lambda: len(runner.vms("intro")) == 1, 30)
        again = operator.migrate(old.path, "--watch", "0")  # the runner is asked, and runs on
        assert [row["outcome"] for row in again["pools"]] == ["unchanged"]
        assert not cloud.creates()
        runner.terminate()
    finally:
        runner.end()


def test_rows_that_are_wrong_declare_nothing_unless_they_are_left_out(moving):
    _, old, operator = moving
    old.pool("intro", "alice", min_vm=1, max_vm=2)
    old.pool("wrong", "alice", min_vm=5, max_vm=2)
    report = operator.migrate(old.path, "--watch", "0", check=1)
    assert len(report["problems"]) == 1
    assert not operator.log.exists()
    shown = operator.poolsm("migrate", old.path, "--cloud", VM, "--watch", "0", check=1)
    assert 'serverpools[2] "alice/wrong".min_vm = 5' in shown.stderr
    assert "nothing is declared" in shown.stdout
    operator.migrate(old.path, "--watch", "0", "--skip-invalid")
    assert [p["key"] for p in operator.status()["fleet"]["pools"]] == ["alice/intro"]


def test_a_cloud_that_is_not_there_is_one_line(moving):
    _, old, operator = moving
    done = operator.poolsm("migrate", old.path, "--cloud", "nowhere", "--watch", "0", check=3)
    assert done.stderr.splitlines()[-1].startswith("poolsm: error: cloud nowhere: ")
    assert not operator.log.exists()
    operator.poolsm("migrate", old.path, "--cloud", "sim", check=2)
