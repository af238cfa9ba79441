"""One runner on one log: a lock that dies with its process.

The lock is the kernel's (``flock``) on ``<log>.lock``; the text in that file only tells a
refused runner who the holder is. The file is never removed: removing it would let two
processes lock two different files of the same name.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

from poolsm_runners.log.port import LogLockedError

_TRIES = 5  # is_held() locks for an instant, which must not refuse a runner that starts
_PAUSE_S = 0.02
_TEXT_LIMIT_BYTES = 1024


class FileLock:
    """The exclusive right to append to one log, held until :meth:`release` or the process ends."""

    def __init__(self, log_path: Path) -> None:
        """Take the lock; raises LogLockedError naming the holder."""
        self.path = lock_path(log_path)
        self._fd: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _take(self._fd, log_path)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock up; calling it again does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def lock_path(log_path: Path) -> Path:
    """Where the lock of a log is."""
    return log_path.with_name(log_path.name + ".lock")


def is_held(log_path: Path) -> bool:
    """Whether a runner, of this process or another, appends to this log now."""
    try:
        fd = os.open(lock_path(log_path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # never locked, or not ours to look at
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _try_lock(fd: int) -> bool:
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE_S)
        else:
            return True
    return False


def _take(fd: int, log_path: Path) -> None:
    if not _try_lock(fd):
        raise LogLockedError(
            f"{log_path}: another runner appends to it ({_holder(fd)}); "
            "stop that runner, or give this one a log of its own"
        )
    _write_holder(fd)


def _write_holder(fd: int) -> None:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    text = f"pid {os.getpid()} on {socket.gethostname()} since {started}\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)


def _holder(fd: int) -> str:
    text = os.pread(fd, _TEXT_LIMIT_BYTES, 0).decode(errors="replace")
    return " ".join(text.split()) or "it has not written its name yet"
