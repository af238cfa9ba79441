"""A log as JSON lines: for people, other tools, and to move a log between storages (C10, C11).

The first line says what follows: ``{"format": "poolsm-log", "version": 1, "log_id": ...,
"created_ms": ..., "entries": 2}``. Then one line per entry: ``{"position": 1, "kind": ...,
"version": ..., "event": {...}, "commands": [{"kind": ..., "version": ..., "command": {...}}]}``,
without ``commands`` when there are none.
Kinds keep the version that they were stored in. Secrets never leave the log: what refers to
one holds its digest. Lines are read and written one by one, so memory does not grow.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from poolsm.entries import Entry
from poolsm_runners.log import schema
from poolsm_runners.log.draft import drafting
from poolsm_runners.log.files import real_path
from poolsm_runners.log.port import (
    LogExchangeError,
    LogHeader,
    LogSource,
    SecretMissingError,
    Snapshot,
    StoredCommand,
    StoredEntry,
)
from poolsm_runners.log.rows import INTEGER_LIMIT, command_rows, event_rows, restore
from poolsm_runners.log.seal import first_seal, seal

FORMAT = "poolsm-log"
FORMAT_VERSION = 1
LINE_LIMIT_BYTES = 256 * 1024 * 1024
BATCH = 1000  # entries per transaction of an import


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    log_id: str
    created_ms: int
    entries: int


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    version: int
    command: msgspec.Raw


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    position: int
    kind: str
    version: int
    event: msgspec.Raw
    commands: list[_Command] = []


_T = TypeVar("_T", _Head, _Line)


def export_jsonl(source: LogSource, out: BinaryIO, upto: int | None = None) -> int:
    """Write the entries of a log up to a position to a binary file; returns how many.

    Without ``upto``, up to the newest one at the start. Raises LogDamagedError, and OSError
    of ``out``.
    """
    last = source.last_position()
    entries = last if upto is None else min(upto, last)
    header = source.header
    encoder = msgspec.json.Encoder()
    head = _Head(FORMAT, FORMAT_VERSION, header.log_id, header.created_ms, entries)
    out.write(encoder.encode(head) + b"\n")
    for stored in source.read_stored(0, entries):
        line = _Line(
            stored.position,
            stored.kind,
            stored.version,
            msgspec.Raw(stored.payload),
            [
                _Command(command.kind, command.version, msgspec.Raw(command.payload))
                for command in stored.commands
            ],
        )
        out.write(encoder.encode(line) + b"\n")
    return entries


def import_jsonl(export: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Make a new log at ``path`` of an export; returns the number of entries.

    Every line is decoded before anything appears at ``path``; a refused import leaves nothing.
    The new log has the old one's id and none of its secrets.

    Raises:
        LogExchangeError: naming the line that is wrong.
        UnknownKindError, UnreadableRecordError: the same, for a kind of another release.
        LogOpenError: something is at ``path``, or no log can be made there.
    """
    source = JsonlSource(export)
    header = source.header
    with drafting(real_path(path), header.created_ms, header.log_id) as connection:
        entries = source.read_stored()
        newest = first_seal(header.log_id, 0)
        while batch := list(islice(entries, BATCH)):
            try:
                newest = _insert(connection, batch, newest)
            except sqlite3.IntegrityError as error:
                raise LogExchangeError(
                    f"{source.path}: positions {batch[0].position} to {batch[-1].position} hold a "
                    f"command id twice ({error}); export the log again"
                ) from None
    return source.last_position()


