"""The log's disk is full, slow or broken under a running runner; the cloud's side is counted.

A create that the cloud saw is in the log as dispatched (C8); the runner goes on by itself once
the disk does; each create command made one server; a replay finds no difference (I8).
"""

import errno
import os
import time
from contextlib import contextmanager, suppress

import pytest

from poolsm.events import CommandsDispatched
from poolsm_runners.log import sqlite
from tests.chaos import replaying
from tests.chaos.killing import Wanted, reckon, unrest
from tests.chaos.served_churn import COMMON, QUICK
from tests.chaos.sides import ServedSide
from tests.integration.running import RunnerProcess, pool_file, until
from tests.integration.served import INFRA, VM, serving
from tests.machine.failing import Machine, small_disk

pytestmark = pytest.mark.timeout(180)


class Town:
    """One runner on one pool of a served cloud."""

    def __init__(self, tmp_path, folder, cloud):
        self.cloud = cloud
        self.side = ServedSide(cloud)
        self.file = tmp_path / "pools.toml"
        self.runner = RunnerProcess(folder, VM, INFRA, clouds_yaml=cloud.clouds_yaml, times=QUICK)
        self.runner._output = tmp_path / "runner.out"  # on a disk that is well
        self.runner._lines = tmp_path / "runner.log"

    def declare(self, size):
        pool = {"id": "p", "user": "u", "min_vm": size, "max_vm": 40, "flavor": "m1.tiny"}
        return pool_file(self.file, {**pool, **COMMON})

    def apply(self, size):
        self.runner.apply(self.declare(size))

    def kill_one(self):
        """A server is gone by another hand, so there is something to do."""
        server_id = self.cloud.live("p")[0].server_id
        deed = {"action": "kill", "arguments": {"server_id": server_id}}
        self.cloud.sim("POST", "/hands", deed)

    def full(self, size):
        return len(self.cloud.live("p")) == size

    def assert_whole(self, size):
        """It goes on by itself, and the cloud's account is right."""
        wanted = [Wanted("p", size, 40)]
        until("rest", lambda: not unrest(self.runner, self.side, wanted), 60, 0.3)
        print(reckon(self.runner, self.side, wanted, silence_s=2.0))
        assert self.runner.running
        self.runner.terminate()
        dispatched = {
            command_id
            for entry in sqlite.open_read_only(self.runner.log).read()
            if isinstance(entry.event, CommandsDispatched)
            for command_id in entry.event.command_ids
        }
        assert set(self.cloud.creates()) <= dispatched, "C8: sent, and not in the log"
        replaying.assert_replays(self.runner.log)


@contextmanager
def town(tmp_path, folder):
    with serving(tmp_path / "cloud", options=("--seed", "3", "--speed", "4")) as cloud:
        found = Town(tmp_path, folder, cloud)
        try:
            yield found
        finally:
            found.runner.end()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path, tmp_path / "runner" / "fleet.db")


def filled_up(disk):
    """A file that takes all the room there is."""
    ballast = disk / "ballast"
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        with suppress(OSError):
            while os.write(fd, bytes(4096)):
                pass
    finally:
        os.close(fd)
    return ballast


def said(runner, what):
    return what in runner.output()


def test_a_disk_that_fills_up_stops_everything_and_nothing_twice(tmp_path):
    with small_disk(tmp_path / "disk", 4000) as disk, town(tmp_path, disk / "runner") as t:
        t.runner.start()
        t.runner.wait_listed()
        t.apply(3)
        until("three", lambda: t.full(3), 30)
        ballast = filled_up(disk)
        t.kill_one()
        until("the runner says so", lambda: said(t.runner, "log.failed"), 60)
        before = t.cloud.creates()
        time.sleep(3)
        assert t.cloud.creates() == before, "nothing is sent that cannot be logged"
        assert t.runner.standing().fleet.pools, "it is asked, and answers"
        ballast.unlink()
        until("the log is open again", lambda: said(t.runner, "log.reopened"), 60)
        t.assert_whole(3)


@pytest.mark.parametrize(
    ("call", "number"),
    [("fsync", errno.EIO), ("write", errno.ENOSPC), ("read", errno.EIO)],
)
def test_a_disk_that_fails_is_not_trusted_and_its_log_is_read_again(
    tmp_path, machine, call, number
):
    """After a failed fsync the pages may be lost though a later one succeeds: so what is in
    memory is dropped, and only what is then read from the log counts."""
    with town(tmp_path, tmp_path / "runner") as t:
        with machine.env():
            t.runner.start()
        t.runner.wait_listed()
        t.apply(2)
        until("two", lambda: t.full(2), 30)
        machine.fail(call, number)
        for _ in range(2):
            t.kill_one()
            time.sleep(1.5)
        assert call == "read" or said(t.runner, "log.failed"), t.runner.output()
        assert t.runner.running
        machine.mend(call)
        t.assert_whole(2)


def test_a_slow_disk_delays_and_loses_nothing(tmp_path, machine):
    with town(tmp_path, tmp_path / "runner") as t:
        machine.fail("slow", 700)
        with machine.env():
            t.runner.start()
        t.runner.wait_listed(60)
        t.apply(3)
        until("three", lambda: t.full(3), 60)
        machine.mend("slow")
        t.assert_whole(3)


@pytest.mark.parametrize("there", [False, True])
def test_a_disk_that_is_full_at_the_start_is_one_line_and_no_half_log(tmp_path, there):
    with small_disk(tmp_path / "disk", 1000) as disk, town(tmp_path, disk / "runner") as t:
        if there:
            t.runner.start()
            t.runner.wait_listed()
            t.runner.terminate()
        ballast = filled_up(disk)
        t.runner.start()
        assert t.runner.wait(30) != 0
        said = t.runner.output()
        assert "Traceback" not in said
        assert str(t.runner.log) in said
        assert t.runner.log.exists() is there
        ballast.unlink()
        t.runner.start()
        t.runner.wait_listed()
        t.apply(2)
        t.assert_whole(2)
