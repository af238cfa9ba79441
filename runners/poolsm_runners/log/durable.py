"""Files that appear under their name whole and durable, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1024 * 1024


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A new file, for its owner alone; at the end of the block it gets its name.

    It takes the place of a file of that name. If the block raises, nothing is left behind. The
    folder is not synced: the caller does that once, after the last of its files.
    """
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".draft", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fsync(fd)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def settle(path: Path) -> None:
    """Make what is read from a file what is on its disk; raises OSError if that cannot be.

    After a failed fsync a kernel may count pages as written that are not: they are read as they
    should be until they leave its memory, and a later fsync says nothing of them. Written once
    more, as they are read, they are written for certain, or the fsync here fails as well.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        at = 0
        while data := os.pread(fd, CHUNK_BYTES, at):
            at += os.pwrite(fd, data, at)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync(path: str | Path) -> None:
    """Make a file's content, or a folder's names, durable."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