class JsonlSource:
    """An export, read where it is: a :class:`~.port.LogSource` without snapshots and secrets.

    Besides the errors of the port, reading raises LogExchangeError naming the line.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the first line; raises LogExchangeError."""
        self.path = Path(path)
        with self._open() as file:
            head = _parse(next(self._lines(file), b""), _Head, f"{self.path}: line 1")
        if head.format != FORMAT or head.version != FORMAT_VERSION:
            raise LogExchangeError(
                f"{self.path}: line 1: is format {head.format!r} version {head.version}, this "
                f"release reads {FORMAT!r} version {FORMAT_VERSION}; use the release that wrote it"
            )
        self._header = LogHeader(head.log_id, head.created_ms, head.version)
        self._entries = head.entries

    @property
    def header(self) -> LogHeader:
        """What the exported log was; the version is the export's format."""
        return self._header

    def last_position(self) -> int:
        """How many entries the first line promises."""
        return self._entries

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Entry]:
        """As the port says."""
        for _, entry in self._read(after, upto):
            yield entry

    def read_stored(self, after: int = 0, upto: int | None = None) -> Iterator[StoredEntry]:
        """As the port says; they are decoded all the same, so it raises what ``read`` does."""
        for stored, _ in self._read(after, upto):
            yield stored

    def load_snapshot(self, state_version: int, upto: int | None = None) -> Snapshot | None:
        """There are none in an export."""
        _ = state_version, upto
        return None

    def get_secret(self, digest: str) -> str:
        """There are none in an export: raises SecretMissingError."""
        raise SecretMissingError(
            f"{self.path}: an export holds no secret {digest}; read the log itself"
        )

    def _read(self, after: int, upto: int | None) -> Iterator[tuple[StoredEntry, Entry]]:
        position = 0
        with self._open() as file:
            for position, text in enumerate(islice(self._lines(file), 1, None), 1):
                if upto is not None and position > upto:
                    return
                where = f"{self.path}: line {position + 1}"
                line = _parse(text, _Line, where)
                if line.position != position:
                    raise LogExchangeError(
                        f"{where}: has position {line.position}, not {position}; "
                        "export the log again"
                    )
                if position > after:
                    yield _entry(line, where)
        if position != self._entries:
            raise LogExchangeError(
                f"{self.path}: has {position} entries, line 1 promises {self._entries}; "
                "it was cut off or added to, export the log again"
            )

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise LogExchangeError(
                f"{self.path}: cannot be read ({error.strerror}); correct the path"
            ) from None

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        number = 0
        while line := file.readline(LINE_LIMIT_BYTES):
            number += 1
            if not line.endswith(b"\n"):
                raise LogExchangeError(
                    f"{self.path}: line {number}: is cut off, or longer than "
                    f"{LINE_LIMIT_BYTES} bytes; export the log again"
                )
            yield line


def _parse(text: bytes, kind: type[_T], where: str) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogExchangeError(
            f"{where}: is no line of an export ({error}); export the log again"
        ) from None


def _entry(line: _Line, where: str) -> tuple[StoredEntry, Entry]:
    drafts = [
        StoredCommand("", command.kind, command.version, bytes(command.command))
        for command in line.commands
    ]
    stored = StoredEntry(
        line.position, 0, line.kind, line.version, bytes(line.event), tuple(drafts)
    )
    entry = restore(stored, where)
    if not -INTEGER_LIMIT <= entry.event.at_ms < INTEGER_LIMIT:
        raise LogExchangeError(
            f"{where}: at_ms = {entry.event.at_ms} does not fit 64 bits; mend it"
        )
    commands = []
    for draft, command in zip(drafts, entry.commands, strict=True):
        if not command.command_id:
            raise LogExchangeError(f"{where}: its {draft.kind} has no command_id; export again")
        commands.append(StoredCommand(command.command_id, draft.kind, draft.version, draft.payload))
    whole = StoredEntry(
        line.position, entry.event.at_ms, line.kind, line.version, stored.payload, tuple(commands)
    )
    return whole, entry


def _insert(
    connection: sqlite3.Connection, entries: Sequence[StoredEntry], previous: bytes
) -> bytes:
    newest = seal(previous, entries)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(schema.INSERT_EVENT, event_rows(entries, newest))
    connection.executemany(schema.INSERT_COMMAND, command_rows(entries))
    connection.execute("COMMIT")
    return newest
