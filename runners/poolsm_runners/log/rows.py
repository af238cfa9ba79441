"""Entries to what a log stores, and back through the codec (C10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from poolsm import codec
from poolsm.commands import Command
from poolsm.entries import Entry
from poolsm.errors import UnknownKindError, UnreadableRecordError
from poolsm_runners.log.port import LogMisuseError, StoredCommand, StoredEntry

INTEGER_LIMIT = 2**63  # of the integers of every database that a log may be in
_LEAST = -INTEGER_LIMIT
_UNSEALED = (None,)
_new = tuple.__new__


def store(entry: Entry) -> StoredEntry:
    """One entry at today's versions; raises LogMisuseError for one that cannot be stored."""
    event = entry.event
    at_ms = event.at_ms
    if not _LEAST <= at_ms < INTEGER_LIMIT:
        raise LogMisuseError(
            f"entry {entry.position}: at_ms = {at_ms} does not fit 64 bits; "
            "give milliseconds since 1970"
        )
    try:
        payload = codec.encode(event)
        commands: tuple[StoredCommand, ...] = ()
        if entry.commands:
            commands = tuple(_store_command(entry.position, command) for command in entry.commands)
    except (TypeError, ValueError, OverflowError) as error:
        raise LogMisuseError(
            f"entry {entry.position}: {type(event).__name__} or a command of it cannot be encoded "
            f"({error}); give values of the types that its class declares"
        ) from error
    kind = type(event).__name__
    version = codec.EVENT_VERSIONS[kind]
    # what StoredEntry(...) does, without its call in between: every append pays for it
    return _new(StoredEntry, (entry.position, at_ms, kind, version, payload, commands))


def _store_command(position: int, command: Command) -> StoredCommand:
    kind = type(command).__name__
    if not command.command_id:
        raise LogMisuseError(
            f"entry {position}: its {kind} has no command_id; "
            "append the commands that the core returned, not drafts"
        )
    return StoredCommand(
        command.command_id, kind, codec.COMMAND_VERSIONS[kind], codec.encode(command)
    )


def restore(stored: StoredEntry, where: str) -> Entry:
    """One entry as any release stored it.

    ``where`` opens the text of an error (``fleet.db: position 7``), which is an
    UnknownKindError or UnreadableRecordError as the codec raises it.
    """
    try:
        event = codec.decode_event(stored.kind, stored.version, stored.payload)
        commands = tuple(
            [
                codec.decode_command(command.kind, command.version, command.payload)
                for command in stored.commands
            ]
        )
    except (UnknownKindError, UnreadableRecordError) as error:
        error.args = (f"{where}: {error}",)
        raise
    return Entry(stored.position, event, commands)


EventRow = tuple[int, int, str, int, bytes, bytes | None]


def event_rows(entries: Sequence[StoredEntry], seal: bytes) -> list[EventRow]:
    """Parameters of ``schema.INSERT_EVENT``; the last of the transaction carries its seal."""
    rows: list[EventRow] = [entry[:5] + _UNSEALED for entry in entries]
    rows[-1] = (*rows[-1][:5], seal)
    return rows


def command_rows(entries: Iterable[StoredEntry]) -> list[tuple[str, int, int, str, int, bytes]]:
    """Parameters of ``schema.INSERT_COMMAND``."""
    return [
        (command.command_id, entry.position, n, command.kind, command.version, command.payload)
        for entry in entries
        if entry.commands  # most have none
        for n, command in enumerate(entry.commands)
    ]
