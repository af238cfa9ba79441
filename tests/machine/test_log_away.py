"""The log is taken away from a running runner, put back, and asked about meanwhile."""

import asyncio
import subprocess

import pytest

from poolsm_runners.control import RunnerAwayError
from poolsm_runners.control_requests import Pause
from poolsm_runners.log import sqlite
from poolsm_runners.log.backup import backup, restore
from poolsm_runners.log.port import LogWriteError
from tests.chaos import replaying
from tests.chaos.killing import Wanted, reckon, unrest
from tests.integration.running import until
from tests.machine.failing import small_disk
from tests.machine.test_disk import filled_up, said, town

pytestmark = pytest.mark.timeout(180)


def begun(t, size=2):
    t.runner.start()
    t.runner.wait_listed()
    t.apply(size)
    until("full", lambda: t.full(size), 30)
    until("ready", lambda: t.runner.pool("p").ready == size, 30)


def test_a_log_that_is_moved_away_or_replaced_is_waited_for(tmp_path):
    """SQLite writes on into a file without that name, and sees no error."""
    with town(tmp_path, tmp_path / "runner") as t:
        begun(t)
        log, wal = t.runner.log, t.runner.log.with_name("fleet.db-wal")
        log.rename(tmp_path / "away.db")
        t.kill_one()
        until("it is missed", lambda: said(t.runner, "fleet.db was removed; put it back"), 30)
        before = t.cloud.creates()
        until("it is waited for", lambda: said(t.runner, "no such log"), 30)
        assert not log.exists(), "no new log is begun in its place"
        asyncio.run(another_log(log))
        until("another log is refused", lambda: said(t.runner, "is of another log"), 60)
        wal.rename(tmp_path / "wal")
        until("without the rest as well", lambda: said(t.runner, "is another log ("), 60)
        assert t.cloud.creates() == before, "nothing is sent that is in no log"
        (tmp_path / "away.db").replace(log)
        (tmp_path / "wal").rename(wal)
        t.assert_whole(2)


async def another_log(path):
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    await (await sqlite.create(elsewhere / path.name, created_ms=0)).close()
    (elsewhere / path.name).rename(path)


def test_a_log_that_is_replaced_while_it_is_written_is_missed(tmp_path):
    async def write():
        log = await sqlite.create(tmp_path / "fleet.db", created_ms=0)
        await log.put_secret("one")
        (tmp_path / "fleet.db").rename(tmp_path / "away.db")
        await another_log(tmp_path / "fleet.db")
        with pytest.raises(LogWriteError, match=r"fleet\.db was replaced by another file"):
            await log.put_secret("two")
        await log.close()

    asyncio.run(write())


def test_files_beside_the_log_that_are_removed_lose_nothing(tmp_path):
    with town(tmp_path, tmp_path / "runner") as t:
        begun(t)
        for count, lost in enumerate(("-wal", "-shm", ".lock"), 3):
            t.runner.log.with_name(t.runner.log.name + lost).unlink()
            t.kill_one()
            until(f"life after {lost}", lambda n=count: len(t.cloud.creates()) == n, 60)
        t.assert_whole(2)


def test_while_the_log_cannot_be_written_it_says_so_to_whoever_asks(tmp_path):
    """A full disk, then one that is read-only as well, as a kernel makes a disk that fails."""
    with small_disk(tmp_path / "disk", 4000) as disk, town(tmp_path, disk / "runner") as t:
        begun(t)
        assert t.runner.standing().trouble == ""
        ballast = filled_up(disk)
        t.kill_one()
        until("the runner says so", lambda: said(t.runner, "log.failed"), 60)
        until("it is told", lambda: t.runner.standing().trouble, 10)
        found = t.runner.standing()
        assert "the runner does not act now" in found.trouble
        assert "cannot be written" in found.trouble
        assert (found.source, found.fleet.pools[0].min_vm) == ("log", 2)
        with pytest.raises(RunnerAwayError, match="the runner does not act now"):
            t.runner.ask(Pause())
        remount(disk, "ro")
        until("a read-only disk", lambda: said(t.runner, "Read-only file system"), 60)
        assert "Traceback" not in t.runner.output()
        assert "does not act now" in t.runner.standing().trouble
        assert not said(t.runner, "log.reopened"), "it can be opened and read, not written"
        remount(disk, "rw")
        ballast.unlink()
        until("it is open again", lambda: said(t.runner, "log.reopened"), 60)
        until("it answers for itself", lambda: t.runner.standing().source == "runner", 10)
        t.assert_whole(2)


def remount(disk, how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def test_a_backup_is_put_in_place_while_the_log_is_gone(tmp_path):
    """The disk is replaced, with what was last copied: the run goes on from there."""
    with town(tmp_path, tmp_path / "runner") as t:
        begun(t)
        copy = tmp_path / "copy.db"
        backup(t.runner.log, copy)
        t.apply(3)
        until("three", lambda: t.full(3), 30)
        for suffix in ("", "-wal", "-shm"):
            t.runner.log.with_name(t.runner.log.name + suffix).unlink()
        t.kill_one()
        until("it is missed", lambda: said(t.runner, "log.unusable"), 30)
        restore(copy, t.runner.log)
        until("it is open again", lambda: said(t.runner, "log.reopened"), 60)
        t.apply(3)
        wanted = [Wanted("p", 3, 40)]
        until("rest", lambda: not unrest(t.runner, t.side, wanted), 60, 0.3)
        # what was sent after the backup is adopted, though this log does not know it as sent
        print(reckon(t.runner, t.side, wanted, silence_s=2.0))
        t.runner.terminate()
    replaying.assert_replays(t.runner.log)
