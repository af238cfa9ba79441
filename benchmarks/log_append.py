"""How fast the log appends and reads, as a ratio to plain sqlite3 in the same run.

    python benchmarks/log_append.py [--events 2000] [--folder .] [--json]

Both write the same rows with the same pragmas. Absolute figures follow the disk, and other
load on it; only the ratios are worth comparing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from poolsm.entries import Entry
from poolsm.events import CallAnswered
from poolsm_runners.log import schema, sqlite
from poolsm_runners.log.rows import event_rows, store

BATCHES = (1, 10, 100, 1000)


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


def raw_append(path: Path, entries: Sequence[Entry], size: int) -> float:
    """Seconds for sqlite3 alone; the rows are encoded beforehand."""
    batches = [event_rows([store(entry) for entry in batch], b"") for batch in split(entries, size)]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema.build(connection, "", 0, b"")
        began = time.perf_counter()
        for rows in batches:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(schema.INSERT_EVENT, rows)
            connection.execute("COMMIT")
        return time.perf_counter() - began


async def log_append(path: Path, entries: Sequence[Entry], size: int) -> float:
    """Seconds for one caller that waits for each batch, encoding included."""
    async with await sqlite.create(path, created_ms=0) as log:
        began = time.perf_counter()
        for batch in split(entries, size):
            await log.append(batch)
        return time.perf_counter() - began


async def log_append_together(path: Path, entries: Sequence[Entry]) -> float:
    """Seconds for callers that append one entry each, all at once: group commit."""
    async with await sqlite.create(path, created_ms=0) as log:
        began = time.perf_counter()
        await asyncio.gather(*(log.append([entry]) for entry in entries))
        return time.perf_counter() - began


def raw_read(path: Path) -> float:
    with closing(sqlite3.connect(path)) as connection:
        began = time.perf_counter()
        connection.execute("SELECT position, at_ms, kind, version, payload FROM events").fetchall()
        return time.perf_counter() - began


def log_read(path: Path) -> float:
    reader = sqlite.open_read_only(path)
    began = time.perf_counter()
    for _ in reader.read():
        pass
    return time.perf_counter() - began


def measure(folder: Path, singles: int) -> list[dict[str, object]]:
    results: list[dict[str, object]] = []

    def add(name: str, count: int, ours_s: float, raw_s: float) -> None:
        results.append(
            {
                "what": name,
                "events": count,
                "poolsm_per_s": round(count / ours_s),
                "sqlite3_per_s": round(count / raw_s),
                "ratio": round(raw_s / ours_s, 2),
            }
        )

    for size in BATCHES:
        entries = make_entries(min(singles * size, singles * 50))
        raw_s = raw_append(folder / f"raw-{size}", entries, size)
        ours_s = asyncio.run(log_append(folder / f"ours-{size}", entries, size))
        add(f"append, batches of {size}", len(entries), ours_s, raw_s)
    entries = make_entries(singles)
    raw_s = raw_append(folder / "raw-together", entries, 1)
    ours_s = asyncio.run(log_append_together(folder / "ours-together", entries))
    add("append singly, all callers at once", singles, ours_s, raw_s)
    count = min(singles * BATCHES[-1], singles * 50)
    raw_s = raw_read(folder / f"raw-{BATCHES[-1]}")
    add("read and decode", count, log_read(folder / f"ours-{BATCHES[-1]}"), raw_s)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=2000, help="appended singly (default 2000)")
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        results = measure(Path(folder), arguments.events)
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'':36}{'events':>8}{'poolsm/s':>11}{'sqlite3/s':>11}{'ratio':>7}")
    for row in results:
        print(
            f"{row['what']:36}{row['events']:8}{row['poolsm_per_s']:11}"
            f"{row['sqlite3_per_s']:11}{row['ratio']:7}"
        )


if __name__ == "__main__":
    main()
