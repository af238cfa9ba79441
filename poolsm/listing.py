"""Comparing a complete listing with what is known: a pure function (C4, R10)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from poolsm.commands import SERVERPOOL_ID, USER_ID
from poolsm.events import ListingCompleted, ListingFailed
from poolsm.records import ServerRecord


def diff_listing(
    records: Sequence[ServerRecord],
    expected: Mapping[str, ServerRecord | None],
    missed: Collection[str],
    *,
    started_ms: int,
    at_ms: int,
) -> ListingCompleted | ListingFailed:
    """What a listing of all pages says that is not known yet.

    Args:
        records: every record of every page, in the order in which they came.
        expected: the last record of every server known to be ours (None: not seen yet).
        missed: ids among ``expected`` whose absence is known already.
        started_ms: when the first page was asked for.
        at_ms: now.

    Returns:
        The difference; or, when an id comes twice, a failure: the pages overlapped, so one
        of their servers may have been pushed out between them.
    """
    counts = Counter(record.server_id for record in records)
    twice = sorted(key for key, count in counts.items() if count > 1)
    if twice:
        return ListingFailed(
            at_ms=at_ms,
            started_ms=started_ms,
            what="servers",
            message=f"the listing shows {twice[0]} twice; its pages overlapped",
        )
    changed = tuple(
        record
        for record in records
        if (record.server_id in expected or may_be_ours(record))
        and expected.get(record.server_id) != record
    )
    absent = tuple(sorted(key for key in expected if key not in counts and key not in missed))
    return ListingCompleted(
        at_ms=at_ms, started_ms=started_ms, total=len(records), changed=changed, absent=absent
    )


def may_be_ours(record: ServerRecord) -> bool:
    """Tagged for a pool, or without any metadata: a cell that is down hides the tags (R1)."""
    metadata = record.metadata
    return metadata is None or bool(metadata.get(SERVERPOOL_ID) and metadata.get(USER_ID))


R = TypeVar("R")


def diff_catalog(
    records: Iterable[tuple[str, R]], known: Mapping[str, R]
) -> tuple[tuple[R, ...], tuple[str, ...]]:
    """What a complete listing of a catalog changes: new or different records, and gone ids."""
    found = dict(records)
    changed = tuple(record for key, record in found.items() if known.get(key) != record)
    return changed, tuple(sorted(key for key in known if key not in found))
