"""The replaced service's three tables, found by the names of their columns.

The service's own documents name the fields and give no table definitions, so columns are found
by name, whatever their case and underscores (``MinVM`` is ``min_vm``). A column that is needed
and missing is an error, one that may be missing has a default, one that nobody knows is
reported and left.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

from attrs import field, frozen

from poolsm_runners.migrate.snapshot import Digests, OldDatabaseError, copy

DELETED_AT = "deleted_at"


@frozen
class Layout:
    """What is read of one table.

    Attributes:
        needed: columns that it must have.
        optional: columns that it may lack.
        known: columns that are not needed here, and no surprise.
        aliases: other names of a column, by its own.
    """

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    known: tuple[str, ...]
    aliases: Mapping[str, tuple[str, ...]] = field(factory=dict)


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "serverpools": Layout(
            needed=(
                *("serverpool_id", "user_id", "min_vm", "max_vm"),
                *("image_ref", "flavor_ref", "networks"),
            ),
            optional=("config_id", "config_data", "off_days", "key_name", DELETED_AT),
            known=("id", "pending_jobs", "host", "status", "created_at", "updated_at"),
            aliases={"key_name": ("api_keyname",)},
        ),
        "servers": Layout(
            needed=("id", "reattrib"),
            optional=("serverpool_id", "user_id", DELETED_AT),
            known=(
                *("name", "status", "flavor_ref", "image_ref", "networks", "metadata", "host"),
                *("progress", "config_id", "ip_address", "created_at", "updated_at"),
            ),
            aliases={"id": ("server_id",)},
        ),
        "config_pools": Layout(
            needed=("name", "data"),
            optional=("id", "user_id", DELETED_AT),
            known=("host", "created_at", "updated_at"),
        ),
    }
)


@frozen
class Row:
    """One row, by our names of its columns; ``where`` is how messages name it."""

    where: str
    values: Mapping[str, object]

    def has(self, name: str) -> bool:
        """Whether the table has that column at all."""
        return name in self.values


@frozen
class OldDatabase:
    """What the three tables hold, rows that the service had deleted left out.

    Attributes:
        digests: of the files that were read; see :mod:`.snapshot`.
        notes: what was left out, and columns that nobody knows.
    """

    path: Path
    digests: Digests
    pools: tuple[Row, ...]
    servers: tuple[Row, ...]
    configs: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def read_old_database(path: Path) -> OldDatabase:
    """Read all three tables from a copy; the file, and what is beside it, stay as they are.

    Raises:
        OldDatabaseError: every table and column that is missing, and what was found instead.
    """
    with tempfile.TemporaryDirectory(prefix="poolsm-migrate-") as folder:  # 0700: it has secrets
        found = copy(path, Path(folder))
        try:
            with closing(sqlite3.connect(Path(folder) / path.name)) as connection:
                return _read(path, found, connection)
        except sqlite3.DatabaseError as error:
            raise OldDatabaseError(
                f"{path}: is no SQLite database that can be read ({error}); name the replaced "
                "service's file"
            ) from None


def _read(path: Path, found: Digests, connection: sqlite3.Connection) -> OldDatabase:
    names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    tables = {name.lower(): name for (name,) in connection.execute(names)}
    problems: list[str] = []
    notes: list[str] = []
    rows: dict[str, tuple[Row, ...]] = {}
    for wanted, layout in LAYOUTS.items():
        if wanted not in tables:
            others = ", ".join(sorted(tables.values())) or "none"
            problems.append(
                f"{path}: has no table {wanted}; its tables: {others}; name the replaced "
                "service's file"
            )
            continue
        columns = _columns(path, connection, tables[wanted], layout, problems, notes)
        if not problems:
            rows[wanted] = _rows(connection, tables[wanted], wanted, columns, notes)
    if problems:
        raise OldDatabaseError("\n".join(problems))
    return OldDatabase(
        path, found, rows["serverpools"], rows["servers"], rows["config_pools"], tuple(notes)
    )


def _columns(  # noqa: PLR0917 - one table, and where to say what is wrong with it
    path: Path,
    connection: sqlite3.Connection,
    table: str,
    layout: Layout,
    problems: list[str],
    notes: list[str],
) -> dict[str, str]:
    """The table's own name of each column that is read, by ours."""
    there: dict[str, list[str]] = {}
    for row in connection.execute(f"PRAGMA table_info({_quoted(table)})"):
        there.setdefault(_plain(row[1]), []).append(row[1])
    found: dict[str, str] = {}
    for name in (*layout.needed, *layout.optional):
        for spelled in (*layout.aliases.get(name, ()), name):
            own = there.pop(_plain(spelled), [])
            if len(own) > 1:
                problems.append(
                    f"{path}: table {table}: {' and '.join(own)} are both {name}; "
                    "remove one in a copy, and migrate that"
                )
            elif own and name in found:
                notes.append(f"table {table}: column {own[0]} is not read: {found[name]} is")
            elif own:
                found[name] = own[0]
    lacking = [name for name in layout.needed if name not in found]
    extra = sorted(own for names in there.values() for own in names)
    if lacking:
        columns = sorted((*found.values(), *extra))
        problems.append(
            f"{path}: table {table}: has no column {', '.join(lacking)}; its columns: "
            f"{', '.join(columns)}; name the replaced service's file"
        )
    known = {_plain(name) for name in layout.known}
    strange = [name for name in extra if _plain(name) not in known]
    if strange:
        notes.append(f"table {table}: columns that poolsm has no use for: {', '.join(strange)}")
    return found


def _rows(
    connection: sqlite3.Connection,
    table: str,
    wanted: str,
    columns: Mapping[str, str],
    notes: list[str],
) -> tuple[Row, ...]:
    listed = ", ".join(map(_quoted, columns.values()))
    order = _quoted(columns["id"]) if "id" in columns else "rowid"
    query = f"SELECT {listed} FROM {_quoted(table)} ORDER BY {order}"  # noqa: S608 - its own names, quoted
    rows: list[Row] = []
    deleted = 0
    for number, values in enumerate(connection.execute(query), 1):
        row = Row(f"{wanted}[{number}]", dict(zip(columns, values, strict=True)))
        if row.values.get(DELETED_AT):
            deleted += 1
        else:
            rows.append(row)
    if deleted:
        notes.append(f"table {table}: {deleted} rows have a deleted_at and are left out")
    return tuple(rows)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
