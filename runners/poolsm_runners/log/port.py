"""The log as a port: what the loop and replay know of it (C8, C10, C11).

Only this module is imported by what uses a log; :mod:`.sqlite` is one implementation. Nothing
here assumes a file, so that a log in a database server can stand in (design, section 7).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from attrs import field, frozen

from poolsm.entries import Entry
from poolsm.errors import PoolsmError
from poolsm.spec import SecretRef


class LogError(PoolsmError):
    """Base of what a log refuses or cannot do; its text is one line for an operator."""


class LogOpenError(LogError):
    """A log is missing, damaged, foreign, of another format, or where none may be made."""


class LogLockedError(LogOpenError):
    """Another runner appends to this log."""


class LogWriteError(LogError):
    """Writing failed.

    From :meth:`Log.append` and :meth:`Log.put_secret`: the log refuses every further write
    until it is opened again, and only what it then holds was written. From
    :meth:`Log.save_snapshot`: a snapshot is a cache, the log goes on.
    """


class LogDamagedError(LogError):
    """A log that was opened holds what cannot be: a gap, an unreadable page."""


class LogMisuseError(LogError):
    """A call that no log can carry out; the log is as it was before it."""


class SecretMissingError(LogError):
    """The log holds no secret of this digest."""


class LogExchangeError(LogError):
    """An export that cannot be written, or read and imported."""


@frozen
class LogHeader:
    """What a log is. ``created_ms`` is in milliseconds since 1970 UTC.

    ``archived``: events up to this position were in its archive when it was opened.
    """

    log_id: str
    created_ms: int
    format_version: int
    archived: int = 0


@frozen
class Snapshot:
    """The core's state right after the event at ``position``; a cache of one state version."""

    position: int
    state_version: int
    payload: bytes = field(repr=False)


# Named tuples, because every event passes through one: a frozen attrs class takes three times as
# long to make.
class StoredCommand(NamedTuple):
    """One command as it is stored: JSON of ``version`` of ``kind``."""

    command_id: str
    kind: str
    version: int
    payload: bytes


class StoredEntry(NamedTuple):
    """One entry as it is stored: JSON of ``version`` of ``kind``, whichever release wrote it."""

    position: int
    at_ms: int
    kind: str
    version: int
    payload: bytes
    commands: tuple[StoredCommand, ...] = ()


class LogSource(Protocol):
    """What replay, the command line and the loop read. Safe to call from any thread."""

    @property
    def header(self) -> LogHeader:
        """What this log is."""
        ...

    def last_position(self) -> int:
        """Position of the newest durable entry; 0 when there is none."""
        ...

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Entry]:
        """Entries with ``after < position <= upto``, in order.

        Without ``upto`` it ends at the newest entry at the time when it gets there. It may be
        left at any time, and never holds up a writer, however slowly it is drained.

        Raises:
            UnknownKindError, UnreadableRecordError: naming the position; nothing is skipped.
            LogDamagedError: a position is missing, or the storage is unreadable.
        """
        ...

    def read_stored(self, after: int = 0, upto: int | None = None) -> Iterator[StoredEntry]:
        """The same entries, undecoded; raises LogDamagedError."""
        ...

    def load_snapshot(self, state_version: int, upto: int | None = None) -> Snapshot | None:
        """The newest snapshot of exactly this state version, not beyond ``upto``."""
        ...

    def get_secret(self, digest: str) -> str:
        """The secret of a :class:`SecretRef`; raises SecretMissingError."""
        ...


class Log(LogSource, Protocol):
    """What the loop appends to: the only writer of this log."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """Return once all entries and their commands are durable: all of them, or none.

        Concurrent calls share a transaction and are written in the order of the calls. A
        cancelled call has written all of its entries or none: none if it was still waiting
        for room in the queue, else all, as if it had not been cancelled.

        Raises:
            LogMisuseError: the positions do not follow the last accepted one without a gap,
                or a command has no id; nothing was accepted.
            LogWriteError: not durable, and no further append will be.
        """
        ...

    async def put_secret(self, text: str) -> SecretRef:
        """Return once the secret is durable, so before any event can refer to it.

        The same text always has the same reference in one log. Raises LogWriteError.
        """
        ...

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Return once the snapshot is durable; older ones may be dropped for it.

        Raises:
            LogMisuseError: it is of a position beyond the newest durable entry.
            LogWriteError: it was not saved; the log itself goes on.
        """
        ...

    async def trim(self, upto: int) -> None:
        """Return once events up to a position are in the archive alone; reading stays the same.

        The archive was written before, and ends just there. It goes in several transactions.

        Raises:
            LogDamagedError, LogMisuseError: the archive is not whole, or not of this log;
                nothing was removed.
            LogWriteError: it did not go on; the log does, and the call can be repeated.
        """
        ...

    async def close(self) -> None:
        """Write what was accepted, then give the log up. Calling it again does nothing."""
        ...
