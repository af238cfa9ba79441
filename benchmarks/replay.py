"""Replaying a recorded log of a million events: against sqlite3, and against `eventsourcing`.

The log is a real one of the benchmark's own recording (see recording.py). Four contenders read
from disk in each round, one row per event: sqlite3 alone iterates the rows of the events table
(5 columns each); the fold reads, decodes and folds them; the replay also decodes the recorded
commands and compares them with those that the rules decide anew; the `eventsourcing` library
rebuilds one aggregate from its SQLite file.

    python benchmarks/replay.py [--events 1000000] [--log FILE] [--light] [--json]
"""

from __future__ import annotations

import argparse
import gc
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from uuid import UUID

import measure
import recording
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from poolsm import Fleet
from poolsm.replay import ReplayResult, replay
from poolsm_runners.engine import open_fleet, uncollected
from poolsm_runners.log import sqlite

SELECT = "SELECT position, at_ms, kind, version, payload FROM events ORDER BY position"
AGGREGATE_EVENTS = 10_000


class Machine(Aggregate):
    """The peer's aggregate: one VM, with as many fields to an event as ours have columns."""

    @event("Built")
    def __init__(self, name: str, pool: str) -> None:
        self.name = name
        self.pool = pool
        self.status = "pending"
        self.server_id = ""
        self.address = ""

    @event("Seen")
    def see(self, at_ms: int, server_id: str, status: str, task_state: str, address: str) -> None:
        """What a listing shows."""
        self.at_ms = at_ms
        self.server_id = server_id
        self.status = status
        self.task_state = task_state
        self.address = address


def rows(path: Path) -> int:
    """sqlite3 alone."""
    count = 0
    with closing(sqlite3.connect(path)) as connection:
        for _ in connection.execute(SELECT):
            count += 1
    return count


def fold(path: Path) -> Fleet:
    """What a runner does that opens its log without a snapshot."""
    return open_fleet(sqlite.open_read_only(path))


def compare(path: Path) -> ReplayResult:
    """What ``poolsm replay`` does."""
    with uncollected():
        result = replay(sqlite.open_read_only(path).read())
    if result.difference is not None:
        raise SystemExit("\n".join(result.difference.describe()))
    return result


def aggregate(path: Path) -> tuple[Application[UUID], UUID]:
    """An aggregate of the `eventsourcing` library in its own SQLite file."""
    environment = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}
    application: Application[UUID] = Application(env=environment)
    machine = Machine("pool-1-vm", "pool-1")
    for n in range(AGGREGATE_EVENTS - 1):
        status = "ACTIVE" if n % 2 else "SHUTOFF"
        machine.see(1_794_214_800_000 + n, f"server-{n:029d}", status, "spawning", "net:10.77.0.9")
        if len(machine.pending_events) >= recording.BATCH:
            application.save(machine)
    application.save(machine)
    return application, machine.id


def measured(path: Path, folder: Path, rounds: int) -> tuple[dict[str, float], ReplayResult]:
    """Microseconds an event of each contender, and what was replayed."""
    application, machine_id = aggregate(folder / "eventsourcing.db")
    result = compare(path)
    gc.freeze()
    spent = measure.best_of(
        rounds,
        {
            "sqlite3 rows": lambda: rows(path),
            "fold": lambda: fold(path),
            "rules and comparison": lambda: compare(path),
            "eventsourcing": lambda: application.repository.get(machine_id),
        },
    )
    counts = dict.fromkeys(spent, result.events) | {"eventsourcing": AGGREGATE_EVENTS}
    return {name: cpu_s / counts[name] * 1e6 for name, cpu_s in spent.items()}, result


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--events", type=int, help="to record (1,000,000; 20,000 if light)")
    parser.add_argument("--log", type=Path, help="recorded here if there is none, and kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(options, Path(folder))


def run(options: argparse.Namespace, folder: Path) -> None:
    path = options.log or folder / "fleet.db"
    if not path.exists():
        recording.record(path, options.events or (20_000 if options.light else 1_000_000))
    spent, result = measured(path, folder, 3)
    raw = spent["sqlite3 rows"]
    ours = ("fold", "rules and comparison")
    # bar, and half of what was measured: the bars are not met yet
    bars = {"fold": (0.30, 0.007), "rules and comparison": (0.15, 0.006)}
    figures = [measure.Figure(f"{name} / sqlite3", raw / spent[name], *bars[name]) for name in ours]
    figures.append(
        measure.Figure("fold / eventsourcing", spent["eventsourcing"] / spent["fold"], 8.0, 0.2)
    )
    contenders = [(name, us, round(1e6 / us), raw / us) for name, us in spent.items()]
    mix = [(kind, n, n / result.events) for kind, n in result.events_by_kind.items()]
    commands = list(result.commands_by_kind.items())
    measure.finish(
        options,
        f"Replay of {result.events:,} events with {result.commands:,} commands",
        {
            "CPU time": (("contender", "us / event", "events / s", "of sqlite3"), contenders),
            "events of the log": (("kind", "events", "share"), mix),
            "commands of the log": (("kind", "commands"), commands),
        },
        figures,
    )


if __name__ == "__main__":
    main()
