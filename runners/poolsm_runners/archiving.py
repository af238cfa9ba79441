"""Archiving a log that may be in use: this process writes the files, the log's writer trims.

Compressing takes minutes of a large log's life, so it is not the runner's work. The runner is
asked only to remove what a file already holds, a little at a time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from attrs import evolve, frozen

from poolsm import STATE_VERSION
from poolsm_runners.control_requests import Trim
from poolsm_runners.log import archive
from poolsm_runners.log.reader import SqliteReader
from poolsm_runners.operations import RefusedError
from poolsm_runners.session import perform

Progress = Callable[[int, int], None]  # events done, of how many

_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60}


@frozen
class Archived:
    """What is to be archived, or was.

    Attributes:
        upto: position of the last event of it.
        events: how many.
        files: that were written.
        held_back: why it is less than was asked for; empty if it is not.
    """

    upto: int
    events: int
    files: tuple[str, ...] = ()
    held_back: str = ""


def plan_archive(source: SqliteReader, before: str) -> Archived:
    """What ``before`` means for this log; raises RefusedError for what is no position or time."""
    archived, asked = source.archived(), _position(source, before)
    snapshot = source.load_snapshot(STATE_VERSION)
    covered = snapshot.position if snapshot else 0
    held_back = ""
    if asked > covered:
        held_back = f"events beyond position {covered} are in no snapshot yet, and stay"
    upto = max(source.sealed_upto(min(asked, covered)), archived)
    return Archived(upto, upto - archived, (), held_back)


def archive_before(log: Path, source: SqliteReader, plan: Archived, progress: Progress) -> Archived:
    """Carry a plan out, file by file; each is complete in itself, so it may end anywhere.

    Raises:
        LogError: a file or the log is not what it should be; what was archived before stays so.
        OSError: the files cannot be written.
    """
    files: list[str] = []
    log_id, begun = source.header.log_id, source.archived()
    done = begun
    for file in archive.covering(source.path, done, done - 1)[-1:] if done else ():
        if file.last > done:  # it was written before, and a crash left its removal half done
            perform(log, Trim(file.last))
            done = file.last
    while done < plan.upto:
        last = source.sealed_upto(min(done + archive.EVENTS_PER_FILE, plan.upto))
        if last <= done:  # one transaction is larger than a file
            last = plan.upto
        seal = source.seal_at(last) or b""
        file = archive.write(source.path, log_id, seal, source.read_stored(done, last))
        perform(log, Trim(last))
        files.append(file.path.name)
        done = last
        progress(done - begun, plan.events)
    return evolve(plan, upto=done, events=done - begun, files=tuple(files))


def _position(source: SqliteReader, before: str) -> int:
    """The last position before a position, an instant or an age."""
    if before.isdigit():
        return int(before) - 1
    age = re.fullmatch(r"(\d+)([dhm])", before)
    if age:
        at_ms = int((time.time() - int(age[1]) * _UNITS_S[age[2]]) * 1000)
        return source.last_before(at_ms)
    try:
        at = datetime.fromisoformat(before)
    except ValueError:
        raise RefusedError(
            f"--before {before!r}: is no position, time (2026-11-01T00:00:00Z) or age (30d, 12h)"
        ) from None
    return source.last_before(int(at.timestamp() * 1000))
