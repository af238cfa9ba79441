"""Full disks: the append says so, nothing is written by halves, and reopening goes on."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from poolsm.entries import Entry
from poolsm.events import RunnerStopped
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import LogWriteError

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "runners")))}

# Appends until the disk is full, tries again, closes, frees space, reopens, goes on. Prints
# what happened as JSON.
SCRIPT = """
import asyncio, json, os, resource, signal, sys
from pathlib import Path
from poolsm.commands import Reason, StopServer
from poolsm.entries import Entry
from poolsm.events import RunnerStopped
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import LogError, LogWriteError

folder, limit = Path(sys.argv[1]), int(sys.argv[2])
path, ballast = folder / "fleet.db", folder / "ballast"
disk = os.statvfs(folder)
# what is freed later must take the rest of a checkpoint: up to a write-ahead log's pages
ballast.write_bytes(bytes(400_000 if disk.f_blocks * disk.f_frsize < 2_000_000 else 2_000_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def batch(last):
    return [
        Entry(position, RunnerStopped(at_ms=0, why="z" * 3000), (
            StopServer(command_id=str(position), reason=Reason("", ""), server_id="s"),))
        for position in range(last + 1, last + 4)]

def whole(log):
    entries = list(log.read())
    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    assert all(len(entry.commands) == 1 for entry in entries)
    return len(entries)

async def main():
    told = {"acknowledged": 0, "errors": []}
    log = await sqlite.create(path, created_ms=0)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        while True:
            await log.append(batch(told["acknowledged"]))
            told["acknowledged"] += 3
    except LogWriteError as error:
        told["errors"].append(str(error))
    for call in (log.append(batch(told["acknowledged"])), log.put_secret("s"), log.append([])):
        try:
            await call
        except LogWriteError as error:
            told["errors"].append(str(error))
    told["readable"] = whole(log)
    await log.close()
    ballast.unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log = await sqlite.open_for_append(path)
    told["reopened"] = log.last_position()
    await log.append(batch(told["reopened"]))
    told["went_on"] = whole(log)
    await log.close()
    print(json.dumps(told))

asyncio.run(main())
"""


def check(told):
    assert told["acknowledged"] > 0
    assert len(told["errors"]) == 4
    assert "cannot be written (" in told["errors"][0]
    assert all("open" in error and "again" in error for error in told["errors"])
    assert told["readable"] == told["reopened"]
    assert told["reopened"] in (told["acknowledged"], told["acknowledged"] + 3)
    assert told["went_on"] == told["reopened"] + 3


@pytest.mark.parametrize("limit_bytes", [150_000, 1_000_000, 4_500_000])
def test_a_limit_on_file_sizes(tmp_path, limit_bytes):
    # small: hit by the write-ahead log; large: by a checkpoint as well
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path, str(limit_bytes)],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    check(json.loads(run.stdout))


@pytest.mark.parametrize("size_kib", [700, 1000, 6000])
def test_a_full_disk(tmp_path, size_kib):
    if not shutil.which("unshare"):
        pytest.skip("needs unshare")
    # A mount namespace of its own: the small disk is gone with the process.
    mount = f'mount -t tmpfs -o size={size_kib}k tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1" 0'
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", tmp_path, sys.executable, SCRIPT],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode in (1, 77) and "Traceback" not in run.stderr:
        pytest.skip("needs the right to mount")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert "full" in told["errors"][0]
    check(told)


async def test_a_failed_transaction_takes_everybody_queued_along(tmp_path):
    path = tmp_path / "fleet.db"
    log = await sqlite.create(path, created_ms=0)
    await log.append([Entry(1, RunnerStopped(at_ms=0, why="kept"))])
    (pages,) = next(iter(await log._connection.execute_fetchall("PRAGMA page_count")))
    await log._connection.execute(f"PRAGMA max_page_count = {pages}")
    calls = [
        log.append([Entry(2, RunnerStopped(at_ms=0, why="small"))]),
        log.put_secret("small too"),
        log.append([Entry(3, RunnerStopped(at_ms=0, why="z" * 100_000))]),
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [LogWriteError] * 3
    assert [entry.event.why for entry in log.read()] == ["kept"]
    with pytest.raises(LogWriteError, match=r"fleet.db: cannot be written .*open the log again"):
        await log.append([Entry(2, RunnerStopped(at_ms=0, why="small"))])
    await log.close()
    async with await sqlite.open_for_append(path) as again:
        await again.append([Entry(2, RunnerStopped(at_ms=0, why="after"))])
        assert [entry.event.why for entry in again.read()] == ["kept", "after"]
