"""The control socket: how the command line reaches a running runner.

A Unix socket beside the log (``<log>.sock``), for the log's owner alone (0600). One JSON line
each way, then the connection is closed. The runner holds the log's lock before it opens the
socket, so a socket that is there already is a dead runner's and is replaced.

A client cannot hurt the runner: the size of a request, the time to send it and to take the
answer, and the number of clients at once are limited; what cannot be read is answered with an
error, and costs nothing but that.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from poolsm import Step
from poolsm.errors import PoolsmError
from poolsm.state import State
from poolsm_runners.control_requests import (
    Answer,
    Away,
    Envelope,
    Failed,
    Make,
    Refused,
    Result,
    carry_out,
)
from poolsm_runners.engine import Engine
from poolsm_runners.log.files import real_path
from poolsm_runners.operations import RefusedError

REQUEST_LIMIT_BYTES = 8 * 1024 * 1024
ANSWER_LIMIT_BYTES = 1024 * 1024 * 1024
READ_TIMEOUT_S = 5.0
WORK_TIMEOUT_S = 30.0
WRITE_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = 60.0
CLIENTS_LIMIT = 32
PATH_LIMIT_BYTES = 107  # of a socket's address (sun_path), without its final NUL

logger = structlog.get_logger()


class ControlError(PoolsmError):
    """The control socket cannot be made or used."""


class NoRunnerError(ControlError):
    """No runner listens at the socket."""


class RunnerAwayError(ControlError):
    """A runner listens, but works on no fleet at the time; nothing was changed."""


class Runner(Protocol):
    """What the socket needs of a runner."""

    @property
    def engine(self) -> Engine:
        """For its state."""
        ...

    async def submit(self, make: Make, origin: str) -> list[Step]:
        """Check, record, and return when it is durable."""
        ...


def socket_path(log_path: str | os.PathLike[str]) -> Path:
    """Where the control socket of a log is."""
    path = real_path(log_path)
    return path.with_name(path.name + ".sock")


class ControlServer:
    """Serves the socket of one log until it is closed, whether its runner works or waits."""

    def __init__(self, log_path: str | os.PathLike[str]) -> None:
        self.path = socket_path(log_path)
        self._host: _RunnerHost | None = None
        self._why = "it is just starting; try again"
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._inode = 0

    async def start(self) -> None:
        """Listen; raises ControlError. The caller holds the log's lock."""
        listener = _bind(self.path)
        self._inode = self.path.stat().st_ino
        self._server = await asyncio.start_unix_server(
            self._accept, sock=listener, limit=REQUEST_LIMIT_BYTES
        )

    def serve(self, runner: Runner) -> None:
        """From now on this runner carries requests out."""
        self._host = _RunnerHost(runner)

    def away(self, why: str) -> None:
        """From now on nobody does; each request is answered with the reason."""
        self._host, self._why = None, why

    async def close(self) -> None:
        """Stop listening and drop who is connected; calling it again does nothing."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for client in self._clients:
            client.cancel()
        if self._clients:
            await asyncio.wait(self._clients, timeout=WRITE_TIMEOUT_S)
        with suppress(OSError):  # removed already, or replaced by another runner
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.current_task()
        assert client is not None
        self._clients.add(client)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError) as error:
            logger.debug("control.client_lost", error=str(error))
        except asyncio.CancelledError:
            # asyncio 3.11 reports a cancelled handler as a fault; close() knows that it ended
            if self._server is not None:
                raise
        finally:
            self._clients.discard(client)
            writer.transport.abort()  # nothing is left to be sent, or nobody takes it

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) > CLIENTS_LIMIT:
            answer: Answer = Failed(f"the runner serves {CLIENTS_LIMIT} clients; try again")
        else:
            answer = await self._answer(reader)
        writer.write(msgspec.json.encode(answer) + b"\n")
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                line = await reader.readuntil(b"\n")
            envelope = msgspec.json.decode(line, type=Envelope)
        except TimeoutError:
            return Failed(f"no whole request came within {READ_TIMEOUT_S:g} s")
        except asyncio.LimitOverrunError:
            return Refused(f"the request has more than {REQUEST_LIMIT_BYTES} bytes")
        except (asyncio.IncompleteReadError, msgspec.MsgspecError, ValueError) as error:
            return Refused(f"not a request of this release: {error}")
        except RecursionError:
            return Refused("not a request of this release: nested too deeply")
        host = self._host
        if host is None:
            return Away(self._why)
        try:
            async with asyncio.timeout(WORK_TIMEOUT_S):
                return await carry_out(host, envelope)
        except RefusedError as error:
            return Refused(str(error))
        except TimeoutError:
            return Failed(f"not known to be durable after {WORK_TIMEOUT_S:g} s; ask again")
        except PoolsmError as error:
            return Failed(str(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a fault of ours must not end the runner
            logger.exception("control.fault", request=type(envelope.request).__name__)
            return Failed(f"{type(error).__name__}: see the runner's log")


class _RunnerHost:
    """A runner as a host of requests."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @property
    def state(self) -> State:
        return self._runner.engine.state

    async def submit(self, make: Make, origin: str) -> list[Step]:
        return await self._runner.submit(make, origin)

    async def trim(self, upto: int) -> None:
        await self._runner.engine.log.trim(upto)


