"""A new log appears at its path whole or not at all, and never over something else."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from poolsm_runners.log import files, schema
from poolsm_runners.log.durable import sync
from poolsm_runners.log.port import LogOpenError

SECRET_KEY_BYTES = 32


def make(path: Path, created_ms: int, log_id: str) -> None:
    """Make an empty log at ``path``; raises LogOpenError."""
    with drafting(path, created_ms, log_id):
        pass


@contextmanager
def drafting(path: Path, created_ms: int, log_id: str) -> Iterator[sqlite3.Connection]:
    """An empty log under another name, to be filled; at the end it becomes ``path``.

    The connection is in autocommit mode. If the block raises, or something turns up at
    ``path``, nothing is left behind.
    """
    if os.path.lexists(path):
        raise _taken(path)
    files.refuse_network(path)
    files.refuse_old_sqlite()
    try:
        # mkstemp makes it 0600, and SQLite gives its other files the mode of this one
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".draft", dir=path.parent)
        os.close(fd)
    except OSError as error:
        raise _cannot(path, error.strerror) from None
    try:
        with closing(sqlite3.connect(name, isolation_level=None)) as connection:
            schema.build(connection, log_id, created_ms, os.urandom(SECRET_KEY_BYTES))
            yield connection
        sync(name)
        os.link(name, path)  # unlike a rename it never replaces
        sync(path.parent)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise _cannot(path, error.strerror) from None
    except sqlite3.Error as error:
        raise _cannot(path, str(error)) from None
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(name + suffix).unlink(missing_ok=True)


def _taken(path: Path) -> LogOpenError:
    return LogOpenError(f"{path}: exists already; open that log, or name another file")


def _cannot(path: Path, why: str | None) -> LogOpenError:
    return LogOpenError(f"{path}: no log can be made here ({why}); correct the path or the disk")
