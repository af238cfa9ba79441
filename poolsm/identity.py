"""Command ids (C3): deterministic in replay, never used twice."""

from __future__ import annotations

from uuid import UUID, uuid5
from zlib import crc32


def command_id(log_id: str, epoch: str, position: int, n: int) -> str:
    """The id of the ``n``-th command of the event at ``position`` of this epoch.

    ``epoch`` is drawn afresh at each start, so a restored backup, which hands out the same
    positions again, still never hands out the same id.
    """
    return str(uuid5(UUID(log_id), f"{epoch}/{position}/{n}"))


def jitter(identifier: str, span_ms: int) -> int:
    """A pause's jitter: 0 to ``span_ms``, spread by a command id instead of by chance."""
    return crc32(identifier.encode()) * span_ms >> 32 if span_ms > 0 else 0
