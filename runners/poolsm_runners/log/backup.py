"""Copies of a log, taken while it is written, and going back to one.

A copy is one consistent moment: a read transaction is held over all of its steps, which in
SQLite's write-ahead mode holds up no writer. It holds the secrets, as the log does. It keeps the
format of the log, so that the release that wrote it can go back to it, too.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen

from poolsm_runners.log import archive, files, schema
from poolsm_runners.log.durable import sync, writing
from poolsm_runners.log.lock import FileLock, is_held
from poolsm_runners.log.port import LogOpenError
from poolsm_runners.log.reader import SqliteReader

PAGES_PER_STEP = 4096  # 16 MiB between two reports of progress

Progress = Callable[[int, int], None]  # bytes done, of how many


@frozen
class Copied:
    """A copy that is durable and was checked.

    ``at_ms`` is the time of its last event; 0 when it has none.
    """

    path: Path
    position: int
    at_ms: int
    size_bytes: int
    archive_files: int


def backup(
    log: Path, dest: Path, *, replace: bool = False, progress: Progress = lambda *_: None
) -> Copied:
    """Copy a log, and the files of its archive, whether a runner writes to it or not.

    Raises:
        LogOpenError: the log is refused, or something is at ``dest``; nothing was changed.
        LogDamagedError: the copy, or what it was made of, is not whole; no copy is left.
        OSError: of the destination.
    """
    source, dest = _sound(log), files.real_path(dest)
    if dest == source:
        raise LogOpenError(f"{dest}: is the log itself; name another file")
    if not replace:
        _refuse_taken(dest)
    with _drafted(dest) as draft:
        _copy(source, draft, dest, progress)
        files.check(draft)
        parts = _archive_of(source, draft)
        _copy_archive(parts, dest)
        draft.replace(dest)
        sync(dest.parent)
    return _copied(dest, len(parts))


def restore(
    copy: Path, log: Path, *, replace: bool = False, progress: Progress = lambda *_: None
) -> tuple[Copied, Path | None]:
    """Put a copy where the log is to be; what was there is kept beside it, under a dated name.

    Returns what was restored, and where the old log is now; None if there was none.

    Raises:
        LogLockedError: a runner appends to the log.
        LogOpenError: the copy is refused, or a log is there and ``replace`` does not say to
            put it aside; nothing was changed.
        OSError: of the folder.
    """
    source, log = _sound(copy), files.real_path(log)
    if log == source:
        raise LogOpenError(f"{log}: is the copy itself; name the log with --log")
    files.refuse_network(log)
    if not replace:
        _refuse_taken(log)
    lock = FileLock(log)
    try:
        with _drafted(log) as draft:
            _copy(source, draft, log, progress)
            files.check(draft)
            parts = _archive_of(source, draft)
            aside = _put_aside(log) if os.path.lexists(log) else None
            _copy_archive(parts, log)
            draft.replace(log)
            sync(log.parent)
    finally:
        lock.release()
    return _copied(log, len(parts)), aside


def _refuse_taken(path: Path) -> None:
    if os.path.lexists(path):
        raise LogOpenError(f"{path}: exists already; --replace takes its place")


@contextmanager
def _drafted(dest: Path) -> Iterator[Path]:
    fd, name = tempfile.mkstemp(prefix=f".{dest.name}.", suffix=".draft", dir=dest.parent)
    os.close(fd)
    try:
        yield Path(name)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(name + suffix).unlink(missing_ok=True)


def _sound(path: Path) -> Path:
    """The file of a log of any format that this release knows; raises LogOpenError."""
    real = files.real_path(path)
    files.identify(real)
    try:
        files.check(real)
    except LogOpenError:
        if not is_held(real):  # a runner that checkpoints just now looks like damage
            raise
    return real


def _copy(source: Path, draft: Path, dest: Path, progress: Progress) -> None:
    def told(_: int, remaining: int, total: int) -> None:
        progress((total - remaining) * page_bytes, total * page_bytes)

    # A copy at rest has no write-ahead log, and where its folder cannot be written no place
    # for one: it is then read as it is.
    at_rest = not files.has_wal(source) and not is_held(source)
    parameters = "mode=ro&immutable=1" if at_rest else "mode=ro"
    try:
        with (
            closing(_connected(source, parameters)) as live,
            closing(sqlite3.connect(draft, isolation_level=None)) as copy,
        ):
            live.execute("BEGIN")  # one moment: without it, each write would begin the copy anew
            page_bytes = live.execute("PRAGMA page_size").fetchone()[0]
            live.execute(schema.SELECT_HEADER).fetchone()
            live.backup(copy, pages=PAGES_PER_STEP, progress=told)
            live.execute("ROLLBACK")
            copy.execute("PRAGMA journal_mode = DELETE")  # one file; a runner changes it back
    except sqlite3.Error as error:
        raise LogOpenError(
            f"{dest}: no copy of {source} can be made here ({error}); free space, or mend the disk"
        ) from None
    sync(draft)


def _connected(path: Path, parameters: str = "mode=ro&immutable=1") -> sqlite3.Connection:
    return sqlite3.connect(files.uri(path, parameters), uri=True, isolation_level=None)


def _copied(path: Path, archive_files: int) -> Copied:
    with closing(_connected(path)) as connection:
        row = connection.execute(schema.SELECT_LAST_TIME).fetchone()
    size_bytes = path.stat().st_size
    if row is not None or not archive_files:
        position, at_ms = row or (0, 0)
        return Copied(path, position, at_ms, size_bytes, archive_files)
    newest = archive.files_of(path)[-1]
    reader = SqliteReader(path, "mode=ro&immutable=1")
    (last,) = reader.read_stored(newest.last - 1)
    return Copied(path, last.position, last.at_ms, size_bytes, archive_files)


def _archive_of(log: Path, draft: Path) -> list[archive.ArchiveFile]:
    """The files of a log's archive that a copy of it needs; raises LogDamagedError."""
    if files.identify(draft) == 1:  # had no archive
        return []
    header = SqliteReader(draft, "mode=ro&immutable=1").header
    wanted = archive.covering(log, header.archived) if header.archived else []
    for file in wanted:
        archive.verify(file, header.log_id)
    return wanted


