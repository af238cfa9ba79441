"""What `make run` shows: a Friday evening in Paris on the simulated cloud, ten times as fast.

The example's pools fill, after ten seconds carol asks for a machine, and after 24 seconds it is
midnight: an off-day begins, and that pool's machines go to sleep. After a minute it ends, shows
how things stand, and checks that a replay of the log decides everything again just so.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

POOLS = Path(__file__).with_name("pools.toml")
SECONDS = 60
ASSIGN_AFTER_S = 10


def poolsm(*arguments: str) -> list[str]:
    """The command line of one poolsm command."""
    code = "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()"
    return [sys.executable, "-c", code, *arguments]


def main() -> int:
    """Run it; the exit code is the replay's."""
    with tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/poolsm.db"
        ask = poolsm("assign", "exam-room", "--to", "carol", "--request-id", "seat-7", "--log", log)
        timer = threading.Timer(
            ASSIGN_AFTER_S,
            subprocess.run,
            ([*ask],),
            {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL},
        )
        timer.start()
        run = subprocess.run(
            poolsm(
                "run", str(POOLS), "--cloud", "sim", "--log", log,
                "--speed", "10", "--start-at", "2026-06-05T21:56:00Z", "--for", str(SECONDS),
            ),
            check=False,
        )  # fmt: skip
        timer.cancel()
        if run.returncode:
            return run.returncode
        print()
        for command in (("status", "--log", log), ("replay", "--log", log)):
            print(f"$ poolsm {command[0]}")
            code = subprocess.run(poolsm(*command), check=False).returncode
            print()
        return code


if __name__ == "__main__":
    sys.exit(main())
