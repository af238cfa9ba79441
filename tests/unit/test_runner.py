"""The loop and its clock: intervals, priorities, what is durable before what is sent."""

import asyncio
import time

from poolsm import Fleet, PoolSpec, RunnerSettings
from poolsm.commands import CreateServer
from poolsm.events import (
    CallAnswered,
    CommandsDispatched,
    FleetPaused,
    ListingFailed,
    LogOpened,
    Ticked,
)
from poolsm.testing import Fault, SimulatedCloud
from poolsm_runners import clock as clocks
from poolsm_runners.budget import Budget
from poolsm_runners.clock import FastClock, WallClock
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import Deadlines
from poolsm_runners.cloud.simulated import SimulatedTransport
from poolsm_runners.dry import DryLog
from poolsm_runners.engine import Engine
from poolsm_runners.operations import PoolDeclaration, declare
from poolsm_runners.runner import Runner, RunnerOptions

START_MS = 1_800_000_000_000
SPEED = 50.0


class Rig:
    """A runner on a simulated cloud, fast, with an ear at every event."""

    def __init__(self, **options):
        self.clock = FastClock(START_MS, SPEED)
        self.cloud = SimulatedCloud()
        self.gateway = Gateway(SimulatedTransport(self.cloud, self.clock), Deadlines())
        self.engine = Engine(DryLog(None, b"key", START_MS), Fleet())
        settings = RunnerSettings(vm_project_id=self.cloud.config.vm_project_id)
        self.runner = Runner(
            self.engine,
            self.gateway,
            self.clock,
            Budget(self.clock),
            RunnerOptions(settings=settings, **options),
        )
        self.seen = []
        self.engine.watch(lambda event, step: self.seen.append((event, step)))
        self.stop = asyncio.Event()

    async def run(self, seconds, min_vm=2):
        log_id = self.engine.log.header.log_id
        await self.engine.record(LogOpened(at_ms=START_MS, log_id=log_id))
        await self.runner.begin()
        spec = PoolSpec("lab", "ann", min_vm, 9, "worker-image", "m1.tiny", ("lab-net",))
        await self.runner.submit(lambda desk: declare(desk, [PoolDeclaration(spec)], []), "test")
        asyncio.get_running_loop().call_later(seconds / SPEED, self.stop.set)
        await self.runner.run(self.stop)

    def of(self, kind):
        return [event for event, _ in self.seen if isinstance(event, kind)]


async def test_ticks_come_every_two_seconds_measured_from_start_to_start():
    rig = Rig()
    await rig.run(60)
    times = [tick.at_ms for tick in rig.of(Ticked)]
    assert 25 <= len(times) <= 31


async def test_that_a_command_is_about_to_be_sent_is_recorded_before_it_is_sent(monkeypatch):
    rig = Rig()
    recorded_when_sent = []
    execute = rig.gateway.execute

    async def watched(command, user_data=""):
        sent = [event.command_ids for event in rig.of(CommandsDispatched)]
        recorded_when_sent.append((command.command_id,) in sent)
        return await execute(command, user_data)

    monkeypatch.setattr(rig.gateway, "execute", watched)
    await rig.run(60)
    assert recorded_when_sent == [True, True]
    assert len(rig.of(CallAnswered)) == 2


async def test_what_a_pause_ends_before_its_turn_is_not_sent():
    rig = Rig()
    paused = []

    def pause(_, step):
        if not paused and any(isinstance(command, CreateServer) for command in step.commands):
            event = FleetPaused(at_ms=rig.clock.now_ms(), why="", origin="test")
            paused.append(asyncio.ensure_future(rig.engine.record(event)))

    rig.engine.watch(pause)
    await rig.run(30)
    assert paused
    assert not rig.of(CommandsDispatched)
    assert not rig.cloud.call_count("create")


async def test_a_create_that_hangs_holds_up_neither_tick_nor_listing():
    rig = Rig()
    rig.cloud.add_fault(Fault(kind="hang", operations=("create",)))
    await rig.run(40)
    assert len(rig.of(Ticked)) >= 15
    assert not rig.engine.state.adopting
    assert rig.cloud.call_count("list", 200) >= 6


async def test_a_listing_that_fails_is_repeated_ever_more_rarely():
    rig = Rig()
    rig.cloud.add_fault(Fault(kind="refuse", operations=("list",), status=500))
    await rig.run(300)
    failures = [event for event in rig.of(ListingFailed) if event.what == "servers"]
    assert 3 <= len(failures) <= 30
    assert not rig.cloud.call_count("create")


async def test_user_data_that_cannot_be_rendered_is_never_sent(monkeypatch):
    rig = Rig()

    def broken(*_):
        raise ValueError("no such key")

    monkeypatch.setattr("poolsm_runners.runner.encoded_user_data", broken)
    await rig.run(30)
    answers = rig.of(CallAnswered)
    assert answers
    assert {answer.transport_error for answer in answers} == {"not_sent"}
    assert not rig.cloud.call_count("create")


async def test_the_end_waits_for_answers_and_a_call_that_hangs_ends_as_unknown():
    rig = Rig()
    rig.cloud.add_fault(Fault(kind="hang", operations=("create",)))
    began = time.monotonic()
    await rig.run(20)
    assert time.monotonic() - began < 12
    assert {op.kind for op in rig.engine.state.ops.values()} == {CreateServer.__name__}
    assert "2 commands unanswered" in rig.seen[-1][0].why


async def test_a_dry_run_sends_nothing():
    rig = Rig(dry_run=True)
    await rig.run(3600)
    assert rig.engine.state.ops
    assert not rig.cloud.writes


def test_the_clock_goes_on_through_a_step_and_then_takes_it_over(monkeypatch):
    wall, mono = [1_000_000.0], [50.0]
    monkeypatch.setattr(clocks.time, "time_ns", lambda: int(wall[0] * 1e9))
    monkeypatch.setattr(clocks.time, "monotonic_ns", lambda: int(mono[0] * 1e9))
    clock = WallClock()
    assert clock.now_ms() == 1_000_000_000
    mono[0] += 10
    wall[0] += 10
    assert (clock.now_ms(), clock.step_ms()) == (1_000_010_000, 0)
    wall[0] += 29  # slewed by less than a step
    assert clock.step_ms() == 0
    wall[0] -= 3600
    assert clock.now_ms() == 1_000_010_000
    assert clock.step_ms() == -3_571_000
    assert clock.now_ms() == 1_000_010_000 - 3_571_000
    assert clock.step_ms() == 0
