"""Seals: a chain of digests over the log, so that an edit or a cut is found (C10).

The last event of each transaction carries a digest over the seal before it and everything that
the transaction stored. It guards against damage and well-meant edits, not against somebody who
recomputes it: whoever can write the file can do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from poolsm_runners.log.port import StoredEntry

DIGEST_BYTES = 16


def first_seal(log_id: str, unsealed: int) -> bytes:
    """What stands for the seal before the first one; ``unsealed`` events precede the chain."""
    return f"{log_id} {unsealed}".encode()


def seal(previous: bytes, entries: Sequence[StoredEntry]) -> bytes:
    """The seal of the entries of one transaction.

    Payloads are JSON without line ends, so lines keep them apart; positions follow each other,
    so two of them tell all. Joined first: hashing each by itself costs more than the hash.
    """
    digest = blake2b(previous, digest_size=DIGEST_BYTES)
    digest.update(f"\n{entries[0].position} {entries[-1].position}\n".encode())
    digest.update(" ".join([f"{entry.kind}.{entry.version}" for entry in entries]).encode())
    digest.update(b"\n".join([b"", *[entry.payload for entry in entries]]))
    commands = [(entry.position, command) for entry in entries for command in entry.commands]
    for position, command in commands:
        digest.update(f"\n{position} {command.kind}.{command.version} ".encode())
        digest.update(command.payload)
    return digest.digest()
