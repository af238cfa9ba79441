"""The SQLite form of a log: its tables, how the file is told from others, how it is migrated."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from types import MappingProxyType

APPLICATION_ID = 0x70534D4C  # "pSML"
FORMAT_VERSION = 2

# Payloads are JSON text, so that any SQLite tool can read a log. They are bound and read as
# blobs through CAST, which spares the conversion to str and back.
TABLES = (
    """CREATE TABLE header (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        log_id TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        secret_key BLOB NOT NULL,
        archived INTEGER NOT NULL DEFAULT 0,
        unsealed INTEGER NOT NULL DEFAULT 0,
        sealed INTEGER NOT NULL DEFAULT 0,
        seal BLOB NOT NULL DEFAULT x''
    ) STRICT""",
    """CREATE TABLE events (
        position INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        payload TEXT NOT NULL,
        seal BLOB
    ) STRICT""",
    """CREATE TABLE commands (
        command_id TEXT PRIMARY KEY NOT NULL,
        position INTEGER NOT NULL,
        n INTEGER NOT NULL,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        payload TEXT NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX commands_by_position ON commands (position, n)",
    """CREATE TABLE secrets (
        digest TEXT PRIMARY KEY NOT NULL,
        text TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE snapshots (
        position INTEGER NOT NULL,
        state_version INTEGER NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (position, state_version)
    ) STRICT""",
    # The header names the newest seal, so that a tail that was cut off is missed. A trigger,
    # because an event alone is one statement, which is its own transaction.
    """CREATE TRIGGER events_sealed AFTER INSERT ON events WHEN NEW.seal IS NOT NULL
        BEGIN UPDATE header SET sealed = NEW.position, seal = NEW.seal; END""",
)

INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, CAST(? AS TEXT), ?)"
INSERT_COMMAND = "INSERT INTO commands VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))"
INSERT_SECRET = "INSERT INTO secrets VALUES (?, ?) ON CONFLICT DO NOTHING"  # noqa: S105 - SQL
INSERT_SNAPSHOT = "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)"
# Two are kept: the newest, and the one before it in case the newest proves unusable.
PRUNE_SNAPSHOTS = """DELETE FROM snapshots WHERE state_version != ?1 OR position NOT IN (
    SELECT position FROM snapshots WHERE state_version = ?1 ORDER BY position DESC LIMIT 2)"""

SELECT_HEADER = "SELECT log_id, created_ms, secret_key FROM header"
SELECT_ARCHIVED = "SELECT archived FROM header"
SELECT_SEALED = "SELECT unsealed, sealed, seal FROM header"
SELECT_SEAL = "SELECT seal FROM events WHERE position = ?"
SELECT_SEALS = """SELECT position, seal FROM events
    WHERE seal IS NOT NULL AND position > ? AND position <= ? ORDER BY position"""
SELECT_SEALED_UPTO = """SELECT coalesce(max(position), 0) FROM events WHERE position <= ?
    AND (seal IS NOT NULL OR position <= (SELECT unsealed FROM header))"""
SELECT_LAST_TIME = "SELECT position, at_ms FROM events ORDER BY position DESC LIMIT 1"
SELECT_POSITION_BEFORE = "SELECT coalesce(max(position), 0) FROM events WHERE at_ms < ?"
SELECT_EVENTS = """SELECT position, at_ms, kind, version, CAST(payload AS BLOB) FROM events
    WHERE position > ? AND position <= ? ORDER BY position LIMIT ?"""
SELECT_COMMANDS = """SELECT position, command_id, kind, version, CAST(payload AS BLOB)
    FROM commands WHERE position > ? AND position <= ? ORDER BY position, n"""
SELECT_LAST_POSITION = """SELECT coalesce((SELECT max(position) FROM events),
    (SELECT archived FROM header), 0)"""
SELECT_EXTENT = (
    "SELECT count(*), coalesce(min(position), 1), coalesce(max(position), 0) FROM events"
)
SELECT_SECRET = "SELECT text FROM secrets WHERE digest = ?"  # noqa: S105 - SQL
SELECT_SNAPSHOT = """SELECT position, state_version, payload FROM snapshots
    WHERE state_version = ? AND position <= ? ORDER BY position DESC LIMIT 1"""

POSITION_LIMIT = 2**63 - 1  # of SQLite's integers; stands for "no limit" in a query

# What moves into the archive: rows up to a position, and the header says so.
ARCHIVE = (
    "DELETE FROM commands WHERE position <= ?",
    "DELETE FROM events WHERE position <= ?",
    "UPDATE header SET archived = ?",
)

# format: the statements that lead from it to the next one.
MIGRATIONS: Mapping[int, Sequence[str]] = MappingProxyType(
    {
        # what is there already has no seals; everything from here on has
        1: (
            "ALTER TABLE header ADD COLUMN archived INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE header ADD COLUMN unsealed INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE header ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE header ADD COLUMN seal BLOB NOT NULL DEFAULT x''",
            "ALTER TABLE events ADD COLUMN seal BLOB",
            "UPDATE header SET unsealed = (SELECT coalesce(max(position), 0) FROM events)",
            TABLES[-1],
        ),
    }
)


def build(connection: sqlite3.Connection, log_id: str, created_ms: int, secret_key: bytes) -> None:
    """Make an empty log of today's format in an empty database in autocommit mode."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # archiving gives space back
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO header (id, log_id, created_ms, secret_key) VALUES (1, ?, ?, ?)",
        (log_id, created_ms, secret_key),
    )
    connection.execute("COMMIT")


def migrate(
    connection: sqlite3.Connection,
    found: int,
    target: int = FORMAT_VERSION,
    migrations: Mapping[int, Sequence[str]] = MIGRATIONS,
) -> None:
    """Bring a log of an older format to ``target`` in one transaction, or leave it as it is.

    The connection is in autocommit mode. Raises KeyError for a format that no release wrote.
    """
    steps = [migrations[version] for version in range(found, target)]
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements in steps:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {target}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
