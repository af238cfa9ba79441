"""A consistent copy of a SQLite file that may be in use, made by reading alone.

SQLite itself is not let near the original: opening a database, even to read, locks it against
its owner, may make or reset files beside it, and recovers what a crash left behind. So the files
are read like any others, twice: what is the same both times was not written in between. The
copy is then SQLite's to recover.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from poolsm.errors import PoolsmError

SUFFIXES = ("", "-wal", "-journal")  # -shm is an index that SQLite makes anew from the -wal
TRIES = 50
PAUSE_S = 0.1
CHUNK_BYTES = 1 << 20

Digests = tuple[str, ...]


class OldDatabaseError(PoolsmError):
    """The replaced service's database cannot be used; one line for each problem."""


def digests(path: Path) -> Digests:
    """Digests of a database and of what SQLite has beside it; equal: not written in between.

    Raises:
        OldDatabaseError: it cannot be read.
    """
    return _read(path, None)


def copy(path: Path, folder: Path, pause: Callable[[float], None] = time.sleep) -> Digests:
    """Copy a database into a folder, under its own name, and return the digests of the copy.

    Raises:
        OldDatabaseError: it cannot be read, or is written without a pause.
    """
    for left in reversed(range(TRIES)):
        before = _read(path, folder)
        if _read(path, None) == before:
            return before
        if left:
            pause(PAUSE_S)
    raise OldDatabaseError(
        f"{path}: is written without a pause; stop the service that writes it, then try again"
    )


def _read(path: Path, folder: Path | None) -> Digests:
    found = []
    real = path.resolve()  # what SQLite keeps beside it is beside the file, not beside a link
    for suffix in SUFFIXES:
        source = real.with_name(real.name + suffix)
        target = None if folder is None else folder / (path.name + suffix)
        try:
            found.append(_read_one(source, target))
        except FileNotFoundError:
            if not suffix:
                raise OldDatabaseError(f"{path}: there is no such file; correct the path") from None
            if target is not None:
                target.unlink(missing_ok=True)
            found.append("")
        except OSError as error:
            raise OldDatabaseError(
                f"{source}: cannot be read ({error.strerror}); correct the path or its permissions"
            ) from None
    return tuple(found)


def _read_one(source: Path, target: Path | None) -> str:
    digest = hashlib.sha256()
    with source.open("rb") as file, (target or Path(os.devnull)).open("wb") as copied:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            copied.write(chunk)
    return digest.hexdigest()
