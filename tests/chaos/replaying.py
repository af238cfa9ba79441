"""Replays of a log in processes of their own, and logs that somebody edited (I8).

``python -m tests.chaos.replaying LOG`` prints how the replay ends, as JSON.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from poolsm.replay import replay
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import LogOpenError
from tests.integration.running import ROOT

HASH_SEEDS = (0, 1, 4242)
REFUSED = "refused"


@frozen
class Replayed:
    """How a replay ended: figures, and the first difference in words ("" for none).

    ``kind`` is the difference's, or ``refused`` for a log that cannot even be opened.
    """

    events: int
    commands: int
    difference: str
    kind: str = ""


def replayed(log: Path, hash_seed: int) -> Replayed:
    """Replay in a new process under a hash seed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.replaying", str(log)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}",
            "PYTHONHASHSEED": str(hash_seed),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Replayed(**json.loads(done.stdout))


def assert_replays(log: Path) -> Replayed:
    """No difference under several hash seeds."""
    results = [replayed(log, seed) for seed in HASH_SEEDS]
    assert results == [results[0]] * len(results)
    assert results[0].difference == ""
    assert results[0].commands
    return results[0]


def assert_edits_are_found(log: Path) -> list[str]:
    """Edit a copy in one place, several times over; each replay names it."""
    found = []
    for edit in (_another_flavor, _one_vm_more, _one_event_less):
        copy = log.with_name(f"edited-{edit.__name__.strip('_')}.db")
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as source:
            source.execute("VACUUM INTO ?", (str(copy),))
        with closing(sqlite3.connect(copy)) as connection:
            position = edit(connection)
            connection.commit()
        result = replayed(copy, 0)
        assert result.difference, f"{edit.__name__} at position {position} was not found"
        assert result.kind == REFUSED or f"position {position}" in result.difference, result
        found.append(result.difference.splitlines()[0])
    return found


def _edit(
    connection: sqlite3.Connection, table: str, kind: str, change: Callable[[dict[str, Any]], None]
) -> int:
    """Change the middle one of a kind; its position."""
    rows = connection.execute(
        f"SELECT rowid, position, payload FROM {table} WHERE kind = ? ORDER BY position", (kind,)
    ).fetchall()
    row, position, payload = rows[len(rows) // 2]
    value = json.loads(payload)
    change(value)
    connection.execute(f"UPDATE {table} SET payload = ? WHERE rowid = ?", (json.dumps(value), row))
    return int(position)


def _another_flavor(connection: sqlite3.Connection) -> int:
    def change(command: dict[str, Any]) -> None:
        command["flavor_id"] = "77"

    return _edit(connection, "commands", "CreateServer", change)


def _one_vm_more(connection: sqlite3.Connection) -> int:
    """The last thing that could have been declared: found where the next command is missing."""
    row = connection.execute(
        "SELECT position, payload FROM events WHERE kind = 'PoolDeclared' ORDER BY position"
    ).fetchone()
    value = json.loads(row[1])
    value["spec"]["min_vm"] += 1
    value["spec"]["max_vm"] += bool(value["spec"]["max_vm"])
    connection.execute(
        "UPDATE events SET payload = ? WHERE position = ?", (json.dumps(value), row[0])
    )
    found = connection.execute(
        "SELECT position FROM commands WHERE kind = 'CreateServer' ORDER BY position LIMIT 1"
    ).fetchone()
    return int(found[0])


def _one_event_less(connection: sqlite3.Connection) -> int:
    position = connection.execute("SELECT max(position) / 2 FROM events").fetchone()[0]
    connection.execute("DELETE FROM commands WHERE position = ?", (position,))
    connection.execute("DELETE FROM events WHERE position = ?", (position,))
    return int(position)


def _replay(log: str) -> Replayed:
    try:
        result = replay(sqlite.open_read_only(log).read())
    except LogOpenError as error:  # not even a log any more
        return Replayed(0, 0, str(error), REFUSED)
    difference = result.difference
    if difference is None:
        return Replayed(result.events, result.commands, "")
    text = "\n".join(difference.describe())
    return Replayed(result.events, result.commands, text, difference.kind)


def main() -> None:
    print(json.dumps(asdict(_replay(sys.argv[1]))))


if __name__ == "__main__":
    main()
