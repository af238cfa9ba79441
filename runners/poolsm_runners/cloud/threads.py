"""Blocking calls in threads of their own, each with a deadline that nothing can outlast.

A call has two sides: a daemon thread that does the blocking work, and the event loop that
waits for it. When the deadline passes, or the waiting task is cancelled, the loop abandons
the call: the socket that its thread reads from is shut down, so that the thread comes back at
once even from a server that sends a byte a second, and from then on the thread may send
nothing. What cannot be interrupted (a name look-up) goes on in a thread that no longer counts
as working; so many of these may exist and no more.

Whether a byte of the request left is known and not guessed: the connection asks ``sending``
for leave before the first byte, under the same lock under which the loop abandons. A call
reported as not sent is therefore never sent later.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol, TypeVar

from poolsm_runners.cloud.port import TransportError

T = TypeVar("T")

AUTH, REQUEST = "auth", "request"

# The thread gives up this much (of the deadline; at most so many seconds) before the loop
# does: its own account of what happened is the more exact one.
_EARLIER = 0.05
_EARLIER_MAX_S = 0.25


class AbandonedError(Exception):
    """Raised in a call's thread: its deadline has passed, or nobody waits for it any more."""


class Connection(Protocol):
    """What a call knows of the connection it uses."""

    sock: socket.socket | None
    used_by: Call | None


class Call:
    """One blocking exchange, seen from its thread and from the loop."""

    def __init__(self, deadline_s: float) -> None:
        self._ends = time.monotonic() + deadline_s - min(deadline_s * _EARLIER, _EARLIER_MAX_S)
        self._lock = threading.Lock()
        self._abandoned = False
        self._sent = False
        self._phase = AUTH
        self._connection: Connection | None = None

    @property
    def sent(self) -> bool:
        """Whether a byte of the request itself may have left."""
        return self._sent

    @property
    def phase(self) -> str:
        """``AUTH`` while a token or an endpoint is fetched, else ``REQUEST``."""
        return self._phase

    def enter(self, phase: str) -> None:
        """Begin a phase; nothing of the request counts as sent yet."""
        with self._lock:
            self._phase = phase
            self._sent = False

    def remaining_s(self) -> float:
        """Seconds left, more than 0; raises AbandonedError when there are none."""
        left = self._ends - time.monotonic()
        if self._abandoned or left <= 0:
            raise AbandonedError("the deadline passed")
        return left

    def sending(self, connection: Connection | None) -> None:
        """Ask for leave to send; raises AbandonedError. None: a connection we cannot stop."""
        with self._lock:
            self.remaining_s()
            self._connection = connection
            if connection is not None:
                connection.used_by = self
            self._sent = self._phase == REQUEST

    def abandon(self) -> bool:
        """Stop the call for good, and say whether a byte of its request may have left."""
        with self._lock:
            self._abandoned = True
            sent, connection = self._sent, self._connection
        # The connection may be back in the pool and in use by another call.
        if connection is not None and connection.used_by is self:
            sock = connection.sock
            if sock is not None:
                # SSLSocket.shutdown would take the TLS state from under the reading thread.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
        return sent


CALL: ContextVar[Call] = ContextVar("call")
"""The call whose thread this is."""


class CallThreads:
    """Runs blocking calls: at most ``limit`` at once, and ``stuck_limit`` past their deadline.

    Callers beyond ``limit`` wait in turn, within their deadline; ``limit`` should therefore
    be no smaller than the number of calls that the budget lets through.
    """

    def __init__(self, limit: int = 16, stuck_limit: int = 32) -> None:
        self._free = asyncio.Semaphore(limit)
        self._stuck_limit = stuck_limit
        self._lock = threading.Lock()
        self._running: set[Call] = set()
        self._stuck = 0

    @property
    def stuck(self) -> int:
        """Threads that have not come back from a call that was given up."""
        return self._stuck

    async def run(self, work: Callable[[Call], T], deadline_s: float) -> T:
        """The result of ``work(call)``, computed in a thread.

        Raises:
            TransportError: the deadline passed (``timeout``, or ``not_sent`` if
                not a byte of the request left), or too many threads hang (``not_sent``).
            Exception: whatever ``work`` raises.
        """
        ends = asyncio.get_running_loop().time() + deadline_s
        try:
            async with asyncio.timeout_at(ends):
                await self._free.acquire()
        except TimeoutError:
            raise TransportError("not_sent", "no free thread within the deadline") from None
        try:
            return await self._run(work, deadline_s, ends)
        finally:
            self._free.release()

    async def _run(self, work: Callable[[Call], T], deadline_s: float, ends: float) -> T:
        loop = asyncio.get_running_loop()
        if self._stuck >= self._stuck_limit:
            raise TransportError(
                "not_sent", f"{self._stuck} earlier calls hang in system calls past their deadline"
            )
        call = Call(min(deadline_s, ends - loop.time()))
        done: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._running.add(call)
        threading.Thread(
            target=self._main, args=(work, call, done, loop), name="cloud-call", daemon=True
        ).start()
        try:
            async with asyncio.timeout_at(ends):
                return await done
        except TimeoutError:
            sent = call.abandon()
            raise TransportError(
                "timeout" if sent else "not_sent",
                f"no answer within {deadline_s:g} s" if sent else f"not sent in {deadline_s:g} s",
            ) from None
        finally:
            if not done.done() or done.cancelled():
                call.abandon()
                self._give_up(call)

    def close(self) -> None:
        """Abandon every call that runs."""
        with self._lock:
            calls = list(self._running)
        for call in calls:
            call.abandon()

    def _give_up(self, call: Call) -> None:
        with self._lock:
            if call in self._running:
                self._running.remove(call)
                self._stuck += 1

    def _ended(self, call: Call) -> None:
        with self._lock:
            if call in self._running:
                self._running.remove(call)
            else:
                self._stuck -= 1

    def _main(
        self,
        work: Callable[[Call], T],
        call: Call,
        done: asyncio.Future[T],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        CALL.set(call)  # a new thread has a context of its own
        deliver: Callable[[], None]
        try:
            result = work(call)
        except Exception as error:  # noqa: BLE001 - the waiting side raises it
            failure = error

            def deliver() -> None:
                if not done.done():
                    done.set_exception(failure)
        else:

            def deliver() -> None:
                if not done.done():
                    done.set_result(result)

        self._ended(call)
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            loop.call_soon_threadsafe(deliver)
