"""Appending: one task owns the one connection that writes, and commits whatever is queued.

Two tasks on one connection would share a transaction, and the rollback of one would take the
other's rows along. So callers only queue, and the writer task puts everything that is queued
into one transaction (group commit): the more callers wait, the cheaper each becomes.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import aiosqlite
from attrs import define, field

from poolsm.entries import Entry
from poolsm.spec import SecretRef
from poolsm_runners.log import archive, schema
from poolsm_runners.log.files import wal_path
from poolsm_runners.log.lock import FileLock
from poolsm_runners.log.port import (
    LogHeader,
    LogMisuseError,
    LogWriteError,
    Snapshot,
    StoredEntry,
)
from poolsm_runners.log.reader import SqliteReader
from poolsm_runners.log.rows import command_rows, event_rows, store
from poolsm_runners.log.seal import seal

TRIM_EVENTS = 5_000  # that leave for the archive in one transaction: appends wait for it
QUEUE_LIMIT = 10_000  # entries and secrets that may wait; a larger batch waits until it is alone


@define(eq=False)
class _Job:
    """What one caller waits for."""

    done: asyncio.Future[None]
    entries: Sequence[StoredEntry] = ()
    secret: tuple[str, str] | None = None
    snapshot: Snapshot | None = None
    trim: int = 0

    @property
    def weight(self) -> int:
        return len(self.entries) or 1


@define(eq=False)
class _Queue:
    """Jobs in the order of acceptance."""

    jobs: list[_Job] = field(factory=list)
    weight: int = 0
    filled: asyncio.Event = field(factory=asyncio.Event)
    emptied: asyncio.Event = field(factory=asyncio.Event)

    def has_room(self, weight: int) -> bool:
        return not self.jobs or self.weight + weight <= QUEUE_LIMIT

    def put(self, job: _Job) -> None:
        self.jobs.append(job)
        self.weight += job.weight
        self.emptied.clear()
        self.filled.set()

    def take_all(self) -> list[_Job]:
        jobs, self.jobs, self.weight = self.jobs, [], 0
        self.filled.clear()
        self.emptied.set()
        return jobs


class SqliteLog:
    """A :class:`~.port.Log`; :mod:`.sqlite` opens it. Also ``async with``, which closes it.

    Used from the event loop in which it was opened; what it reads, from any thread.
    """

    def __init__(
        self, connection: aiosqlite.Connection, lock: FileLock, reader: SqliteReader
    ) -> None:
        """Take over an open connection and a held lock; starts the writer task."""
        self._connection = connection
        self._lock = lock
        self._reader = reader
        self._key = reader.secret_key()
        self._written = self._accepted = reader.last_position()
        self._seal = reader.last_seal()
        self._files = {reader.path: _identity(reader.path)}  # what we write to
        self._queue = _Queue()
        self._door = asyncio.Lock()  # callers that wait for room stay in order
        self._failure: str | None = None
        self._closing = False
        self._writer = asyncio.create_task(self._write_queue(), name="log writer")

    # What is read is the reader's.

    @property
    def header(self) -> LogHeader:
        """What this log is."""
        return self._reader.header

    def last_position(self) -> int:
        """Position of the newest entry that this object knows to be durable."""
        return self._written

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Entry]:
        """As the port says."""
        return self._reader.read(after, upto)

    def read_stored(self, after: int = 0, upto: int | None = None) -> Iterator[StoredEntry]:
        """As the port says."""
        return self._reader.read_stored(after, upto)

    def load_snapshot(self, state_version: int, upto: int | None = None) -> Snapshot | None:
        """As the port says."""
        return self._reader.load_snapshot(state_version, upto)

    def get_secret(self, digest: str) -> str:
        """As the port says."""
        return self._reader.get_secret(digest)

    async def append(self, entries: Sequence[Entry]) -> None:
        """As the port says."""
        stored = [store(entry) for entry in entries]
        if not stored:
            self._refuse_unusable()
            return
        job = _Job(asyncio.get_running_loop().create_future(), entries=stored)
        await self._submit(job)

    async def put_secret(self, text: str) -> SecretRef:
        """As the port says."""
        try:
            secret = text.encode()
        except UnicodeEncodeError as error:
            raise LogMisuseError(f"secret: is no Unicode text ({error.reason}); mend it") from None
        digest = hmac.digest(self._key, secret, "sha256").hex()
        job = _Job(asyncio.get_running_loop().create_future(), secret=(digest, text))
        await self._submit(job)
        return SecretRef(digest, len(secret))

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """As the port says; the two newest of its state version are kept, all others dropped."""
        if not 0 < snapshot.position <= self._written:
            raise LogMisuseError(
                f"snapshot of position {snapshot.position}: the log ends at {self._written}; "
                "save the state of an entry that was appended"
            )
        job = _Job(asyncio.get_running_loop().create_future(), snapshot=snapshot)
        await self._submit(job)

    async def trim(self, upto: int) -> None:
        """As the port says."""
        begun = await asyncio.to_thread(self._check_archive, upto)
        for position in range(begun + TRIM_EVENTS, upto + TRIM_EVENTS, TRIM_EVENTS):
            job = _Job(asyncio.get_running_loop().create_future(), trim=min(position, upto))
            await self._submit(job)

    def _check_archive(self, upto: int) -> int:
        """Hold the archive against the log before anything leaves it; what is archived so far."""
        path, archived = self._reader.path, self._reader.archived()
        if upto <= archived:
            return upto
        file = archive.covering(path, upto, archived)[-1]
        seal_here = self._reader.seal_at(file.last)
        if file.last != upto or (seal_here or b"") != archive.seal_of(file, self.header.log_id):
            raise LogMisuseError(
                f"{file.path}: is not the archive of this log up to {upto}; move it away, and "
                "archive again"
            )
        return archived

    async def close(self) -> None:
        """As the port says. Also gives the lock up."""
        self._closing = True
        self._queue.filled.set()
        try:
            await asyncio.wait([self._writer])
            if not self._writer.cancelled() and (fault := self._writer.exception()):
                raise fault
        finally:
            try:
                await self._connection.close()
            finally:
                self._lock.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- accepting ---

    async def _submit(self, job: _Job) -> None:
        async with self._door:
            while not self._queue.has_room(job.weight) and self._failure is None:
                await self._queue.emptied.wait()
            self._refuse_unusable()
            if job.entries:
                self._accept(job.entries)
            self._queue.put(job)
        # The job is the writer's now: whoever cancels this call does not cancel the write.
        await asyncio.shield(job.done)

    def _refuse_unusable(self) -> None:
        if self._failure is not None:
            raise LogWriteError(f"{self._failure}; open the log again to go on")
        if self._closing:
            raise LogWriteError(f"{self._reader.path}: the log is closed; open it again to go on")

    def _accept(self, entries: Sequence[StoredEntry]) -> None:
        for expected, entry in enumerate(entries, self._accepted + 1):
            if entry.position != expected:
                raise LogMisuseError(
                    f"{self._reader.path}: position {entry.position} cannot be appended, the next "
                    f"one is {expected}; drop the state in memory and rebuild it from the log"
                )
        self._accepted = entries[-1].position

    # --- writing ---

    async def _write_queue(self) -> None:
        jobs: list[_Job] = []
        try:
            while self._failure is None:
                if jobs := self._queue.take_all():
                    await self._write(jobs)
                elif self._closing:
                    return
                else:
                    await self._queue.filled.wait()
        except asyncio.CancelledError:
            self._fail(jobs, "the writer task was cancelled")
            raise
        except Exception as error:  # a fault of ours must not leave callers waiting for ever
            self._fail(jobs, f"{type(error).__name__}: {error}")
            raise

    async def _write(self, jobs: list[_Job]) -> None:
        rows = [job for job in jobs if job.snapshot is None and not job.trim]
        try:
            if rows:
                await self._commit_rows(rows)
                self._check_files()
        except (sqlite3.Error, OSError) as error:
            await self._roll_back()
            self._fail(jobs, str(error))
            return
        for job in rows:
            _resolve(job)
        for job in jobs:
            if job.snapshot is not None:
                await self._commit_snapshot(job, job.snapshot)
            elif job.trim:
                await self._commit_trim(job)

    async def _commit_rows(self, jobs: list[_Job]) -> None:
        entries = [entry for job in jobs for entry in job.entries]
        secrets = [job.secret for job in jobs if job.secret is not None]
        if entries:
            self._seal = seal(self._seal, entries)
        events = event_rows(entries, self._seal) if entries else []
        commands = command_rows(entries)
        connection = self._connection
        if len(events) == 1 and not commands and not secrets:
            # One statement is a transaction by itself, and each await is a hop between threads.
            await connection.execute(schema.INSERT_EVENT, events[0])
            self._written = entries[-1].position
            return
        await connection.execute("BEGIN IMMEDIATE")
        if secrets:
            await connection.executemany(schema.INSERT_SECRET, secrets)
        if events:
            await connection.executemany(schema.INSERT_EVENT, events)
        if commands:
            await connection.executemany(schema.INSERT_COMMAND, commands)
        await connection.execute("COMMIT")
        if entries:
            self._written = entries[-1].position

    def _check_files(self) -> None:
        """Raise OSError if what was just written is not in the files of these names any more.

        SQLite goes on to write to a file that was removed or replaced, and nothing fails.
        """
        for path in (self._reader.path, wal_path(self._reader.path)):
            here = _identity(path)
            if self._files.setdefault(path, here) != here:
                raise OSError(f"{path.name} was replaced by another file; put the former one back")

    async def _commit_trim(self, job: _Job) -> None:
        try:
            await self._connection.execute("BEGIN IMMEDIATE")
            for statement in schema.ARCHIVE:
                await self._connection.execute(statement, (job.trim,))
            await self._connection.execute("COMMIT")
            # a script, because it gives a page back at each step until it is done
            await self._connection.executescript("PRAGMA incremental_vacuum")
        except sqlite3.Error as error:
            await self._roll_back()
            _resolve(job, f"{self._reader.path}: not trimmed ({error}); the log goes on")
        else:
            _resolve(job)

    async def _commit_snapshot(self, job: _Job, snapshot: Snapshot) -> None:
        row = (snapshot.position, snapshot.state_version, snapshot.payload)
        try:
            await self._connection.execute("BEGIN IMMEDIATE")
            await self._connection.execute(schema.INSERT_SNAPSHOT, row)
            await self._connection.execute(schema.PRUNE_SNAPSHOTS, (snapshot.state_version,))
            await self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            await self._roll_back()
            _resolve(job, f"{self._reader.path}: snapshot not saved ({error}); the log goes on")
        else:
            _resolve(job)

    async def _roll_back(self) -> None:
        # After some errors SQLite has rolled back by itself, and refuses to do it twice.
        with suppress(sqlite3.Error):
            await self._connection.execute("ROLLBACK")

    def _fail(self, jobs: list[_Job], what: str) -> None:
        self._failure = f"{self._reader.path}: cannot be written ({what})"
        for job in (*jobs, *self._queue.take_all()):
            _resolve(job, f"{self._failure}; free space or mend the disk, then open it again")


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode of the file that has this name now; raises OSError."""
    try:
        found = os.stat(path)  # noqa: PTH116 - for each commit: half the time of Path.stat
    except FileNotFoundError:
        raise OSError(f"{path.name} was removed; put it back") from None
    return found.st_dev, found.st_ino


def _resolve(job: _Job, failure: str | None = None) -> None:
    if job.done.done():
        return
    if failure is None:
        job.done.set_result(None)
    else:
        job.done.set_exception(LogWriteError(failure))
        # Nobody is left to hear of it when the caller was cancelled; that is no news.
        job.done.exception()
