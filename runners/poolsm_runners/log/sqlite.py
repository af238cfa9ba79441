"""Making and opening the SQLite form of the log (C8, C23).

The file holds secrets: it, its write-ahead log and its lock are for their owner only (0600).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import uuid
from contextlib import closing, suppress
from pathlib import Path

import aiosqlite

from poolsm_runners.log import files, schema
from poolsm_runners.log.draft import make
from poolsm_runners.log.durable import settle
from poolsm_runners.log.lock import FileLock, is_held
from poolsm_runners.log.port import LogOpenError
from poolsm_runners.log.reader import SqliteReader, open_read_only
from poolsm_runners.log.writer import SqliteLog

__all__ = ["create", "open_for_append", "open_read_only", "SqliteLog", "SqliteReader"]

WAL_LIMIT_BYTES = 64 * 1024 * 1024  # to which a write-ahead log that grew is cut back


async def create(
    path: str | os.PathLike[str], *, created_ms: int, log_id: str | None = None
) -> SqliteLog:
    """Make a new, empty log and open it for appending.

    Args:
        path: where nothing is yet.
        created_ms: now, in milliseconds since 1970 UTC.
        log_id: a UUID; drawn at random if not given.

    Raises:
        LogOpenError: something is at ``path``, or no log can be made there.
    """
    await asyncio.to_thread(make, files.real_path(path), created_ms, log_id or str(uuid.uuid4()))
    return await open_for_append(path)


async def open_for_append(path: str | os.PathLike[str]) -> SqliteLog:
    """Open an existing log as its only writer; a log of an older format is migrated.

    Raises:
        LogLockedError: another runner has it.
        LogOpenError: there is no such log, or it is refused; it is left as it was.
    """
    real = files.real_path(path)
    try:
        lock = await asyncio.to_thread(_check_and_lock, real)
    except OSError as error:
        raise LogOpenError(
            f"{real}: cannot be opened for writing ({error.strerror or error}); "
            "check its folder, its file system and its disk"
        ) from None
    try:
        connection = await _connect(real)
        try:
            return SqliteLog(connection, lock, SqliteReader(real))
        except BaseException:
            await connection.close()
            raise
    except BaseException:
        lock.release()
        raise


def _check_and_lock(path: Path) -> FileLock:
    """Everything that has to hold before the first write; what is refused is left alone."""
    files.refuse_network(path)
    files.identify(path)
    files.refuse_foreign_wal(path)
    held = is_held(path)
    if not held:
        files.check(path)  # before the lock, so that not even a lock file appears beside damage
    try:
        lock = FileLock(path)
    except OSError as error:
        raise LogOpenError(
            f"{path}: its lock file cannot be written ({error.strerror}); "
            "give this user the folder, or free space"
        ) from None
    try:
        if held:  # its holder went away just now
            files.check(path)
        # Who wrote it last may have ended with an fsync that failed, and rows that are there for
        # a reader and not on the disk. Nothing is built on them before they are.
        if files.has_wal(path):
            settle(files.wal_path(path))
        _prepare(path)
    except BaseException:
        lock.release()
        raise
    return lock


def _prepare(path: Path) -> None:
    try:
        # of another owner: then that is how it was set up; read-only: SQLite says so just below
        with suppress(OSError):
            path.chmod(0o600)  # a restored backup often is open to all
        with closing(
            sqlite3.connect(files.uri(path, "mode=rw"), uri=True, isolation_level=None)
        ) as connection:
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found != schema.FORMAT_VERSION:
                schema.migrate(connection, found)
    except sqlite3.Error as error:
        raise _cannot_write(path, error) from None


async def _connect(path: Path) -> aiosqlite.Connection:
    try:
        connection = await aiosqlite.connect(
            files.uri(path, "mode=rw"), uri=True, isolation_level=None
        )
    except sqlite3.Error as error:
        raise _cannot_write(path, error) from None
    try:
        await _set_up(connection, path)
    except BaseException as error:
        await connection.close()
        if isinstance(error, sqlite3.Error):
            raise _cannot_write(path, error) from None
        raise
    return connection


async def _set_up(connection: aiosqlite.Connection, path: Path) -> None:
    (mode,) = next(iter(await connection.execute_fetchall("PRAGMA journal_mode = WAL")))
    if mode != "wal":
        raise LogOpenError(
            f"{path}: its file system allows no write-ahead log (journal mode {mode}); "
            "put the log on an ordinary local disk"
        )
    await connection.execute("PRAGMA synchronous = FULL")
    await connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")


def _cannot_write(path: Path, error: sqlite3.Error) -> LogOpenError:
    return LogOpenError(
        f"{path}: cannot be opened for writing ({error}); "
        "check its owner, its folder and the space on the disk"
    )
