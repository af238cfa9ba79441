"""Command ids (C3): deterministic in replay, never used twice."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha1
from uuid import UUID
from zlib import crc32


def command_id(log_id: str, epoch: str, position: int, n: int) -> str:
    """The id of the ``n``-th command of the event at ``position`` of this epoch.

    ``epoch`` is drawn afresh at each start, so a restored backup, which hands out the same
    positions again, still never hands out the same id. The id is ``uuid.uuid5`` of both, put
    together here because each command of a log that is replayed needs its own.
    """
    name = f"{epoch}/{position}/{n}".encode()
    digest = sha1(_namespace(log_id) + name, usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


@lru_cache(maxsize=16)
def _namespace(log_id: str) -> bytes:
    return UUID(log_id).bytes


def jitter(identifier: str, span_ms: int) -> int:
    """A pause's jitter: 0 to ``span_ms``, spread by a command id instead of by chance."""
    return crc32(identifier.encode()) * span_ms >> 32 if span_ms > 0 else 0
