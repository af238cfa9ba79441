"""What is at a path: a log of ours, or something that is refused and left exactly as it is.

All looking is done through SQLite, never with ``open()``: closing any descriptor of a file
drops every POSIX lock that this process holds on it, those of an open log included.

Looking leaves no trace. Without a write-ahead log beside the file, ``immutable`` reads the file
alone. With one that a killed runner left, the file alone may be older than the log, or half of
a checkpoint, so both are read: in exclusive mode without locks the index of the write-ahead log
stays in memory, and a read-only connection never checkpoints. With one that a live runner
writes, its shared memory is there already, and a plain read-only connection adds nothing.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from poolsm_runners.log import lock, schema
from poolsm_runners.log.port import LogOpenError

MOUNTS = Path("/proc/self/mounts")
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.cephfs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "smb2",
        "smb3",
        "smbfs",
    }
)

SQLITE_NEEDED = (3, 37, 0)
SMALLEST_BYTES = 512  # SQLite's smallest page
_AT_REST = "mode=ro&immutable=1"
_KILLED = "mode=ro&vfs=unix-none"
_LIVE = "mode=ro"


def uri(path: Path, parameters: str) -> str:
    """SQLite's name of a file; quoted, for a ``?`` or ``%`` in it would be read as syntax."""
    return f"file:{quote(str(path))}?{parameters}"


def real_path(path: str | os.PathLike[str]) -> Path:
    """The file itself: two names of one log must find one lock."""
    return Path(os.path.realpath(path))


def refuse_network(path: Path, mounts: Path = MOUNTS) -> None:
    """Raise LogOpenError if the folder of ``path`` is on a network file system (C23).

    Neither SQLite's shared memory nor its locks are to be trusted there.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return  # no such list on this system
    best, kind = "", ""
    for line in lines:
        _, mount, fs_type = line.split(" ")[:3]
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount)
        # a later mount on the same point hides the earlier one
        if len(mount) >= len(best) and path.parent.is_relative_to(mount):
            best, kind = mount, fs_type
    if kind in NETWORK_FILE_SYSTEMS:
        raise LogOpenError(
            f"{path}: is on a network file system ({kind} at {best}); "
            "put the log on a local disk of the machine that runs poolsm"
        )


def refuse_old_sqlite(found: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Raise LogOpenError for an SQLite without STRICT tables, which would see damage instead."""
    if found < SQLITE_NEEDED:
        needed, has = (".".join(map(str, version)) for version in (SQLITE_NEEDED, found))
        raise LogOpenError(
            f"SQLite {has}: is too old for the log, which needs {needed}; "
            "run poolsm with a Python that is linked to a newer one"
        )


def identify(path: Path) -> int:
    """The format version of the log at ``path``: today's, or an older one.

    Cheap, and leaves no trace. Raises LogOpenError for anything that is not such a log.
    """
    refuse_old_sqlite()
    _refuse_no_file(path)
    with _looking(path) as connection:
        application_id = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
    if application_id != schema.APPLICATION_ID:
        raise LogOpenError(
            f"{path}: is an SQLite database of something else (application_id "
            f"{application_id:#x}, not {schema.APPLICATION_ID:#x}); name another file"
        )
    if version > schema.FORMAT_VERSION:
        raise LogOpenError(
            f"{path}: has log format {version}, this release knows up to "
            f"{schema.FORMAT_VERSION}; open it with the release that wrote it, or a newer one"
        )
    if version != schema.FORMAT_VERSION and version not in schema.MIGRATIONS:
        raise LogOpenError(
            f"{path}: has log format {version}, which no release wrote; restore a backup"
        )
    return version