def _copy_archive(parts: list[archive.ArchiveFile], dest: Path) -> None:
    """Files beside the copy; each is whole or not there."""
    folder = archive.folder_of(dest)
    if parts:
        folder.mkdir(mode=0o700, exist_ok=True)
    for file in parts:
        target, data = folder / file.path.name, file.path.read_bytes()
        if not target.exists() or target.read_bytes() != data:
            with writing(target) as copy:
                copy.write(data)
    if parts:
        sync(folder)


def _settle(log: Path) -> None:
    """Take a killed runner's write-ahead log into the file, so that it is one file again."""
    if not files.has_wal(log):
        return
    # what is damaged stays as it is, in two parts
    with suppress(sqlite3.Error), closing(_connected(log, "mode=rw")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _put_aside(log: Path) -> Path:
    """The old log under another name, with what belongs to it; the caller holds its lock.

    It keeps its own name beside the new one until the copy takes its place: a runner that
    started between the two would else find no log, and begin a new one.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = log.with_name(f"{log.name}.before-restore-{stamp}")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = log.with_name(f"{log.name}.before-restore-{stamp}-{number}")
    _settle(log)
    if files.has_wal(log):
        for suffix in ("-wal", ""):  # never a main file under its name without its newest entries
            log.with_name(log.name + suffix).rename(aside.with_name(aside.name + suffix))
    else:
        os.link(log, aside)
        log.with_name(log.name + "-wal").unlink(missing_ok=True)
    log.with_name(log.name + "-shm").unlink(missing_ok=True)
    if archive.folder_of(log).exists():
        # what is archived later belongs to another history: the files must not meet
        shutil.move(archive.folder_of(log), archive.folder_of(aside))
    return aside
