"""One run from its configuration to its end: the log fails, the clock is set back, files repeat."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from poolsm import Fleet
from poolsm.events import ClockStepped, LogOpened, RunnerStarted
from poolsm.replay import replay
from poolsm.spec import PoolKey, PoolSpec
from poolsm_runners.dry import DryLog
from poolsm_runners.engine import Engine, open_fleet
from poolsm_runners.log import sqlite
from poolsm_runners.operations import Desk, PoolDeclaration, declare
from poolsm_runners.runconfig import Declared, RunConfig
from poolsm_runners.service import declare_source, serve

NOW_MS = 1_800_000_000_000
KEY = PoolKey("lab", "ann")


def spec(min_vm=2, max_vm=4):
    return PoolSpec("lab", "ann", min_vm, max_vm, "worker-image", "m1.tiny", ("lab-net",))


def config(log, **changes):
    declared = (Declared("file pools.toml", (PoolDeclaration(spec()),)),)
    return RunConfig(log=log, declared=declared, speed=20, **changes)


class Submitting:
    """What declare_source needs of a runner."""

    def __init__(self):
        self.engine = Engine(DryLog(None, b"key", NOW_MS), Fleet())

    async def submit(self, make, origin):
        log = self.engine.log
        desk = Desk(self.engine.state, NOW_MS, log.put_secret, log.get_secret, origin)
        return [await self.engine.record(event) for event in await make(desk)]


async def test_a_file_does_not_undo_what_a_call_declared_later():
    runner = Submitting()
    opened = LogOpened(at_ms=NOW_MS, log_id="6f1c3c9e-0000-4000-8000-000000000001")
    await runner.engine.record(opened)
    file = Declared("file pools.toml", (PoolDeclaration(spec()),))
    await declare_source(runner, file)
    position = runner.engine.fleet.position
    await declare_source(runner, file)
    assert runner.engine.fleet.position == position  # said again: nothing to record

    async def call(desk):
        return await declare(desk, [PoolDeclaration(spec(max_vm=9))], [])

    await runner.submit(call, "call of control center")
    await declare_source(runner, file)
    pool = runner.engine.state.pools[KEY]
    assert (pool.spec.max_vm, pool.origin) == (9, "call of control center")
    changed = Declared("file pools.toml", (PoolDeclaration(spec(min_vm=3)),))
    await declare_source(runner, changed)
    assert runner.engine.state.pools[KEY].spec.min_vm == 2


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, which is soon full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "poolsm-test", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder):
    with (folder / "ballast").open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), b"x" * 4096)
        except OSError:
            pass


async def until(condition, seconds=30):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_full_disk_stops_every_command_and_its_end_lets_the_run_go_on(small_disk):
    """Nothing is dispatched that is not durable; the core is rebuilt from the log (C8)."""
    log = small_disk / "log.db"
    stop, engines, issued = asyncio.Event(), [], []

    def watcher(engine):
        engines.append(engine)

        def watch(event, step):
            issued.extend(step.commands)
            if isinstance(event, RunnerStarted) and len(engines) == 1:
                fill(small_disk)

        return watch

    run = asyncio.create_task(serve(config(log), stop=stop, watchers=[watcher]))
    await until(lambda: engines and engines[0].broken)
    assert not issued
    (small_disk / "ballast").unlink()
    await until(lambda: engines[-1] is not engines[0])
    await until(lambda: KEY in engines[-1].state.pools or run.done())
    stop.set()
    await run
    assert replay(sqlite.open_read_only(log).read()).same


async def test_a_clock_set_back_between_two_runs_is_a_recorded_step(tmp_path):
    log = tmp_path / "log.db"
    for start_ms in (NOW_MS, NOW_MS - 7_200_000):
        await serve(
            config(log, start_at_ms=start_ms, stop_after_s=1.5), stop=asyncio.Event(), watchers=[]
        )
    entries = list(sqlite.open_read_only(log).read())
    (step,) = [entry.event for entry in entries if isinstance(entry.event, ClockStepped)]
    assert step.by_ms < -7_200_000
    fleet = open_fleet(sqlite.open_read_only(log))
    pool = fleet.state.pools[KEY]
    assert (pool.capacity, pool.owned) == (2, 2)
    assert replay(entries).same


async def test_a_run_leaves_nothing_in_flight_when_it_is_stopped(tmp_path: Path):
    log = tmp_path / "log.db"
    await serve(config(log, stop_after_s=0.4), stop=asyncio.Event(), watchers=[])
    assert not open_fleet(sqlite.open_read_only(log)).state.ops
