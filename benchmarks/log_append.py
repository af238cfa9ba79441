"""What appending to the log and reading it cost, as ratios to plain sqlite3 in the same run.

    python benchmarks/log_append.py [--folder .] [--json] [--light]

Both sides write the same rows into the same tables with the same pragmas; the peer's rows are
encoded beforehand, ours are encoded, sealed and queued. CPU time of the whole process, its
threads too: waiting for the disk costs nothing here, and is the disk's figure.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from measure import Figure, best_of, finish, parser

from poolsm.entries import Entry
from poolsm.events import CallAnswered
from poolsm_runners.log import schema, sqlite
from poolsm_runners.log.rows import event_rows, store

BULK = 1000
BAR = 0.6


def make_entries(count: int) -> list[Entry]:
    return [
        Entry(
            position,
            CallAnswered(
                at_ms=1_735_725_600_000 + position,
                command_id=f"5c0b7a34-6b35-5d1a-9a0f-{position:012d}",
                started_ms=1_735_725_600_000,
                http_status=202,
                server_id=f"0d7c2c3e-91b4-4a5e-8f0c-{position:012d}",
            ),
        )
        for position in range(1, count + 1)
    ]


def split(entries: Sequence[Entry], size: int) -> list[Sequence[Entry]]:
    return [entries[start : start + size] for start in range(0, len(entries), size)]


class Contenders:
    """Work on new files of one folder, so that each round begins with an empty log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0

    def _path(self) -> Path:
        self._files += 1
        return self._folder / f"{self._files}.db"

    def raw(self, entries: Sequence[Entry], size: int) -> Callable[[], None]:
        """sqlite3 alone."""
        batches = [
            event_rows([store(entry) for entry in batch], b"") for batch in split(entries, size)
        ]

        def work() -> None:
            with closing(sqlite3.connect(self._path(), isolation_level=None)) as connection:
                schema.build(connection, "", 0, b"")
                for rows in batches:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.executemany(schema.INSERT_EVENT, rows)
                    connection.execute("COMMIT")

        return work

    def ours(self, entries: Sequence[Entry], size: int) -> Callable[[], None]:
        """One caller that waits for each batch."""

        async def append() -> None:
            async with await sqlite.create(self._path(), created_ms=0) as log:
                for batch in split(entries, size):
                    await log.append(batch)

        return lambda: asyncio.run(append())

    def together(self, entries: Sequence[Entry]) -> Callable[[], None]:
        """As many callers as entries, all at once: group commit."""

        async def append() -> None:
            async with await sqlite.create(self._path(), created_ms=0) as log:
                await asyncio.gather(*(log.append([entry]) for entry in entries))

        return lambda: asyncio.run(append())


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure")
    told = options.parse_args()
    rounds, bulk, singles = (3, 20_000, 500) if told.light else (5, 100_000, 3_000)
    many, few = make_entries(bulk), make_entries(singles)
    rows = []
    with tempfile.TemporaryDirectory(dir=told.folder) as folder:
        on = Contenders(Path(folder))
        for name, entries, ours, size in (
            (f"batches of {BULK}", many, on.ours(many, BULK), BULK),
            ("batches of 100", many[: bulk // 4], on.ours(many[: bulk // 4], 100), 100),
            ("one at a time", few, on.ours(few, 1), 1),
            ("one each, all callers at once", few, on.together(few), 1),
        ):
            best = best_of(rounds, {"ours": ours, "raw": on.raw(entries, size)})
            count = len(entries)
            per_s = (round(count / best["ours"]), round(count / best["raw"]))
            rows.append((name, count, *per_s, best["raw"] / best["ours"]))
    heads = ("append", "events", "poolsm / CPU-s", "sqlite3 / CPU-s", "ratio")
    figure = Figure(f"append, batches of {BULK}, of sqlite3", rows[0][-1], BAR, BAR / 2)
    finish(told, "Appending", {"CPU": (heads, rows)}, [figure])


if __name__ == "__main__":
    main()
