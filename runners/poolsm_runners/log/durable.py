"""Files that appear under their name whole and durable, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


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


def sync(path: str | Path) -> None:
    """Make a file's content, or a folder's names, durable."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
