"""Who else has a file open, as far as this machine tells: asked without touching the file."""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

# Where SQLite locks: a database in WAL mode is locked (shared) as long as it is open, its index
# as well. See "unix-posix" in os_unix.c: PENDING_BYTE and the two after it, UNIX_SHM_BASE.
_DATABASE_LOCKS = (0x40000000, 512)
_INDEX_LOCKS = (120, 9)
_FLOCK = "hhqqi"  # struct flock of Linux: type, whence, start, length, pid


def users(path: Path) -> tuple[str, ...]:
    """Processes that have a SQLite database open, such as ``pid 812 (poolmanager)``.

    Empty is no proof: another user's processes are not shown, and a database that is not in
    WAL mode is locked only while it is used.
    """
    real = path.resolve()
    found = {_lock_holder(real, *_DATABASE_LOCKS)}
    found.add(_lock_holder(real.with_name(real.name + "-shm"), *_INDEX_LOCKS))
    found.update(_openers(real))
    named = sorted({pid for pid in found if pid is not None})
    return tuple(f"pid {pid} ({_name_of(pid)})" if pid > 0 else "another process" for pid in named)


def _lock_holder(path: Path, start: int, length: int) -> int | None:
    """Who would be in the way of a lock; none is taken. 0: out of our sight, in a container."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)


def _openers(path: Path) -> set[int]:
    """Processes whose file descriptors are this file, of those that we may look at."""
    try:
        wanted = path.stat()
    except OSError:
        return set()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        with suppress(OSError):
            for link in (process / "fd").iterdir():
                with suppress(OSError):
                    if os.path.samestat(link.stat(), wanted):
                        found.add(int(process.name))
    return found


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "?"
