"""Entries to what a log stores, and back through the codec (C10)."""

from __future__ import annotations

from poolsm import codec
from poolsm.entries import Entry
from poolsm.errors import UnknownKindError, UnreadableRecordError
from poolsm_runners.log.port import LogMisuseError, StoredCommand, StoredEntry


def store(entry: Entry) -> StoredEntry:
    """One entry at today's versions; raises LogMisuseError for a command without an id."""
    kind = type(entry.event).__name__
    commands = []
    for command in entry.commands:
        name = type(command).__name__
        if not command.command_id:
            raise LogMisuseError(
                f"entry {entry.position}: its {name} has no command_id; "
                "append the commands that the core returned, not drafts"
            )
        commands.append(
            StoredCommand(
                command.command_id, name, codec.COMMAND_VERSIONS[name], codec.encode(command)
            )
        )
    return StoredEntry(
        entry.position,
        entry.event.at_ms,
        kind,
        codec.EVENT_VERSIONS[kind],
        codec.encode(entry.event),
        tuple(commands),
    )


def restore(stored: StoredEntry, where: str) -> Entry:
    """One entry as any release stored it.

    ``where`` opens the text of an error (``fleet.db: position 7``), which is an
    UnknownKindError or UnreadableRecordError as the codec raises it.
    """
    try:
        event = codec.decode_event(stored.kind, stored.version, stored.payload)
        commands = tuple(
            codec.decode_command(command.kind, command.version, command.payload)
            for command in stored.commands
        )
    except (UnknownKindError, UnreadableRecordError) as error:
        error.args = (f"{where}: {error}",)
        raise
    return Entry(stored.position, event, commands)
