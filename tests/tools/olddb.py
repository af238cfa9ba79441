"""The replaced service's SQLite file, as this project assumes it; see docs/migrating.md."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

SCHEMA = """
CREATE TABLE serverpools (
    id integer PRIMARY KEY AUTOINCREMENT,
    serverpool_id text,
    user_id text,
    image_ref text,
    flavor_ref text,
    min_vm integer,
    max_vm integer,
    pending_jobs integer DEFAULT 0,
    config_id text,
    config_data text,
    networks text,
    off_days text,
    host text DEFAULT 'OpenStack'
);
CREATE TABLE servers (
    id text PRIMARY KEY,
    name text,
    status text,
    flavor_ref text,
    image_ref text,
    serverpool_id text,
    user_id text,
    reattrib numeric DEFAULT false,
    progress integer,
    config_id text,
    ip_address text,
    networks text,
    metadata text,
    host text DEFAULT 'OpenStack'
);
CREATE TABLE config_pools (
    id integer PRIMARY KEY AUTOINCREMENT,
    user_id text,
    name text,
    data text,
    host text DEFAULT 'OpenStack'
);
"""

POOL = {
    "user_id": "alice",
    "image_ref": "worker-image",
    "flavor_ref": "m1.tiny",
    "min_vm": 1,
    "max_vm": 3,
    "networks": '["lab-net"]',
    "config_id": "",
    "off_days": "",
}


def make(
    path: Path,
    *,
    pools: Iterable[Mapping[str, object]] = (),
    servers: Iterable[Mapping[str, object]] = (),
    configs: Iterable[Mapping[str, object]] = (),
    schema: str = SCHEMA,
    wal: bool = False,
) -> Path:
    """Write a file; ``pools`` need a serverpool_id, the rest comes from ``POOL``."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(schema)
        for pool in pools:
            insert(connection, "serverpools", {**POOL, **pool})
        for server in servers:
            insert(connection, "servers", server)
        for config in configs:
            insert(connection, "config_pools", config)
    return path


def insert(connection: sqlite3.Connection, table: str, row: Mapping[str, object]) -> None:
    """One row, or the row of that key anew."""
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    connection.execute(
        f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({marks})", tuple(row.values())
    )
