"""What a log costs in its life: bytes an event and a VM, backup, archive and check.

    python benchmarks/log_life.py [--events 200000] [--log recorded.db] [--json] [--light]

The log is of a recorded run of the product on the simulated cloud (``recording.py``). Peers, in
the same run: a copy of the file's bytes, a fold of all events, other compressions of the same
lines.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import measure
import recording
import zstandard

from poolsm import Fleet
from poolsm_runners.log import archive, sqlite
from poolsm_runners.log.backup import backup
from poolsm_runners.log.checking import check_log

MB = 1_000_000

SIZES = """SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC"""


def sizes(path: Path, events: int, vms: int) -> list[tuple[str, int, float, float]]:
    """Bytes of each table and index, per event and per VM."""
    with closing(sqlite3.connect(path)) as connection:
        try:
            found = connection.execute(SIZES).fetchall()
        except sqlite3.OperationalError:  # an SQLite without dbstat
            found = []
    found = [row for row in found if row[1] > path.stat().st_size / 1000]
    found.append(("the file", path.stat().st_size))
    return [(name, size, size / events, size / vms) for name, size in found]


def counted(path: Path, statement: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(statement).fetchone()[0])


def fold(path: Path) -> None:
    fleet = Fleet()
    for entry in sqlite.open_read_only(path).read():
        fleet.step(entry.event)


def plain_copy(path: Path, dest: Path) -> None:
    shutil.copyfile(path, dest)
    with dest.open("rb") as file:
        os.fsync(file.fileno())


def archive_all(path: Path) -> int:
    """Write the whole log as files of an archive; their bytes."""
    reader = sqlite.open_read_only(path)
    last = reader.last_position()
    for after in range(0, last, archive.EVENTS_PER_FILE):
        entries = reader.read_stored(after, min(after + archive.EVENTS_PER_FILE, last))
        archive.write(path, reader.header.log_id, b"", entries)
    return sum(file.path.stat().st_size for file in archive.files_of(path))


def read_archive(path: Path) -> None:
    log_id = sqlite.open_read_only(path).header.log_id
    for file in archive.files_of(path):
        for _ in archive.read(file, log_id):
            pass


def read_log(path: Path) -> None:
    for _ in sqlite.open_read_only(path).read_stored():
        pass


def wall_s(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compressions(path: Path) -> list[tuple[str, float, float, float]]:
    """The lines of one file of the archive: share of their size, CPU to write and to read."""
    (file, *_) = archive.files_of(path)
    lines = zstandard.ZstdDecompressor().decompress(file.path.read_bytes())
    zstd = zstandard.ZstdCompressor(level=archive.LEVEL)
    ways: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
        f"zstd {archive.LEVEL}": (zstd.compress, zstandard.ZstdDecompressor().decompress),
        "gzip 6": (lambda data: gzip.compress(data, 6), gzip.decompress),
        "xz 6": (lzma.compress, lzma.decompress),
    }
    rows = []
    for name, (write, read) in ways.items():
        packed = write(lines)
        write_s = measure.cpu_s(lambda write=write: write(lines))  # type: ignore[misc]
        read_s = measure.cpu_s(lambda read=read, packed=packed: read(packed))  # type: ignore[misc]
        speeds = (len(lines) / write_s / MB, len(lines) / read_s / MB)
        rows.append((name, len(packed) / len(lines), *speeds))
    return rows


def run(options: argparse.Namespace, folder: Path) -> None:
    path = options.log or folder / "fleet.db"
    if not path.exists():
        recording.record(path, options.events or (20_000 if options.light else 200_000))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    events = sqlite.open_read_only(path).last_position()
    vms = counted(path, "SELECT count(*) FROM commands WHERE kind = 'CreateServer'")
    rows = counted(path, "SELECT sum(length(CAST(payload AS BLOB))) FROM events") + counted(
        path, "SELECT sum(length(CAST(payload AS BLOB))) FROM commands"
    )
    copy = folder / "copy.db"
    archived = archive_all(path)
    contenders: dict[str, Callable[[], object]] = {
        "check": lambda: check_log(path),
        "fold": lambda: fold(path),
        "backup": lambda: backup(path, copy, replace=True),
        "plain copy": lambda: plain_copy(path, folder / "plain.db"),
        "read the archive": lambda: read_archive(path),
        "read the log": lambda: read_log(path),
        "write the archive": lambda: archive_all(path),
    }
    spent = measure.best_of(3, contenders)
    size = path.stat().st_size
    speeds = [
        (name, events / cpu_s, size / cpu_s / MB, size / wall_s(contenders[name]) / MB)
        for name, cpu_s in spent.items()
    ]
    measure.finish(
        options,
        f"A log of {events:,} events and {vms:,} VMs, created, used and most of them deleted",
        {
            "Size": (("what", "bytes", "bytes / event", "bytes / VM"), sizes(path, events, vms)),
            "Speed": (
                ("what", "events / CPU-s", "log MB / CPU-s", "log MB / s, waiting for the disk"),
                speeds,
            ),
            "Compression of the archive's lines": (
                ("way", "of their size", "written, MB / CPU-s", "read, MB / CPU-s"),
                compressions(path),
            ),
        },
        [
            measure.Figure("archive / payloads", archived / rows, 0.125, 0.25, less_is_better=True),
            measure.Figure("archive / the file", archived / size, 0.1, 0.2, less_is_better=True),
            measure.Figure("check / fold", spent["fold"] / spent["check"], 0.5, 0.25),
            measure.Figure(
                "archive / log, read", spent["read the log"] / spent["read the archive"], 0.5, 0.25
            ),
        ],
    )


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--events", type=int, help="to record (200,000; 20,000 if light)")
    parser.add_argument("--log", type=Path, help="recorded here if there is none, and kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run(options, Path(folder))


if __name__ == "__main__":
    main()
