"""Carrying out a request, whether a runner runs or not.

A runner that runs holds the log, so it is asked through its control socket and answers once
the change is durable. Without one the change is made here: lock the log, fold it, append. Such
events cause no commands; the next runner acts on them. What only reads opens the log read-only.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from poolsm import Fleet, Step
from poolsm.state import State
from poolsm_runners import control
from poolsm_runners.clock import WallClock
from poolsm_runners.control_requests import (
    Apply,
    Envelope,
    Make,
    Request,
    Result,
    Standing,
    Status,
    TakeOver,
    carry_out,
)
from poolsm_runners.dry import open_dry
from poolsm_runners.engine import Engine, open_fleet
from poolsm_runners.log import lock, sqlite
from poolsm_runners.log.files import real_path
from poolsm_runners.log.port import LogError, LogLockedError, LogOpenError
from poolsm_runners.log.reader import SqliteReader
from poolsm_runners.log_setup import open_or_create
from poolsm_runners.operations import Desk

PATIENCE_S = 5.0  # for a runner that is just starting or ending
PAUSE_S = 0.1


def command_line_origin() -> str:
    """What a change from the command line is recorded with."""
    try:
        return f"command line of {getpass.getuser()}"
    except (OSError, KeyError):  # no such user id
        return f"command line of uid {os.getuid()}"


def perform(log: Path, request: Request, *, origin: str = "") -> tuple[Result, bool]:
    """Carry a request out; returns its result, and whether a runner did it.

    Raises:
        RefusedError: it cannot be carried out as it is; nothing was changed.
        LogOpenError: there is no such log, or it is refused.
        LogLockedError: somebody holds the log and does not listen.
        ControlError: the runner gave no answer, or does not act now.
        LogWriteError: it could not be made durable.
    """
    envelope = Envelope(request, origin or command_line_origin())
    give_up = time.monotonic() + PATIENCE_S
    while True:
        trouble = ""
        try:
            return control.call(log, envelope), True
        except control.NoRunnerError:
            pass
        except control.RunnerAwayError as away:
            trouble = str(away)
            if not isinstance(request, Status):
                if time.monotonic() > give_up:
                    raise
                time.sleep(PAUSE_S)
                continue
        if isinstance(request, Status):
            return read_status(log, vms=request.vms, trouble=trouble), False
        try:
            return asyncio.run(_offline(log, envelope)), False
        except LogLockedError as error:
            if time.monotonic() > give_up:
                raise LogLockedError(
                    f"{error}; it does not listen at {control.socket_path(log)}: it may still be "
                    "waiting for its cloud"
                ) from None
        time.sleep(PAUSE_S)


def rehearse(log: Path, request: Request, *, origin: str = "") -> tuple[Result, State]:
    """What :func:`perform` would answer, and the state after it; nothing is changed.

    Raises:
        RefusedError: it could not be carried out as it is.
        LogOpenError: there is something else than a log.
    """
    return asyncio.run(_rehearse(log, Envelope(request, origin or command_line_origin())))


async def _rehearse(path: Path, envelope: Envelope) -> tuple[Result, State]:
    log, fleet = await open_dry(path, WallClock().now_ms())
    return await carry_out(_Offline(Engine(log, fleet)), envelope), fleet.state


def read_status(log: Path, *, vms: bool = False, trouble: str = "") -> Standing:
    """The fleet as the log has it, without a runner's help; raises LogOpenError.

    ``trouble`` is why a runner that is there does not answer for it.
    """
    try:
        fleet = open_fleet(open_log(log))
    except LogError as error:
        if not trouble:
            raise
        raise LogOpenError(f"{trouble}\n{error}") from None
    envelope = Envelope(Status(vms=vms), "")
    found = asyncio.run(carry_out(_Reader(fleet), envelope))
    assert isinstance(found, Standing)
    return Standing(found.fleet, found.vms, "log", trouble)


def open_log(log: Path) -> SqliteReader:
    """A log to read, with what to do if there is none; raises LogOpenError."""
    _refuse_no_log(log)
    return sqlite.open_read_only(log)


def _refuse_no_log(log: Path) -> None:
    if not os.path.lexists(log):
        raise LogOpenError(
            f"{log}: there is no log; name one with --log, or make one with `poolsm run` or "
            "`poolsm pools apply`"
        )


@contextmanager
def opened_state(log: Path) -> Iterator[tuple[State, SqliteReader]]:
    """The state of a log as it is on disk now, and the log."""
    reader = open_log(log)
    yield open_fleet(reader).state, reader


def runner_runs(log: Path) -> bool:
    """Whether somebody appends to the log now."""
    return lock.is_held(real_path(log))


class _Reader:
    """A host that only reads."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    @property
    def state(self) -> State:
        return self._fleet.state

    async def submit(self, make: Make, origin: str) -> list[Step]:
        raise AssertionError(f"{make} of {origin}: nothing can be changed here")

    async def trim(self, upto: int) -> None:
        raise AssertionError(f"{upto}: nothing can be changed here")


class _Offline:
    """A host without a runner: the command line holds the log itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._clock = WallClock()

    @property
    def state(self) -> State:
        return self._engine.state

    async def submit(self, make: Make, origin: str) -> list[Step]:
        state, log = self._engine.state, self._engine.log
        # a log of a simulated run may be ahead of the wall clock
        now_ms = max(self._clock.now_ms(), state.now_ms + state.skew_ms)
        desk = Desk(state, now_ms, log.put_secret, log.get_secret, origin)
        return [await self._engine.record(event) for event in await make(desk)]

    async def trim(self, upto: int) -> None:
        await self._engine.log.trim(upto)


async def _offline(path: Path, envelope: Envelope) -> Result:
    if not isinstance(envelope.request, Apply | TakeOver):
        await asyncio.to_thread(_refuse_no_log, path)
    log, fleet = await open_or_create(path, WallClock().now_ms())
    try:
        return await carry_out(_Offline(Engine(log, fleet)), envelope)
    finally:
        await log.close()
