"""A recorded run of any length: the real runner on the simulated cloud, in simulated time.

Runner, budget, gateway and fold are the product's own, and so is every event of the log. Only
time is not: the event loop never waits, it sets its clock to the next thing that is due. So a
day is recorded in minutes, and the same seed gives the same log on any machine.

What happens is a busy day of many pools: people ask for VMs and give them back, pools are
declared, changed and removed, some sleep on closing days; users stop machines, operators delete
some, boots fail and hang, calls are refused, listings fail.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine, Sequence
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from poolsm import Fleet, PoolSpec, RunnerSettings
from poolsm.entries import Entry
from poolsm.events import LogOpened
from poolsm.testing import CloudConfig, Fault, SimulatedCloud
from poolsm_runners import operations
from poolsm_runners.budget import Budget
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import Deadlines
from poolsm_runners.cloud.simulated import SimulatedTransport
from poolsm_runners.dry import DryLog
from poolsm_runners.engine import Engine
from poolsm_runners.log import sqlite
from poolsm_runners.operations import Desk, PoolDeclaration, RefusedError
from poolsm_runners.runner import Runner, RunnerOptions

T = TypeVar("T")

BEGIN_MS = 1_794_214_800_000  # a Monday, 09:00 UTC
BATCH = 1000  # entries a transaction
WEEKDAYS = ("tuesday", "wednesday", "saturday", "sunday")
FLAVORS = ("m1.tiny", "m1.small", "m1.medium")
FAULTS = (
    Fault(kind="spawn_error", operations=("create",), probability=0.01, message="no host"),
    Fault(kind="boot_hang", operations=("create",), probability=0.002),
    Fault(kind="refuse", operations=("create",), probability=0.005, status=500, message="oops"),
    Fault(kind="hang_after", operations=("create",), probability=0.002),
    Fault(kind="ignore", operations=("metadata", "delete"), probability=0.005),
    Fault(kind="refuse", operations=("delete", "stop"), probability=0.01, status=409),
    Fault(kind="refuse", operations=("list",), probability=0.003, status=500, message="oops"),
    Fault(kind="omit", operations=("list",), probability=0.0001),
)


class _NoWait(selectors.SelectSelector):
    """A selector that sets the loop's clock forward instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("simulated time: nothing is due, and nobody else can wake the loop")
        self.now_s += max(timeout, 0.0)
        return []


class SimulatedTime(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer; threads' work is done in its own."""

    def __init__(self) -> None:
        self._no_wait = _NoWait()
        super().__init__(self._no_wait)

    def time(self) -> float:
        """Simulated seconds."""
        return self._no_wait.now_s

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        """At once: no simulated time passes."""
        _ = executor
        future: asyncio.Future[T] = self.create_future()
        future.set_result(func(*args))
        return future


class LoopClock:
    """The product's clock on the loop's simulated time."""

    def now_ms(self) -> int:
        """Simulated milliseconds since 1970 UTC."""
        return BEGIN_MS + int(asyncio.get_running_loop().time() * 1000)

    def elapsed_ms(self) -> int:
        """Simulated milliseconds since the loop began."""
        return int(asyncio.get_running_loop().time() * 1000)

    def step_ms(self) -> int:
        """It never steps."""
        return 0

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)


