"""One migration from its order to its report: read, list, compare, watch, declare."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from poolsm.records import ServerRecord
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm_runners.control_requests import Done, TakeOver
from poolsm_runners.environment import Environment
from poolsm_runners.migrate import report as reports
from poolsm_runners.migrate.listing import list_cloud
from poolsm_runners.migrate.mapping import Choices, Mapping, map_database, problems_of
from poolsm_runners.migrate.report import Report
from poolsm_runners.migrate.servers import Comparison, compare
from poolsm_runners.migrate.snapshot import digests
from poolsm_runners.migrate.tables import OldDatabase, read_old_database
from poolsm_runners.migrate.users import users
from poolsm_runners.operations import RefusedError
from poolsm_runners.session import opened_state, perform, rehearse
from poolsm_runners.takeover import ORIGIN, why_kept

Say = Callable[[str], None]

NAMES_SHOWN = 3


@frozen
class Order:
    """What is to be moved, and how.

    Attributes:
        cloud: name in clouds.yaml of the project where the VMs are.
        dry_run: read and compare, declare nothing.
        skip_invalid: leave out pools that cannot be declared as they are.
        watch_s: seconds in which nobody may write the database; 0: no matter who has it open.
    """

    database: Path
    log: Path
    cloud: str
    environment: Environment
    choices: Choices
    dry_run: bool
    skip_invalid: bool
    watch_s: float


@frozen
class _Compared:
    """What was read, and what follows from it before anything is declared."""

    mapped: Mapping
    keys: list[PoolKey]
    servers: Comparison
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def move(order: Order, say: Say) -> tuple[Report, bool]:
    """Carry a migration out, or rehearse it; returns its report and whether a runner did it.

    A report with problems means that nothing was declared.

    Raises:
        OldDatabaseError: the database cannot be used.
        RefusedError: somebody writes it, or what it declares is refused; nothing was declared.
        CloudUnusableError: the servers could not be listed.
        LogError: the log cannot be used.
    """
    old = read_old_database(order.database)
    until_s = time.monotonic() + order.watch_s
    say(f"{order.database}: {len(old.pools)} pools, {len(old.servers)} servers in it")
    records = asyncio.run(_list(order.cloud, say))
    state = _state_of(order.log)
    compared = _compare(order, old, records, state)
    warnings = [*compared.warnings, *_watch(order, old, until_s)]
    done, by_runner = Done(()), False
    if not compared.problems:
        request = TakeOver(
            tuple(compared.mapped.pools.values()),
            compared.mapped.configs,
            compared.servers.declarations,
        )
        done, by_runner, state = _declare(order, request)
        warnings += reports.key_warnings(state, compared.servers, compared.keys)
    return _report(order, compared, done, state, (*warnings, *done.warnings)), by_runner


async def _list(cloud: str, say: Say) -> list[ServerRecord]:
    began = time.monotonic()
    records = await list_cloud(cloud, lambda text: say(f"cloud {cloud}: {text}"))
    say(f"cloud {cloud}: {len(records)} servers, in {time.monotonic() - began:.1f} s")
    return records


def _state_of(log: Path) -> State:
    """The state of the log; an empty one where there is none yet."""
    if not os.path.lexists(log):
        return State()
    with opened_state(log) as (state, _):
        return state


def _compare(
    order: Order, old: OldDatabase, records: Sequence[ServerRecord], state: State
) -> _Compared:
    mapped = map_database(old, order.environment, order.choices)
    keys = {*mapped.invalid, *(pool.spec.key for pool in mapped.pools.values()), *state.pools}
    if order.environment.warm_pool is not None:
        keys.add(order.environment.warm_pool.spec.key)
    kept = [key for key in mapped.invalid if why_kept(state, key)]
    return _Compared(
        mapped,
        sorted(keys),
        compare(mapped, records, keys),
        problems_of(mapped, kept=kept, skip_invalid=order.skip_invalid),
        (*mapped.warnings, *_left_out(mapped, kept, skip=order.skip_invalid)),
    )


def _left_out(mapped: Mapping, kept: Sequence[PoolKey], *, skip: bool) -> list[str]:
    """What is said of pools that cannot be declared and stand in nobody's way."""
    found = []
    for key, lines in mapped.invalid.items():
        if key in kept:
            found += [f"the log's own declaration stays: {line}" for line in lines]
        elif skip:
            found += [f"left out, its VMs are left alone: {line}" for line in lines]
    return found


def _watch(order: Order, old: OldDatabase, until_s: float) -> list[str]:
    """Refuse a database that somebody has open or wrote: the old service still runs."""
    if not order.watch_s:
        return []
    using = users(old.path)
    if not using:
        time.sleep(max(0.0, until_s - time.monotonic()))
        using = ("somebody",) if digests(old.path) != old.digests else users(old.path)
    if not using:
        return []
    text = (
        f"{old.path}: {', '.join(using)} still uses it; stop the replaced service first "
        "(--watch 0 looks away)"
    )
    if order.dry_run:
        return [text]
    raise RefusedError(text)


def _declare(order: Order, request: TakeOver) -> tuple[Done, bool, State]:
    """Rehearse, so that what is refused leaves not even an empty log, then do it."""
    origin = f"{ORIGIN}{order.database.name}"
    done, state = rehearse(order.log, request, origin=origin)
    by_runner = False
    if not order.dry_run:
        done, by_runner = perform(order.log, request, origin=origin)
        state = _state_of(order.log)
    assert isinstance(done, Done)
    return done, by_runner, state


def _report(
    order: Order, compared: _Compared, done: Done, state: State, warnings: Sequence[str]
) -> Report:
    mapped, servers = compared.mapped, compared.servers
    return Report(
        database=str(order.database),
        cloud=order.cloud,
        log=str(order.log),
        dry_run=order.dry_run,
        declared=not (order.dry_run or compared.problems),
        pools=reports.pool_reports(compared.keys, state, servers, done.lines),
        configs=reports.config_reports(mapped, state, done.lines, digests=order.log.exists()),
        servers=servers.servers,
        others=servers.others,
        strays=servers.strays,
        gone=servers.gone,
        attributions=reports.outcome_of("attributions", done.lines, "none to declare"),
        problems=compared.problems,
        warnings=tuple(warnings),
        notes=(*mapped.notes, *servers.remarks, *_strangers(servers)),
    )


def _strangers(servers: Comparison) -> list[str]:
    lines = [
        f"pool {key}: {count} servers carry its tags, and it is declared nowhere: left alone"
        for key, count in sorted(servers.strays.items())
    ]
    if servers.gone:
        shown = ", ".join(servers.gone[:NAMES_SHOWN])
        more = " ..." if len(servers.gone) > NAMES_SHOWN else ""
        lines.append(
            f"{len(servers.gone)} servers of the database do not exist any more: ignored "
            f"({shown}{more})"
        )
    return lines
