"""What people read beside the answers: a stream that may fail without ending what it tells of.

A runner whose stderr is a file on a full disk, or a pipe that nobody reads any more, goes on: its
log (the events) is elsewhere, and is what counts. Lines that could not be written are counted,
and the count is written with the first one that can.
"""

from __future__ import annotations

import os
from typing import Any, TextIO


class Outlet:
    """A text stream over one that may fail; it never does."""

    def __init__(self, stream: TextIO | None) -> None:
        """Over a stream; over nothing, where the process was started without one."""
        self._stream = stream or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's: its encoding, whether it is a terminal."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or count what could not be written."""
        try:
            if self.lost:
                self._stream.write(f"event=lines.lost level=warning count={self.lost}\n")
                self._stream.flush()
                self.lost = 0
            self._stream.write(text)
        except (OSError, ValueError):  # no space, nobody reads, or the stream is closed
            self.lost += 1
        return len(text)

    def flush(self) -> None:
        """Have it leave the process."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self.lost += 1
