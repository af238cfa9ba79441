"""One run, from its configuration to its end: log, cloud, runner, control socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import structlog
from attrs import define, field, frozen

from poolsm import Fleet
from poolsm.events import Event
from poolsm.spec import RunnerSettings, SecretRef
from poolsm_runners.budget import Backoff, Budget
from poolsm_runners.clock import Clock, FastClock, WallClock
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import Cloud, Deadlines, ListingError, Projects, Transport
from poolsm_runners.control import ControlServer
from poolsm_runners.dry import open_dry
from poolsm_runners.engine import Engine, Watcher
from poolsm_runners.log.port import Log, LogError, LogWriteError
from poolsm_runners.log_setup import open_again, open_or_create
from poolsm_runners.monitoring import Monitoring
from poolsm_runners.operations import Desk, PoolDeclaration, RefusedError, declare
from poolsm_runners.runconfig import Declared, RunConfig
from poolsm_runners.runner import Runner, RunnerOptions
from poolsm_runners.secrets import registrar_text

logger = structlog.get_logger()

# makes a watcher of one epoch's engine, whose state it may read
MakeWatcher = Callable[[Engine], Watcher]

FATAL = ("auth",)  # transport errors that waiting does not mend


class CloudUnusableError(RefusedError):
    """The cloud refuses us, or is not configured."""


@frozen
class Parts:
    """What the runs of one process share, whatever happens to the log."""

    config: RunConfig
    clock: Clock
    cloud: Cloud
    projects: Projects
    monitoring: Monitoring
    control: ControlServer | None
    patience: Backoff  # with a log that cannot be written; reset by one that can
    watchers: Sequence[MakeWatcher] = field(factory=tuple)


async def serve(
    config: RunConfig, *, stop: asyncio.Event, watchers: Sequence[MakeWatcher] = ()
) -> None:
    """Run until ``stop`` is set, through failures of the log and absences of the cloud.

    Raises:
        AddressError: the address for metrics is none, or is taken.
        LogOpenError: the log cannot be used: locked, torn, foreign, newer.
        ControlError: no control socket can be made beside it.
        CloudUnusableError: unknown cloud name, wrong password.
        RefusedError: what the configuration declares is refused.
    """
    clock = make_clock(config)
    async with AsyncExitStack() as stack:
        monitoring = await stack.enter_async_context(Monitoring(config, clock, stop))
        began_s = time.perf_counter()
        log, fleet = await _open(config, clock)
        held = _Held(log)
        stack.push_async_callback(held.close)
        control = None if config.dry_run else ControlServer(config.log)
        if control is not None:
            await control.start()
            stack.push_async_callback(control.close)
            control.away("it waits for its cloud; `poolsm run` says why")
        monitoring.opened(fleet.position, time.perf_counter() - began_s)
        if isinstance(clock, FastClock) and config.start_at_ms is None:
            clock.begin_at(fleet.state.now_ms + fleet.state.skew_ms)
        cloud = make_cloud(config, clock, fleet, monitoring.transport)
        stack.push_async_callback(cloud.close)
        if config.stop_after_s is not None:
            alarm = asyncio.get_running_loop().call_later(config.stop_after_s, stop.set)
            stack.callback(alarm.cancel)
        projects = await _authenticate(cloud, stop)
        if projects is None:
            return
        parts = Parts(
            config,
            clock,
            cloud,
            projects,
            monitoring,
            control,
            Backoff(base_s=1.0, limit_s=30.0),
            watchers,
        )
        undeclared = list(config.declared)
        while not stop.is_set():
            try:
                await _run(parts, held.log, fleet, stop, undeclared)
            except LogWriteError as error:
                # Nothing decided since was carried out. What the log holds is the truth (C8).
                logger.error("log.failed", error=str(error), remedy="free space; trying again")
                _say_away(parts, str(error))
            else:
                return
            await held.log.close()
            reopened = await _reopen(parts, held.log.header.log_id, stop)
            if reopened is None:
                return
            held.log, fleet = reopened


@define
class _Held:
    """The log that is open now, for whoever closes it in the end."""

    log: Log

    async def close(self) -> None:
        await self.log.close()


def _say_away(parts: Parts, why: str) -> None:
    parts.monitoring.log_failed(why)
    if parts.control is not None:
        parts.control.away(f"{why}; nothing is sent until then, and it goes on by itself")


def make_clock(config: RunConfig) -> Clock:
    """Real time for a real cloud; the simulated one may start elsewhere and run faster."""
    if config.cloud is not None:
        return WallClock()
    return FastClock(config.start_at_ms, config.speed)


def make_cloud(
    config: RunConfig, clock: Clock, fleet: Fleet, measured: Callable[[Transport], Transport]
) -> Cloud:
    """The cloud behind its port. Imports here are slow ones that the other cloud needs not."""
    return Gateway(measured(_transport(config, clock, fleet)), Deadlines())


def _transport(config: RunConfig, clock: Clock, fleet: Fleet) -> Transport:
    if config.cloud is None:
        from poolsm_runners.cloud.embedded import embedded_transport  # noqa: PLC0415

        return embedded_transport(fleet.state, clock)
    from poolsm_runners.cloud.openstack import OpenStackTransport  # noqa: PLC0415

    return OpenStackTransport(config.cloud, config.infra_cloud)


async def _open(config: RunConfig, clock: Clock) -> tuple[Log, Fleet]:
    if not config.dry_run:
        return await open_or_create(config.log, clock.now_ms())
    return await open_dry(config.log, clock.now_ms())


async def _reopen(parts: Parts, log_id: str, stop: asyncio.Event) -> tuple[Log, Fleet] | None:
    """Open the log again once it can be read; None if the run is stopped before that.

    Whatever is in the way, it waits: another who has the log (a restore, perhaps), too. A full
    disk is in the way of the first append only, so the pauses grow until one succeeds.
    """
    while not await _stopped_within(stop, parts.patience.next_delay_s()):
        try:
            log, fleet = await open_again(parts.config.log, parts.clock.now_ms(), log_id)
        except LogError as error:
            logger.error("log.unusable", error=str(error))
            _say_away(parts, str(error))
        else:
            return log, fleet
    return None


async def _authenticate(cloud: Cloud, stop: asyncio.Event) -> Projects | None:
    """Wait for a cloud that is away; give up on one that refuses us."""
    backoff = Backoff(base_s=2.0, limit_s=60.0)
    while not stop.is_set():
        try:
            return await cloud.projects()
        except ListingError as error:
            if error.transport_error in FATAL:
                raise CloudUnusableError(error.message) from None
            logger.error("cloud.unreachable", error=error.message)
        await _stopped_within(stop, backoff.next_delay_s())
    return None


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


async def _run(
    parts: Parts, log: Log, fleet: Fleet, stop: asyncio.Event, undeclared: list[Declared]
) -> None:
    """One epoch of the log."""
    config = parts.config
    engine = Engine(log, fleet)
    for make_watcher in parts.watchers:
        engine.watch(make_watcher(engine))
    options = RunnerOptions(
        settings=await _settings(parts, log),
        two_projects=parts.projects.vm_project_id != parts.projects.infra_project_id,
        dry_run=config.dry_run,
    )
    budget = Budget(parts.clock)
    parts.monitoring.running(engine, budget)
    runner = Runner(engine, parts.cloud, parts.clock, budget, options)
    await runner.begin()
    if parts.patience.failures:
        logger.info("log.reopened", position=fleet.position)
        parts.patience.reset()
    while undeclared:
        await declare_source(runner, undeclared[0])
        del undeclared[0]  # durable, so no later epoch declares it again
    if parts.control is not None:
        parts.control.serve(runner)
    await runner.run(stop)


async def _settings(parts: Parts, log: Log) -> RunnerSettings:
    environment = parts.config.environment
    key: SecretRef | None = None
    registrar: SecretRef | None = None
    if environment.admin_key:
        key = await log.put_secret(environment.admin_key)
    if environment.registrar:
        registrar = await log.put_secret(registrar_text(environment.registrar))
    return RunnerSettings(
        vm_project_id=parts.projects.vm_project_id,
        infra_project_id=parts.projects.infra_project_id,
        time_zone=parts.config.time_zone,
        admin_key=key,
        registrar=registrar,
    )


async def declare_source(runner: Runner, declared: Declared) -> None:
    """Declare a file's pools, except those that were changed by a call since.

    A file never silently undoes what an operator or service said later: that pool stays as it
    is, and the log line says how to apply the file after all.
    """
    state = runner.engine.state
    pools: list[PoolDeclaration] = []
    for pool in declared.pools:
        held = state.pools.get(pool.spec.key)
        if held is None or held.origin.startswith(("file ", "environment")):
            pools.append(pool)
        else:
            logger.warning(
                "pool.kept",
                pool=str(pool.spec.key),
                declared_by=held.origin,
                remedy=f"`poolsm pools apply` with {declared.origin} applies the file",
            )

    async def make(desk: Desk) -> list[Event]:
        return await declare(desk, pools, list(declared.configs))

    await runner.submit(make, declared.origin)
