"""Reading a log with plain sqlite3: no thread hop per row, no lock held between chunks."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from poolsm.entries import Entry
from poolsm_runners.log import archive, files, lock, schema
from poolsm_runners.log.port import (
    LogDamagedError,
    LogHeader,
    LogOpenError,
    SecretMissingError,
    Snapshot,
    StoredCommand,
    StoredEntry,
)
from poolsm_runners.log.rows import restore
from poolsm_runners.log.seal import first_seal

CHUNK = 1000  # entries per query


class SqliteReader:
    """A :class:`~.port.LogSource`. Every call has a read-only connection of its own."""

    def __init__(self, path: Path, parameters: str = "mode=ro") -> None:
        """Read the header of a checked log; ``parameters`` are those of SQLite's URI."""
        self.path = path
        self._uri = files.uri(path, parameters)
        with self._connection() as connection:
            log_id, created_ms, _ = connection.execute(schema.SELECT_HEADER).fetchone()
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            (archived,) = connection.execute(schema.SELECT_ARCHIVED).fetchone()
        self._header = LogHeader(log_id, created_ms, version, archived)

    @property
    def header(self) -> LogHeader:
        """What this log is."""
        return self._header

    def archived(self) -> int:
        """Events up to this position are in the archive, by now."""
        with self._connection() as connection:
            return int(connection.execute(schema.SELECT_ARCHIVED).fetchone()[0])

    def last_position(self) -> int:
        """Position of the newest durable entry; 0 when there is none."""
        with self._connection() as connection:
            return int(connection.execute(schema.SELECT_LAST_POSITION).fetchone()[0])

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Entry]:
        """As the port says."""
        here = f"{self.path}: position "
        for stored in self.read_stored(after, upto):
            yield restore(stored, here + str(stored.position))

    def read_stored(self, after: int = 0, upto: int | None = None) -> Iterator[StoredEntry]:
        """As the port says."""
        limit = schema.POSITION_LIMIT if upto is None else upto
        archived = self.archived()
        for file in archive.covering(self.path, archived, after) if after < archived else ():
            for stored in archive.read(file, self._header.log_id, after):
                if stored.position > min(archived, limit):
                    break
                after = stored.position
                yield stored
        with self._connection() as connection:
            # Each chunk is a transaction of its own, so that a slow consumer never keeps the
            # write-ahead log from being emptied. Rows never change, so chunks need no snapshot.
            while chunk := _read_chunk(connection, after, limit):
                if chunk[0].position > after + 1 and archived < self.archived():
                    yield from self.read_stored(after, upto)  # archived since we began
                    return
                for stored in chunk:
                    after += 1
                    if stored.position != after:
                        raise LogDamagedError(
                            f"{self.path}: position {after} is missing (next: {stored.position}); "
                            "restore a backup"
                        )
                    yield stored

    def load_snapshot(self, state_version: int, upto: int | None = None) -> Snapshot | None:
        """As the port says."""
        limit = schema.POSITION_LIMIT if upto is None else upto
        with self._connection() as connection:
            row = connection.execute(schema.SELECT_SNAPSHOT, (state_version, limit)).fetchone()
        return None if row is None else Snapshot(*row)

    def last_seal(self) -> bytes:
        """The newest seal, or what stands for it before the first; see :mod:`.seal`."""
        with self._connection() as connection:
            unsealed, _, newest = connection.execute(schema.SELECT_SEALED).fetchone()
        return bytes(newest) or first_seal(self._header.log_id, unsealed)

    def archived_seal(self) -> bytes:
        """The seal at the end of the archive; empty where the log had none there."""
        archived = self.archived()
        file = archive.covering(self.path, archived, archived - 1)[-1]
        return archive.seal_of(file, self._header.log_id) if file.last == archived else b""

    def seal_at(self, position: int) -> bytes | None:
        """The seal that an event of the live log carries; None if it carries none."""
        with self._connection() as connection:
            row = connection.execute(schema.SELECT_SEAL, (position,)).fetchone()
        return bytes(row[0]) if row is not None and row[0] is not None else None

    def sealed_upto(self, position: int) -> int:
        """The last position where the log may be cut, not beyond ``position``; 0 for none.

        That is where a transaction ended; anywhere, in what an older release wrote.
        """
        with self._connection() as connection:
            return int(connection.execute(schema.SELECT_SEALED_UPTO, (position,)).fetchone()[0])

    def last_before(self, at_ms: int) -> int:
        """The last position in the live log of an event before an instant; 0 for none."""
        with self._connection() as connection:
            return int(connection.execute(schema.SELECT_POSITION_BEFORE, (at_ms,)).fetchone()[0])

    def get_secret(self, digest: str) -> str:
        """As the port says."""
        with self._connection() as connection:
            row = connection.execute(schema.SELECT_SECRET, (digest,)).fetchone()
        if row is None:
            raise SecretMissingError(
                f"{self.path}: holds no secret {digest}; declare again what refers to it"
            )
        return str(row[0])

    def secret_key(self) -> bytes:
        """The log's own key; for the writer."""
        with self._connection() as connection:
            return bytes(connection.execute(schema.SELECT_HEADER).fetchone()[2])

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(self._uri, uri=True, isolation_level=None, check_same_thread=False)
            ) as connection:
                yield connection
        except sqlite3.Error as error:
            raise LogDamagedError(
                f"{self.path}: cannot be read ({error}); check the disk, or restore a backup"
            ) from error


def open_read_only(path: str | os.PathLike[str]) -> SqliteReader:
    """A log to read, whether a runner appends to it or not.

    Raises LogOpenError; what is refused is left byte for byte as it was.
    """
    real = files.real_path(path)
    version = files.identify(real)
    if version != schema.FORMAT_VERSION:
        raise LogOpenError(
            f"{real}: has the older log format {version}; open it once with a runner, "
            "which migrates it"
        )
    try:
        files.check(real)
    except LogOpenError:
        # A runner that checkpoints just now looks like damage to somebody without its locks.
        if not lock.is_held(real):
            raise
    try:
        return SqliteReader(real)
    except LogDamagedError:
        # Where nothing can be written (a folder of another user, a read-only mount) SQLite has
        # no place for its shared memory. A log at rest can be read without any.
        if lock.is_held(real) or os.access(real.parent, os.W_OK):
            raise
        if files.has_wal(real):
            raise LogOpenError(
                f"{real}: its runner was killed and its folder cannot be written, so its newest "
                "entries cannot be read; copy it with its -wal file to a folder of your own"
            ) from None
        return SqliteReader(real, "mode=ro&immutable=1")


def _read_chunk(connection: sqlite3.Connection, after: int, upto: int) -> list[StoredEntry]:
    rows = connection.execute(schema.SELECT_EVENTS, (after, upto, CHUNK)).fetchall()
    if not rows:
        return []
    commands: dict[int, list[StoredCommand]] = {}
    for position, *command in connection.execute(
        schema.SELECT_COMMANDS, (after, rows[-1][0])
    ).fetchall():
        commands.setdefault(position, []).append(StoredCommand(*command))
    return [
        StoredEntry(position, at_ms, kind, version, payload, tuple(commands.get(position, ())))
        for position, at_ms, kind, version, payload in rows
    ]
