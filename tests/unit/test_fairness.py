"""Pools are served fairly: one that hangs and one at its quota take nothing from the others.

The real runner, budget and gateway on the simulated cloud, ten times as fast. Compared are
simulated times, so a slow machine changes both sides alike.
"""

import asyncio
from statistics import median

from poolsm import Fleet, PoolSpec, RunnerSettings
from poolsm.events import LogOpened
from poolsm.testing import CloudConfig, Fault, SimulatedCloud
from poolsm_runners.budget import Budget
from poolsm_runners.clock import FastClock
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import Deadlines
from poolsm_runners.cloud.simulated import SimulatedTransport
from poolsm_runners.dry import DryLog
from poolsm_runners.engine import Engine
from poolsm_runners.operations import PoolDeclaration, declare
from poolsm_runners.runner import Runner, RunnerOptions

NORMAL = [f"normal-{n}" for n in range(8)]
SIZE = 5
SPEED = 10.0
QUOTA = "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances"
FAULTS = (
    Fault(kind="hang", operations=("create",), pool="hangs"),
    Fault(kind="refuse", operations=("create",), pool="full", status=403, message=QUOTA),
)


def spec(name):
    # the pool at its quota has a flavor of its own: a quota pauses project and flavor (R6)
    flavor = "m1.small" if name == "full" else "m1.tiny"
    return PoolSpec(name, "ann", SIZE, 0, "worker-image", flavor, ("lab-net",))


async def fill_times(names):
    """Simulated seconds until each normal pool is full, and the runner's state at the end."""
    clock = FastClock(1_800_000_000_000, SPEED)
    cloud = SimulatedCloud(CloudConfig(), seed=7)
    cloud.set_faults(FAULTS)
    gateway = Gateway(SimulatedTransport(cloud, clock), Deadlines())
    projects = await gateway.projects()
    engine = Engine(DryLog(None, b"key", clock.now_ms()), Fleet())
    await engine.record(LogOpened(at_ms=clock.now_ms(), log_id=engine.log.header.log_id))
    settings = RunnerSettings(
        vm_project_id=projects.vm_project_id, infra_project_id=projects.infra_project_id
    )
    options = RunnerOptions(settings=settings, two_projects=True)
    runner = Runner(engine, gateway, clock, Budget(clock), options)
    await runner.begin()
    pools = [PoolDeclaration(spec(name)) for name in names]
    await runner.submit(lambda desk: declare(desk, pools, []), "test")
    began_ms, full, stop = clock.now_ms(), {}, asyncio.Event()

    def watch(event, step):
        for key, pool in engine.state.pools.items():
            if key.serverpool_id in NORMAL and pool.count("ACTIVE") >= SIZE:
                full.setdefault(key.serverpool_id, (clock.now_ms() - began_ms) / 1000)
        if len(full) == len(NORMAL):
            stop.set()

    engine.watch(watch)
    async with asyncio.timeout(60):
        await runner.run(stop)
    return full, engine.state


async def test_eight_pools_fill_as_if_the_two_bad_ones_were_not_there():
    alone, _ = await fill_times(NORMAL)
    beside, state = await fill_times(["full", "hangs", *NORMAL])
    assert set(alone) == set(beside) == set(NORMAL)
    # A listing every 5 s is what a fill time can be told to, and a loaded machine adds some;
    # a pool that waited for the one that hangs would take its deadline of 60 s.
    assert median(beside.values()) <= median(alone.values()) + 15, (alone, beside)
    assert max(beside.values()) <= max(alone.values()) + 30, (alone, beside)
    bad = {key.serverpool_id: pool for key, pool in state.pools.items()}
    assert state.quotas, "the quota was met"
    assert bad["hangs"].count("pending") > 0
    assert bad["hangs"].count("ACTIVE") == bad["full"].count("ACTIVE") == 0