def call(
    log_path: str | os.PathLike[str], envelope: Envelope, *, timeout_s: float = CALL_TIMEOUT_S
) -> Result:
    """Ask the runner of a log, and wait for its answer.

    Raises:
        NoRunnerError: nobody listens.
        RunnerAwayError: one listens, and cannot work now; nothing was changed.
        RefusedError: the runner refused; nothing was changed.
        ControlError: no answer, so it is not known whether anything was changed.
    """
    path = socket_path(log_path)
    line = msgspec.json.encode(envelope) + b"\n"
    if len(line) > REQUEST_LIMIT_BYTES:
        raise RefusedError(
            f"the request has {len(line)} bytes, the limit is {REQUEST_LIMIT_BYTES}; "
            "declare fewer pools and configs at once"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        client.settimeout(timeout_s)
        try:
            with _address(path) as address:
                client.connect(address)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoRunnerError(f"{path}: no runner listens; start one with `poolsm run`") from None
        except OSError as error:
            raise ControlError(
                f"{path}: the runner cannot be reached ({error.strerror or error}); "
                "run this as the user who runs it"
            ) from None
        try:
            with suppress(BrokenPipeError):  # it may have answered already: too many clients
                client.sendall(line)
            data = _read_line(client)
            answer = msgspec.json.decode(data, type=Answer)
        except (OSError, msgspec.MsgspecError) as error:
            raise ControlError(
                f"{path}: the runner gave no answer ({error}); see with `poolsm status` "
                "whether it was carried out"
            ) from None
    return _result(answer)


def _result(answer: Answer) -> Result:
    if isinstance(answer, Refused):
        raise RefusedError(answer.error)
    if isinstance(answer, Failed):
        raise ControlError(answer.error)
    if isinstance(answer, Away):
        raise RunnerAwayError(f"the runner does not act now: {answer.why}")
    return answer


def _read_line(client: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        chunk = client.recv(1024 * 1024)
        if not chunk:
            raise ConnectionResetError("it closed the connection")
        data += chunk
        if len(data) > ANSWER_LIMIT_BYTES:
            raise ConnectionResetError("its answer is too large")
    return bytes(data)


def _bind(path: Path) -> socket.socket:
    """A listening socket at ``path``, never open to others, not even for an instant."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        _remove_stale(path)
        with _address(path) as address:
            listener.bind(address)
        path.chmod(0o600)  # connecting is refused until it listens
        listener.listen(CLIENTS_LIMIT)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise ControlError(
            f"{path}: no control socket can be made here ({error.strerror or error}); "
            "put the log into a folder that this user may write to"
        ) from None
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ControlError(f"{path}: is no socket, so not ours; move it away")
    path.unlink()


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """A socket's address. The kernel takes 107 bytes; a longer path goes through its folder."""
    if len(os.fsencode(path)) <= PATH_LIMIT_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        address = f"/proc/self/fd/{folder}/{path.name}"
        if len(os.fsencode(address)) > PATH_LIMIT_BYTES:
            raise ControlError(f"{path}: is too long a name for a socket; shorten the log's name")
        yield address
    finally:
        os.close(folder)
