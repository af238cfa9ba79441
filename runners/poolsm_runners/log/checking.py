"""Everything that can be wrong with a log, looked for; nothing is changed.

A runner's start looks only for what would make it decide wrongly. This reads everything: the
pages, each event and command with its codec, the chain of seals, secrets against their digests,
and whether each snapshot is the state that its events lead to.
"""

from __future__ import annotations

import hmac
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from attrs import Factory, define

from poolsm import STATE_VERSION, Fleet
from poolsm.entries import Entry
from poolsm.errors import PoolsmError
from poolsm_runners.log import files, schema
from poolsm_runners.log.port import LogError, StoredEntry
from poolsm_runners.log.reader import SqliteReader, open_read_only
from poolsm_runners.log.rows import restore
from poolsm_runners.log.seal import first_seal, seal

PROBLEMS_SHOWN = 20  # more of them tell no more

Progress = Callable[[int, int], None]  # events done, of how many


@define
class Checked:
    """What was looked at, and what is wrong; a log without problems is whole."""

    position: int = 0
    archived: int = 0
    unsealed: int = 0
    events: int = 0
    commands: int = 0
    secrets: int = 0
    snapshots: int = 0
    problems: list[str] = Factory(list)

    def note(self, problem: str) -> None:
        """One more thing that is wrong."""
        if len(self.problems) < PROBLEMS_SHOWN:
            self.problems.append(problem)


def check_log(path: Path, progress: Progress = lambda *_: None) -> Checked:
    """Look at a whole log and its archive, as they are at the start.

    Raises LogOpenError for what is no log, or one of another release.
    """
    source = open_read_only(path)
    found = Checked(source.last_position(), source.archived())
    for problem in _pages(source):
        found.note(problem)
    try:
        _check_events(source, found, progress)
    except (LogError, sqlite3.Error) as error:
        found.note(str(error))
    _check_rows(source, found)
    return found


def _connected(source: SqliteReader) -> sqlite3.Connection:
    return sqlite3.connect(files.uri(source.path, "mode=ro"), uri=True, isolation_level=None)


def _pages(source: SqliteReader) -> Iterator[str]:
    """SQLite's own check, of indices and constraints, too."""
    with closing(_connected(source)) as connection:
        for (text,) in connection.execute(f"PRAGMA integrity_check({PROBLEMS_SHOWN})"):
            if text != "ok":
                yield f"SQLite: {text}"


def _check_events(source: SqliteReader, found: Checked, progress: Progress) -> None:
    """Decode, seal and fold all events in one reading."""
    chain = _Chain(source, found)
    fold = _Fold(source, found)
    for stored in source.read_stored(0, found.position):
        found.events += 1
        found.commands += len(stored.commands)
        chain.take(stored)
        try:
            fold.take(restore(stored, f"position {stored.position}"))
        except PoolsmError as error:
            found.note(str(error))
        if found.events % 10_000 == 0:
            progress(found.events, found.position)
    if found.events != found.position:
        found.note(f"it ends at position {found.events}, its header says {found.position}")
    chain.end()


class _Chain:
    """The seals, computed again. What is archived has its own digests."""

    def __init__(self, source: SqliteReader, found: Checked) -> None:
        self._found = found
        with closing(_connected(source)) as connection:
            unsealed, self._sealed, newest = connection.execute(schema.SELECT_SEALED).fetchone()
            self._seals = dict(
                connection.execute(schema.SELECT_SEALS, (found.archived, found.position))
            )
        found.unsealed = unsealed
        self._from = max(unsealed, found.archived)
        self._last: bytes | None = first_seal(source.header.log_id, unsealed)
        if found.archived > unsealed:
            self._last = source.archived_seal() or None
        self._newest = bytes(newest)
        self._open: list[StoredEntry] = []

    def take(self, stored: StoredEntry) -> None:
        if stored.position <= self._from:
            return
        self._open.append(stored)
        written = self._seals.get(stored.position)
        if written is None:
            return
        first, self._open = self._open[0].position, self._open
        if self._last is not None and seal(self._last, self._open) != bytes(written):
            self._found.note(
                f"positions {first} to {stored.position}: are not what was written (their seal "
                "differs): somebody edited them, or the disk did"
            )
        self._last = bytes(written)
        self._open = []

    def end(self) -> None:
        if self._open:
            positions = f"{self._open[0].position} to {self._open[-1].position}"
            self._found.note(f"positions {positions}: carry no seal: they were added by others")
        if self._sealed > self._found.position:
            self._found.note(
                f"it ends at position {self._found.position}, and was sealed up to {self._sealed}: "
                "its end was cut off"
            )


class _Fold:
    """The state, folded again, against each snapshot of today's kind."""

    def __init__(self, source: SqliteReader, found: Checked) -> None:
        self._found = found
        self._fleet: Fleet | None = Fleet()
        with closing(_connected(source)) as connection:
            rows = connection.execute(
                "SELECT position, state_version, payload FROM snapshots WHERE position <= ?",
                (found.position,),
            ).fetchall()
        found.snapshots = len(rows)
        self._payloads = {row[0]: bytes(row[2]) for row in rows if row[1] == STATE_VERSION}

    def take(self, entry: Entry) -> None:
        if self._fleet is None:
            return
        try:
            self._fleet.step(entry.event)
        except PoolsmError as error:
            self._fleet = None
            self._found.note(f"position {entry.position}: cannot be folded: {error}")
            return
        payload = self._payloads.get(entry.position)
        if payload is not None and payload != self._fleet.snapshot():
            self._found.note(
                f"the snapshot at position {entry.position} is not the state that its events "
                "lead to; `poolsm replay` names the difference, if there is one"
            )


def _check_rows(source: SqliteReader, found: Checked) -> None:
    """Commands without an event, and secrets that are not what their digest says."""
    key = source.secret_key()
    with closing(_connected(source)) as connection:
        strays = connection.execute(
            "SELECT command_id, position FROM commands WHERE position <= ? AND position NOT IN "
            "(SELECT position FROM events) LIMIT ?",
            (found.position, PROBLEMS_SHOWN),
        ).fetchall()
        secrets = connection.execute("SELECT digest, text FROM secrets").fetchall()
    for command_id, position in strays:
        found.note(f"command {command_id}: its event {position} is not there")
    for digest, text in secrets:
        found.secrets += 1
        if hmac.digest(key, text.encode(), "sha256").hex() != digest:
            found.note(f"secret {digest}: is not what its digest says; declare it again")