class Spool(DryLog):
    """A log that hands its entries on in batches."""

    def __init__(self, log_id: str, write: Callable[[Sequence[Entry]], None]) -> None:
        super().__init__(None, b"benchmark", BEGIN_MS)
        self._log_id = log_id
        self._write = write
        self._waiting: list[Entry] = []

    async def append(self, entries: Sequence[Entry]) -> None:
        """Keep them for the next batch."""
        self._waiting += entries
        if len(self._waiting) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what is left."""
        self._write(self._waiting)
        self._waiting = []


class People:
    """Who uses the pools, and what becomes of the machines meanwhile."""

    def __init__(self, runner: Runner, cloud: SimulatedCloud, clock: LoopClock, pools: int) -> None:
        self._runner = runner
        self._cloud = cloud
        self._clock = clock
        self._pools = pools
        self._chance = Random("people")
        self._asked = 0
        self._held: list[tuple[int, str]] = []  # a heap: until when, by which request

    async def declare_all(self) -> None:
        """Two warm pools, the rest ordinary ones."""
        for n in range(self._pools):
            await self._declare(n)

    async def live(self) -> None:
        """One second after another, until cancelled."""
        while True:
            await self._clock.sleep(1.0)
            chance = self._chance
            for _ in range(chance.choice((0, 0, 1, 1, 1, 3))):
                await self._ask_for_one()
            await self._give_back()
            if chance.random() < 0.1:
                await self._declare(chance.randrange(self._pools))
            if chance.random() < 0.005:
                n = chance.randrange(2, self._pools)
                await self._submit(
                    lambda desk, n=n: operations.remove_pool(desk, _name(n), include_assigned=False)
                )
            self._meddle()

    async def _ask_for_one(self) -> None:
        self._asked += 1
        name, request = _name(self._chance.randrange(2, self._pools)), f"request-{self._asked}"
        claimant = f"student-{self._chance.randrange(2000)}"
        await self._submit(
            lambda desk: operations.assign(
                desk, name, request_id=request, claimant=claimant, deadline_s=300.0
            )
        )
        stays_ms = int(self._chance.expovariate(1 / 600_000))
        heappush(self._held, (self._clock.now_ms() + 30_000 + stays_ms, request))

    async def _give_back(self) -> None:
        while self._held and self._held[0][0] <= self._clock.now_ms():
            request = heappop(self._held)[1]
            await self._submit(lambda desk, request=request: operations.release(desk, request))

    async def _declare(self, n: int) -> None:
        chance = self._chance
        least = chance.randint(1, 6)
        spec = PoolSpec(
            serverpool_id="pool_vms" if n == 0 else f"pool-{n}",
            user_id="admin" if n == 0 else f"teacher-{n % 40}",
            min_vm=least,
            max_vm=0 if n < 2 else least + chance.randint(4, 12),
            image_ref="worker-image",
            flavor_ref=FLAVORS[n % 3],
            networks=("lab-net",),
            key_name="lab-key",
            off_days=WEEKDAYS if n % 10 == 9 else (),
            warm=n < 2,
            reuse=n % 5 == 4,
        )
        await self._submit(lambda desk: operations.declare(desk, [PoolDeclaration(spec)], []))

    def _meddle(self) -> None:
        """Somebody stops a machine, or deletes it, behind the runner's back."""
        if self._chance.random() > 0.05:
            return
        servers = sorted(self._runner.engine.state.by_server)
        if servers:
            server_id = self._chance.choice(servers)
            stop = self._chance.random() < 0.8
            try:
                if stop:
                    self._cloud.hands.set_status(server_id, "SHUTOFF")
                else:
                    self._cloud.hands.kill(server_id)
            except KeyError:
                return  # the runner does not know yet that it is gone

    async def _submit(self, make: Callable[[Desk], Any]) -> None:
        async def made(desk: Desk) -> Any:
            found = make(desk)
            return await found if asyncio.iscoroutine(found) else found

        try:
            await self._runner.submit(made, "benchmark")
        except RefusedError:
            return  # people ask for what is not there, too


def _name(n: int) -> str:
    return "pool_vms" if n == 0 else f"teacher-{n % 40}/pool-{n}"


async def _run(spool: Spool, log_id: str, events: int, pools: int) -> None:
    clock = LoopClock()
    cloud = SimulatedCloud(CloudConfig(), seed=1)
    cloud.set_faults(FAULTS)
    gateway = Gateway(SimulatedTransport(cloud, clock), Deadlines())
    projects = await gateway.projects()
    engine = Engine(spool, Fleet())
    await engine.record(LogOpened(at_ms=clock.now_ms(), log_id=log_id))
    settings = RunnerSettings(
        vm_project_id=projects.vm_project_id, infra_project_id=projects.infra_project_id
    )
    options = RunnerOptions(settings=settings, two_projects=True)
    runner = Runner(engine, gateway, clock, Budget(clock), options)
    await runner.begin()
    people = People(runner, cloud, clock, pools)
    await people.declare_all()
    stop = asyncio.Event()

    def watch(*_: object) -> None:
        if engine.fleet.position >= events:
            stop.set()

    engine.watch(watch)
    living = asyncio.ensure_future(people.live())
    await runner.run(stop)
    living.cancel()
    spool.flush()


def record(path: Path, events: int, pools: int = 200) -> None:
    """Record a run of at least so many events as a log at ``path``."""
    loop = asyncio.new_event_loop()  # the log's own, in real time
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def wait(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    log = wait(sqlite.create(path, created_ms=BEGIN_MS))
    log_id = log.header.log_id
    try:
        spool = Spool(log_id, lambda entries: wait(log.append(entries)))
        with asyncio.Runner(loop_factory=SimulatedTime) as simulation:
            simulation.run(_run(spool, log_id, events, pools))
    finally:
        wait(log.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
