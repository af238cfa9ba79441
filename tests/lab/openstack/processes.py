"""Start and stop the lab's processes, and only those.

A process id alone names nothing for sure: it is given out again. Each record therefore
holds the process id, its start tick and the boot it was seen in, and no signal is sent
to a process that does not match all three. The children of a service are those in its
session, noted while the service still lives; what is left of a service that ended by
itself is found by a mark in its environment that names this lab's directory.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.lab.openstack.settings import Lab, LabError, made, read_json
from tests.lab.openstack.talk import say

MARK = "POOLSM_LAB_OWNER"
PROC = Path("/proc")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# These flush something when told to end; the Python services keep all in the database.
SLOW_TO_END = ("mysql", "amqp", "epmd")
PATIENCE = 2.0
LONG_PATIENCE = 20.0


@dataclass(frozen=True)
class Seen:
    """One process, told apart from every other one that has had its id."""

    pid: int
    start: int

    def alive(self) -> bool:
        return start_tick(self.pid) == self.start

    def signal(self, number: signal.Signals) -> None:
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def start_tick(pid: int) -> int | None:
    """Clock tick at which the process started; None if it is gone or a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name, which may hold anything."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


class Processes:
    """The processes of one lab, by name; what is running is read from the records."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.records = lab.run / "processes"
        self._one_offs: list[subprocess.Popen[bytes]] = []

    # ------------------------------------------------------------------ starting
    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """The caller's environment without what would steer OpenStack or Python."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("OS_") and name not in ("PYTHONPATH", "PYTHONHOME")
        }
        return {
            **kept,
            "PATH": f"{self.lab.venv / 'bin'}:{SYSTEM_PATH}",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            MARK: str(self.lab.directory),
            **more,
        }

    def _launch(
        self, name: str, argv: Sequence[object], more: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """In a session of its own: no terminal and no process group of the caller."""
        with (made(self.lab.log) / f"{name}.out").open("ab") as out:
            return subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment(more),
                cwd=self.lab.run,
                start_new_session=True,
            )

    def start(
        self, name: str, argv: Sequence[object], more: Mapping[str, str] | None = None
    ) -> None:
        """Start a service and record it."""
        process = self._launch(name, argv, more or {})
        record = {
            "pid": process.pid,
            "start": start_tick(process.pid),
            "boot": _boot(),
            "at": time.time(),
        }
        (made(self.records) / f"{name}.json").write_text(json.dumps(record) + "\n")

    def begin(
        self, name: str, argv: Sequence[object], more: Mapping[str, str] | None = None
    ) -> Callable[[], None]:
        """Start a command that ends by itself; call the result to wait for it."""
        process = self._launch(name, argv, more or {})
        self._one_offs.append(process)
        began = time.monotonic()

        def finish() -> None:
            if process.wait():
                self.fail(f"{name} ended with {process.returncode}; see {self.lab.log}/{name}.out")
            say(f"  {name}: {time.monotonic() - began:.1f} s")

        return finish

    def perform(
        self, name: str, argv: Sequence[object], more: Mapping[str, str] | None = None
    ) -> None:
        """Start a command and wait for its end."""
        self.begin(name, argv, more)()

    # ------------------------------------------------------------------- looking
    def names(self) -> list[str]:
        """Every recorded service, in the order of their starts."""
        if not self.records.is_dir():
            return []
        files = self.records.glob("*.json")
        return sorted((f.stem for f in files), key=lambda name: (self.started_at(name), name))

    def seen(self, name: str) -> Seen | None:
        """The running process of a service, if it is the one that was started."""
        record = read_json(self.records / f"{name}.json")
        pid, start = record.get("pid"), record.get("start")
        if not isinstance(pid, int) or not isinstance(start, int) or record["boot"] != _boot():
            return None
        found = Seen(pid, start)
        return found if found.alive() else None

    def started_at(self, name: str) -> float:
        """Seconds since the epoch; 0 if it was never started."""
        at = read_json(self.records / f"{name}.json").get("at")
        return at if isinstance(at, float) else 0.0

    def running(self) -> list[str]:
        return [name for name in self.names() if self.seen(name)]

    def memory(self, name: str) -> tuple[int, int]:
        """(processes, proportional memory in KiB) of a service with its children."""
        leader = self.seen(name)
        count = size = 0
        for one in [] if leader is None else _session(leader):
            with suppress(OSError):
                rollup = (PROC / str(one.pid) / "smaps_rollup").read_text()
                found = re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)
                count, size = count + 1, size + (int(found[1]) if found else 0)
        return count, size

    def wait_for(
        self, what: str, ready: Callable[[], bool], seconds: float, needs: Iterable[str] = ()
    ) -> None:
        """Until `ready`; fails at once when a service it needs has ended."""
        needs = tuple(needs)
        end = time.monotonic() + seconds
        while not ready():
            for name in needs:
                if self.seen(name) is None:
                    self.fail(f"{name} ended while waiting for {what}; see {self.lab.log}/{name}.*")
            if time.monotonic() > end:
                self.fail(f"{what}: not ready after {seconds:.0f} s")
            time.sleep(0.1)

    # ------------------------------------------------------------------ stopping
    def fail(self, why: str) -> NoReturn:
        """Show what the logs say."""
        now = time.time()
        for path in sorted(self.lab.log.glob("*")):
            if now - path.stat().st_mtime < 60:
                text = path.read_text(errors="replace")
                if "ERROR" in text or "Traceback" in text:
                    say(f"--- {path.name}")
                    for line in text.splitlines()[-4:]:
                        say(f"    {line[:240]}")
        raise LabError(why)

    def stop_all(self) -> int:
        """End everything this lab started; returns how many processes that were."""
        for process in self._one_offs:
            if process.poll() is None:
                process.kill()
        names = self.names()[::-1]
        leaders = {name: seen for name in names if (seen := self.seen(name))}
        families = {name: _session(leader) for name, leader in leaders.items()}
        quick = [leader for name, leader in leaders.items() if name not in SLOW_TO_END]
        slow = [leader for name, leader in leaders.items() if name in SLOW_TO_END]
        ended = self._end(quick, PATIENCE) + self._end(slow, LONG_PATIENCE)
        left = [one for family in families.values() for one in family if one.alive()]
        ended += self._end([*left, *self._marked()], PATIENCE)
        for name in names:
            (self.records / f"{name}.json").unlink(missing_ok=True)
        return ended

    @staticmethod
    def _end(group: list[Seen], patience: float) -> int:
        """Ask, wait, then force."""
        for one in group:
            one.signal(signal.SIGTERM)
        end = time.monotonic() + patience
        while any(_alive_after_reaping(one) for one in group) and time.monotonic() < end:
            time.sleep(0.05)
        for one in group:
            one.signal(signal.SIGKILL)
        while any(_alive_after_reaping(one) for one in group):
            time.sleep(0.02)  # SIGKILL cannot be refused, only be late
        return len(group)

    def _marked(self) -> list[Seen]:
        """Processes whose environment says that this lab started them."""
        mark = f"{MARK}={self.lab.directory}".encode()
        found = []
        for pid in _pids():
            with suppress(OSError):
                start = start_tick(pid)
                environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
                if start is not None and mark in environment and pid != os.getpid():
                    found.append(Seen(pid, start))
        return found


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _session(leader: Seen) -> list[Seen]:
    """The process and its descendants that stayed in its session."""
    found = []
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None and int(fields[3]) == leader.pid and fields[0] not in "ZX":
            found.append(Seen(pid, int(fields[19])))
    return found


def _alive_after_reaping(one: Seen) -> bool:
    with suppress(ChildProcessError):  # not our child: its own parent reaps it
        os.waitpid(one.pid, os.WNOHANG)
    return one.alive()
