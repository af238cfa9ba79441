"""kill -9 of a runner at any moment: what was acknowledged is there, and nothing by halves."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poolsm_runners.log import sqlite

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "runners")))}
BATCH_LIMIT = 5

# Three tasks append batches of random size, with commands, secrets and now and then a snapshot.
# A batch's events all say where it begins and ends. Each acknowledgement is one line.
WRITER = """
import asyncio, os, random, sys
from poolsm.commands import Reason, StopServer
from poolsm.entries import Entry
from poolsm.events import RunnerStopped
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import Snapshot

path, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)

async def main():
    log = await sqlite.open_for_append(path)
    last = log.last_position()
    os.write(1, b"open\\n")

    def batch():
        nonlocal last
        first, last = last + 1, last + chance.randint(1, 5)
        why = f"{first}-{last} " + "z" * chance.choice((1, 100, 5000))
        return [
            Entry(position, RunnerStopped(at_ms=position, why=why), tuple(
                StopServer(command_id=f"{position}-{n}", reason=Reason("", ""), server_id="s")
                for n in range(2)))
            for position in range(first, last + 1)]

    async def work():
        while True:
            entries = batch()
            await log.append(entries)
            os.write(1, b"entry %d\\n" % entries[-1].position)
            if chance.random() < 0.1:
                ref = await log.put_secret(f"secret {entries[-1].position}")
                os.write(1, b"secret %s %d\\n" % (ref.digest.encode(), entries[-1].position))
            if chance.random() < 0.02:
                await log.save_snapshot(Snapshot(log.last_position(), 1, b"s" * 50_000))

    await asyncio.gather(work(), work(), work())

asyncio.run(main())
"""


def run_and_kill(path, seed, pause_s):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path, str(seed)], env=ENV, stdout=subprocess.PIPE
    ) as runner:
        assert runner.stdout.readline() == b"open\n"
        time.sleep(pause_s)
        runner.kill()
        lines = runner.stdout.read().decode().split("\n")[:-1]
    return [line.split() for line in lines]


def check(log, acknowledged):
    last = 0
    for entry in log.read():
        last += 1
        assert entry.position == last
        begins, ends = map(int, re.match(r"(\d+)-(\d+) ", entry.event.why).groups())
        assert begins <= last <= ends
        assert [command.command_id for command in entry.commands] == [f"{last}-0", f"{last}-1"]
    if last:
        assert last == ends, "the last batch is whole"
    assert last >= max((int(line[1]) for line in acknowledged if line[0] == "entry"), default=0)
    for line in acknowledged:
        if line[0] == "secret":
            assert log.get_secret(line[1]) == f"secret {line[2]}"
    return last


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_was_acknowledged_survives(tmp_path, seed):
    path = tmp_path / "fleet.db"
    await (await sqlite.create(path, created_ms=0)).close()
    chance = random.Random(seed)
    last = 0
    for generation in range(4):
        acknowledged = run_and_kill(path, 10 * seed + generation, chance.uniform(0, 0.5))
        before = check(sqlite.open_read_only(path), acknowledged)
        async with await sqlite.open_for_append(path) as log:
            assert check(log, acknowledged) == before == log.last_position()
        assert before >= last
        last = before
    assert last > 100
