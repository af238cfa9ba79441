"""What the libraries beneath a run have to say, as log lines like all others.

Without this Python writes it to stderr itself: in several lines, and waiting for whoever reads.
"""

from __future__ import annotations

import logging
import time

import structlog

REPEAT_S = 60.0  # the same words of the same library are a line no more often than this
KNOWN_LIMIT = 1_000  # different words to remember

logger = structlog.get_logger("poolsm")


class LibraryLines(logging.Handler):
    """Warnings and errors of any library, one line each, with how often it was said since."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: dict[str, tuple[float, int]] = {}  # words: when, and how often since

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line."""
        if record.name.startswith("opentelemetry"):  # has a line of its own, see traces
            return
        text = " ".join(record.getMessage().split())
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = f"{text} ({type(error).__name__}: {error})"
        now_s = time.monotonic()
        words = f"{record.name} {text}"
        at_s, since = self._said.get(words, (-REPEAT_S, 0))
        if now_s - at_s < REPEAT_S:
            self._said[words] = (at_s, since + 1)
            return
        if len(self._said) >= KNOWN_LIMIT:
            self._said.clear()
        self._said[words] = (now_s, 0)
        say = logger.error if record.levelno >= logging.ERROR else logger.warning
        say("library.said", library=record.name, text=text, repeated=since)
