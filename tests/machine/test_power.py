"""After a failed fsync pages may be lost that are read as if they were there (fsyncgate).

A process writes to a log while syncs fail for a while, opens the log again and goes on; then
the power goes. What it was told is durable must be on the disk: each commit that was
acknowledged, those before the failure and those after it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from poolsm_runners.log import sqlite
from tests.integration.running import ROOT

SOURCE = Path(__file__).with_name("power.c")

# Each life is a process that ends as by kill -9, and tells what it was told.
WRITER = """
import asyncio, json, os, sys
from pathlib import Path
from poolsm.entries import Entry
from poolsm.events import RunnerStopped
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import LogOpenError, LogWriteError

path, fail, script = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

async def append(log, count):
    for _ in range(count):
        position = log.last_position() + 1
        await log.append([Entry(position, RunnerStopped(at_ms=position, why="x" * 3000))])

async def main():
    told = {"errors": []}
    log = None
    for word in script.split():
        try:
            if word == "open":
                log = await sqlite.open_for_append(path)
            elif word == "close":
                await log.close()
            elif word == "fail":
                fail.touch()
            elif word == "mend":
                fail.unlink()
            else:
                await append(log, int(word))
                told["durable"] = log.last_position()
        except (LogOpenError, LogWriteError) as error:
            told["errors"].append(str(error))
    print(json.dumps(told), flush=True)
    os._exit(0)

asyncio.run(main())
"""


@pytest.fixture
def disk(tmp_path):
    """A log on a disk whose power may go, and its lives."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "power.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / "left").mkdir()
    return Disk(tmp_path, library)


class Disk:
    def __init__(self, folder, library):
        self.path = folder / "disk" / "fleet.db"
        self.left = folder / "left" / "fleet.db"
        self._fail = folder / "fail"
        self._env = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}",
            "LD_PRELOAD": str(library),
            "POWER_UNDER": str(self.path.parent),
            "POWER_SHADOW": str(self.left.parent),
            "POWER_FAIL": str(self._fail),
        }

    def live(self, script):
        done = subprocess.run(
            [sys.executable, "-c", WRITER, self.path, self._fail, script],
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


async def begin(disk):
    await (await sqlite.create(disk.path, created_ms=0)).close()
    shutil.copy(disk.path, disk.left)


def left(disk):
    """What a power failure now leaves: the last position, of a log that is whole."""
    reader = sqlite.open_read_only(disk.left)
    positions = [entry.position for entry in reader.read()]
    assert positions == list(range(1, len(positions) + 1))
    return len(positions)


async def test_the_power_goes_without_any_failure(disk):
    await begin(disk)
    assert disk.live("open 30") == {"errors": [], "durable": 30}
    assert left(disk) == 30


@pytest.mark.parametrize(
    "lives",
    [
        ["open 20 fail 1 mend close open 3"],
        ["open 20 fail 1 close mend open 3"],
        ["open 20 fail 1 close open mend open 3"],
        ["open 20 fail 1", "mend open 3"],
        ["open 20 fail 1", "open mend", "open 3"],
        ["open 20 fail 1 close mend open 2000 close open 3"],
    ],
    ids="; ".join,
)
async def test_the_power_goes_after_a_failed_sync(disk, lives):
    await begin(disk)
    told = [disk.live(life) for life in lives]
    errors = [error for life in told for error in life["errors"]]
    assert "cannot be written (disk I/O error)" in errors[0]
    assert left(disk) >= told[-1]["durable"] >= 23
