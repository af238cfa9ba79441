"""Log lines leave through a thread of their own: nobody waits for whoever reads them.

A pipe that nobody empties, a file on a full disk, a terminal that is gone: each would hold or
end a loop that writes to it directly. Here lines wait in a queue of limited length. What does
not fit, or cannot be written, is lost; it is counted, and the count is a line as soon as lines
can be written again. The log of events misses nothing of it.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

LINES_LIMIT = 10_000  # that may wait: some MiB, minutes of a busy run
PAUSE_S = 0.5  # before the next line is tried, after one that could not be written


class LineOutput:
    """The file that a logger writes to; no call of it blocks or fails.

    Args:
        fd: of the stream; it stays open. None loses every line.
        report: called, in the thread, with the number of lines lost so far in a row, once the
            next one was written. It may write.
    """

    def __init__(
        self, fd: int | None, report: Callable[[int], None], lines_limit: int = LINES_LIMIT
    ) -> None:
        self._fd = fd
        self._report = report
        self._lines: deque[bytes] = deque()
        self._limit = lines_limit
        self._lost = 0
        self._busy = False
        self._changed = threading.Condition()
        threading.Thread(target=self._main, name="log lines", daemon=True).start()

    def write(self, text: str) -> int:
        """Take a line, or lose it."""
        with self._changed:
            if self._fd is None or len(self._lines) >= self._limit:
                self._lost += 1
            else:
                self._lines.append(text.encode(errors="backslashreplace"))
                self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Part of a file; lines leave by themselves."""

    def drain(self, within_s: float) -> bool:
        """Wait until all lines have left, for so many seconds; whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._busy), within_s)

    # --- in the thread -----------------------------------------------------------------

    def _main(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line = self._lines.popleft()
                self._busy = True
            written = self._written(line)
            with self._changed:
                lost, self._lost = (self._lost, 0) if written else (0, self._lost + 1)
            if lost:
                self._report(lost)
            with self._changed:
                self._busy = False
                self._changed.notify_all()
            if not written:
                time.sleep(PAUSE_S)

    def _written(self, line: bytes) -> bool:
        assert self._fd is not None
        try:
            while line:
                try:
                    line = line[os.write(self._fd, line) :]
                except BlockingIOError:  # whoever shares the stream with us made it so
                    select.select((), (self._fd,), ())
        except (OSError, ValueError):  # no room, nobody there, closed
            return False
        return True
