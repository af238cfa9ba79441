"""A thread beside the loop: it notices a loop that hangs, says where, and feeds systemd.

The loop cannot do this itself. A task that calls something that blocks holds every other task
with it, those that would answer a probe or tell the service manager too. (What holds Python's
own lock holds this thread as well; then systemd, not being fed, ends the process.)
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

import structlog

from poolsm_runners.health.checks import healthy, live
from poolsm_runners.health.systemd import Notifier
from poolsm_runners.health.vitals import Vitals

LOOK_EVERY_S = 1.0
STACK_FRAMES = 25

logger = structlog.get_logger("poolsm")


class Watchdog:
    """Looks at the signs of life once a second, until it is closed.

    Args:
        vitals: what it looks at.
        notifier: whom it feeds.
        loop: whose tasks are named when ticks do not end though the loop runs.
        on_hang: called, in the thread, once for each hang.
    """

    def __init__(
        self,
        vitals: Vitals,
        notifier: Notifier,
        loop: asyncio.AbstractEventLoop,
        *,
        on_hang: Callable[[], None] = lambda: None,
    ) -> None:
        self._vitals = vitals
        self._notifier = notifier
        self._loop = loop
        self._on_hang = on_hang
        self._look_every_s = min(LOOK_EVERY_S, notifier.watchdog_s / 3 or LOOK_EVERY_S)
        self._closed = threading.Event()
        self._hangs: set[str] = set()  # checks that failed at the last look
        self._thread = threading.Thread(target=self._main, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _main(self) -> None:
        while not self._closed.wait(self._look_every_s):
            self._look()

    def _look(self) -> None:
        report = live(self._vitals)
        failed = {check.name: check.text for check in report.failed}
        for name in failed.keys() - self._hangs:
            self._report(name, failed[name])
        for name in self._hangs - failed.keys():
            logger.warning("loop.recovered", check=name)
        self._hangs = set(failed)
        if report.ok:
            self._notifier.alive(status_line(self._vitals))
        else:
            self._notifier.status("; ".join(failed.values()))

    def _report(self, check: str, text: str) -> None:
        self._on_hang()
        if check == "loop":
            frame = sys._current_frames().get(self._vitals.loop_thread)  # noqa: SLF001 - its only name
            stack = _stack(frame) if frame is not None else []
            where = stack[-1] if stack else "unknown"
            logger.error("loop.hangs", text=text, where=where, stack=" > ".join(stack))
            return
        try:
            self._loop.call_soon_threadsafe(_name_tasks, self._loop, text)
        except RuntimeError:  # the loop was closed meanwhile
            logger.error("loop.late", text=text)


def _stack(frame: FrameType) -> list[str]:
    """Outermost first: ``file:line function``, without the event loop's own frames."""
    frames = traceback.extract_stack(frame, limit=None)
    own = [f for f in frames if "/asyncio/" not in f.filename and "<frozen" not in f.filename]
    return [_place(f.filename, f.lineno, f.name) for f in (own or frames)[-STACK_FRAMES:]]


def _place(filename: str, lineno: int | None, name: str) -> str:
    short = "/".join(filename.split("/")[-2:])
    return f"{short}:{lineno} {name}"


def _name_tasks(loop: asyncio.AbstractEventLoop, text: str) -> None:
    """In the loop: where each task waits, for one of them is what the ticks wait for."""
    places = sorted({_waits_at(task) for task in asyncio.all_tasks(loop)} - {""})
    logger.error("loop.late", text=text, waiting=", ".join(places[:STACK_FRAMES]))


def _waits_at(task: asyncio.Task[object]) -> str:
    """The innermost frame of ours that a task waits in."""
    place = ""
    waiting: object = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None)
        if frame is not None and "/asyncio/" not in frame.f_code.co_filename:
            place = _place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        waiting = getattr(waiting, "cr_await", None)
    return place


def status_line(vitals: Vitals) -> str:
    """One line about the run, as `systemctl status` shows it."""
    report = healthy(vitals)
    if not report.ok:
        return f"{vitals.phase}: " + "; ".join(check.text for check in report.failed)
    if vitals.engine is None:
        return str(vitals.phase)
    state = vitals.engine.state
    age_s = vitals.listing_age_s()
    listed = "never listed" if age_s is None else f"listed {age_s:.0f} s ago"
    return f"{vitals.phase}: {len(state.pools)} pools, {len(state.vms)} VMs, {listed}"
