"""Opening a log for a runner or an offline change: made if there is none, its first event in it."""

from __future__ import annotations

import asyncio
import os

from poolsm import Fleet
from poolsm.events import LogOpened
from poolsm_runners.engine import Engine, open_fleet
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import LogOpenError
from poolsm_runners.log.sqlite import SqliteLog


async def open_again(
    path: str | os.PathLike[str], now_ms: int, log_id: str
) -> tuple[SqliteLog, Fleet]:
    """The log of a run that goes on: it is there, or it is waited for; never made anew.

    Raises:
        LogOpenError: there is none, or another one.
        LogError: it cannot be read or written.
    """
    log = await sqlite.open_for_append(path)
    if log.header.log_id != log_id:
        await log.close()
        raise LogOpenError(
            f"{path}: is another log ({log.header.log_id}) than that of this run ({log_id}); "
            "put that one or a backup of it back, or start a new run with this one"
        )
    return await _folded(log, now_ms)


async def open_or_create(path: str | os.PathLike[str], now_ms: int) -> tuple[SqliteLog, Fleet]:
    """The log at ``path``, as its only writer, and the fold of what it holds.

    A log without entries (new, or its maker was killed) gets its first one: LogOpened with the
    header's id (C3).

    Raises:
        LogLockedError: another runner has it.
        LogOpenError: something else is there, or no log can be made there.
        LogWriteError: the first event could not be written.
    """
    if await asyncio.to_thread(os.path.lexists, path):
        log = await sqlite.open_for_append(path)
    else:
        log = await sqlite.create(path, created_ms=now_ms)
    return await _folded(log, now_ms)


async def _folded(log: SqliteLog, now_ms: int) -> tuple[SqliteLog, Fleet]:
    try:
        # in a thread: the loop goes on to beat, and to hear signals, through minutes of it
        fleet = await asyncio.to_thread(open_fleet, log)
        if fleet.position == 0:
            opened = LogOpened(at_ms=now_ms, log_id=log.header.log_id)
            await Engine(log, fleet).record(opened)
    except BaseException:
        await log.close()
        raise
    return log, fleet
