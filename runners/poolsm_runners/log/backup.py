"""Copies of a log, taken while it is written, and going back to one.

A copy is one consistent moment: a read transaction is held over all of its steps, which in
SQLite's write-ahead mode holds up no writer. It holds the secrets, as the log does.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen

from poolsm_runners.log import archive, files, schema
from poolsm_runners.log.durable import sync
from poolsm_runners.log.lock import FileLock, is_held
from poolsm_runners.log.port import LogOpenError
from poolsm_runners.log.reader import SqliteReader, open_read_only

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
    source = open_read_only(log)
    dest = files.real_path(dest)
    if dest == source.path:
        raise LogOpenError(f"{dest}: is the log itself; name another file")
    if not replace:
        _refuse_taken(dest)
    with _drafted(dest) as draft:
        _copy(source, draft, progress)
        copied = _checked(draft)
        count = _copy_archive(source.path, dest, copied.archived())
        draft.replace(dest)
        sync(dest.parent)
    return _copied(dest, count)


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
    source = open_read_only(copy)
    log = files.real_path(log)
    if log == source.path:
        raise LogOpenError(f"{log}: is the copy itself; name the log with --log")
    files.refuse_network(log)
    if not replace:
        _refuse_taken(log)
    lock = FileLock(log)
    try:
        with _drafted(log) as draft:
            _copy(source, draft, progress)
            copied = _checked(draft)
            aside = _put_aside(log) if os.path.lexists(log) else None
            count = _copy_archive(source.path, log, copied.archived())
            draft.replace(log)
            sync(log.parent)
    finally:
        lock.release()
    return _copied(log, count), aside


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


def _copy(source: SqliteReader, draft: Path, progress: Progress) -> None:
    def told(_: int, remaining: int, total: int) -> None:
        progress((total - remaining) * page_bytes, total * page_bytes)

    # A copy at rest has no write-ahead log, and where its folder cannot be written no place
    # for one: it is then read as it is.
    at_rest = not files.has_wal(source.path) and not is_held(source.path)
    parameters = "mode=ro&immutable=1" if at_rest else "mode=ro"
    with (
        closing(
            sqlite3.connect(files.uri(source.path, parameters), uri=True, isolation_level=None)
        ) as live,
        closing(sqlite3.connect(draft, isolation_level=None)) as copy,
    ):
        live.execute("BEGIN")  # one moment: without it, each write would begin the copy anew
        page_bytes = live.execute("PRAGMA page_size").fetchone()[0]
        live.execute(schema.SELECT_HEADER).fetchone()
        live.backup(copy, pages=PAGES_PER_STEP, progress=told)
        live.execute("ROLLBACK")
        copy.execute("PRAGMA journal_mode = DELETE")  # one file; a runner changes it back
    sync(draft)


def _checked(draft: Path) -> SqliteReader:
    files.check(draft)
    return SqliteReader(draft, "mode=ro&immutable=1")


def _copied(path: Path, archive_files: int) -> Copied:
    reader = SqliteReader(path, "mode=ro&immutable=1")
    position = reader.last_position()
    last = next(reader.read_stored(position - 1), None) if position else None
    size_bytes = path.stat().st_size
    return Copied(path, position, last.at_ms if last else 0, size_bytes, archive_files)


def _copy_archive(log: Path, dest: Path, archived: int) -> int:
    """The archive's files beside the copy; each is whole or not there. Raises LogDamagedError."""
    wanted = archive.covering(log, archived) if archived else []
    folder = archive.folder_of(dest)
    if wanted:
        folder.mkdir(mode=0o700, exist_ok=True)
    for file in wanted:
        target = folder / file.path.name
        if target.exists() and target.stat().st_size == file.path.stat().st_size:
            continue  # files of an archive never change
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as draft:
            draft.write(file.path.read_bytes())
            draft.flush()
            os.fsync(draft.fileno())
        Path(draft.name).replace(target)
    if wanted:
        sync(folder)
    return len(wanted)


def _put_aside(log: Path) -> Path:
    """The old log under another name, with what belongs to it; the caller holds its lock."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = log.with_name(f"{log.name}.before-restore-{stamp}")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = log.with_name(f"{log.name}.before-restore-{stamp}-{number}")
    for suffix in ("-wal", ""):  # never a main file under its name without its newest entries
        part = log.with_name(log.name + suffix)
        if os.path.lexists(part):
            part.rename(aside.with_name(aside.name + suffix))
    log.with_name(log.name + "-shm").unlink(missing_ok=True)
    if archive.folder_of(log).exists():
        # what is archived later belongs to another history: the files must not meet
        shutil.move(archive.folder_of(log), archive.folder_of(aside))
    return aside
