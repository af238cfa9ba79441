"""Seals: a chain of digests over the log, so that an edit or a cut is found (C10).

The last event of each transaction carries a digest over the seal before it and everything that
the transaction stored. It guards against damage and well-meant edits, not against somebody who
recomputes it: whoever can write the file can do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from poolsm_runners.log.port import StoredEntry

DIGEST_BYTES = 16

_encode = msgspec.msgpack.Encoder().encode


def first_seal(log_id: str, unsealed: int) -> bytes:
    """What stands for the seal before the first one; ``unsealed`` events precede the chain."""
    return f"{log_id} {unsealed}".encode()


def seal(previous: bytes, entries: Sequence[StoredEntry]) -> bytes:
    """The seal of the entries of one transaction: over every column of events and commands.

    MessagePack has one form for each value, and tells where a field ends; it is made in one
    call, where hashing field by field would cost more than the hash.
    """
    return sha256(previous + _encode(entries)).digest()[:DIGEST_BYTES]
