"""Errors of the library: misuse of its API, and logs that this release cannot read (C5)."""

from __future__ import annotations


class PoolsmError(Exception):
    """Base of every error that poolsm raises on purpose; its text is for an operator."""


class UnknownKindError(PoolsmError):
    """A log holds a kind, or a version of one, that this release does not know."""

    def __init__(self, what: str, kind: str, version: int, newest: int | None) -> None:
        known = f"versions 1 to {newest} of it" if newest else "no such kind"
        super().__init__(
            f"{what} {kind} version {version}: this release knows {known}; "
            "read the log with the release that wrote it, or a newer one"
        )


class UnreadableRecordError(PoolsmError):
    """A record of the log is not what its kind says."""