def check(path: Path) -> None:
    """Read the whole log at ``path``, without a trace; raises LogOpenError for damage."""
    size_bytes = path.stat().st_size
    with _looking(path) as connection:
        if not has_wal(path) and size_bytes % (page_bytes := _pragma(connection, "page_size")):
            raise _damaged(path, f"{size_bytes} bytes are no whole pages of {page_bytes}")
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
        if found != ["ok"]:
            raise _damaged(path, " ".join(" ".join(found).split()))
        if connection.execute(schema.SELECT_HEADER).fetchone() is None:
            raise _damaged(path, "its header is empty")
        count, first, last = connection.execute(schema.SELECT_EXTENT).fetchone()
        if _pragma(connection, "user_version") == 1:  # had neither archive nor seals
            archived, sealed = 0, last
        else:
            (archived,) = connection.execute(schema.SELECT_ARCHIVED).fetchone()
            unsealed, sealed, _ = connection.execute(schema.SELECT_SEALED).fetchone()
            sealed = max(sealed, unsealed)
        if count and (first != archived + 1 or count != last - archived):
            raise _damaged(path, f"{count} events, from position {first} to {last}")
        if sealed != (last or archived):
            raise _damaged(path, f"it ends at position {last}, and was sealed up to {sealed}")


def refuse_foreign_wal(path: Path) -> None:
    """Raise LogOpenError if the write-ahead log beside the file belongs to another log.

    SQLite would take its pages for pages of this file, and so would :func:`check`: it is what is
    left when a log was replaced by another one, and not its ``-wal`` file.
    """
    if not has_wal(path):
        return
    try:
        with closing(sqlite3.connect(uri(path, _AT_REST), uri=True)) as alone:
            here = alone.execute(schema.SELECT_HEADER).fetchone()
    except sqlite3.DatabaseError:
        return  # half of a checkpoint, which the write-ahead log completes
    with _looking(path) as both:
        if here is not None and both.execute(schema.SELECT_HEADER).fetchone()[0] != here[0]:
            raise LogOpenError(
                f"{path}: the write-ahead log beside it is of another log; put that log back, or "
                f"move {wal_path(path).name} away"
            )


def _refuse_no_file(path: Path) -> None:
    try:
        found = path.stat()
    except FileNotFoundError:
        raise LogOpenError(f"{path}: no such log; create it, or correct the path") from None
    except OSError as error:
        raise LogOpenError(f"{path}: {error.strerror}; correct the path") from None
    if not stat.S_ISREG(found.st_mode):
        raise LogOpenError(f"{path}: is not a regular file; name the file of a log")
    if not found.st_size:
        raise LogOpenError(f"{path}: is empty, so not a log; restore a backup, or remove it")
    if found.st_size < SMALLEST_BYTES:  # SQLite would take it for a new database
        raise LogOpenError(
            f"{path}: has {found.st_size} bytes, so it is not an SQLite file, or the rest of one; "
            "restore a backup, or name another file"
        )
    if not os.access(path, os.R_OK):
        raise LogOpenError(f"{path}: may not be read by this user; run as its owner")


def wal_path(path: Path) -> Path:
    """Where SQLite keeps the write-ahead log of a file."""
    return path.with_name(path.name + "-wal")


def has_wal(path: Path) -> bool:
    """Whether a write-ahead log waits beside the file: a runner has it open, or was killed."""
    try:
        return wal_path(path).stat().st_size > 0
    except OSError:
        return False


@contextmanager
def _looking(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that leaves no trace; SQLite's errors become LogOpenErrors."""
    parameters = _AT_REST
    if has_wal(path):
        parameters = _LIVE if lock.is_held(path) else _KILLED
    try:
        with closing(
            sqlite3.connect(uri(path, parameters), uri=True, isolation_level=None)
        ) as connection:
            if parameters == _KILLED:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            yield connection
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorname == "SQLITE_NOTADB":
            raise LogOpenError(
                f"{path}: is not an SQLite file, so not a log; name another file "
                "(an export in JSON lines is imported into a new log)"
            ) from None
        raise _damaged(path, str(error)) from None


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _damaged(path: Path, what: str) -> LogOpenError:
    return LogOpenError(
        f"{path}: is damaged ({what}); restore a backup, or import an export into a new log"
    )
