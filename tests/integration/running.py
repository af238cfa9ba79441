"""A runner in a process of its own, and what a test does to it: ask, end, kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from poolsm.errors import PoolsmError
from poolsm.shapes import PoolView, VmView
from poolsm_runners import control, session
from poolsm_runners.control_requests import Apply, Envelope, Request, Result, Standing, Status
from poolsm_runners.poolfile import read_pool_file

ROOT = Path(__file__).resolve().parents[2]
Times = Mapping[str, Mapping[str, float]]
ORIGIN = "test"


class WaitedInVainError(AssertionError):
    """Something did not come about in time."""


class RunnerProcess:
    """One runner on one log; it may be started, ended and killed any number of times.

    Attributes:
        log: its log.
        times: settings, options and deadlines that differ from the product's.
    """

    def __init__(
        self,
        folder: Path,
        cloud: str,
        infra_cloud: str = "",
        *,
        clouds_yaml: str,
        files: Iterable[Path] = (),
        times: Times | None = None,
        dry_run: bool = False,
        metrics: str = "",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "fleet.db"
        self.times: Times = times or {}
        self._told = {
            "log": str(self.log),
            "cloud": cloud,
            "infra_cloud": infra_cloud,
            "files": [str(file) for file in files],
            "dry_run": dry_run,
            "metrics": metrics,
        }
        self._clouds_yaml = clouds_yaml
        self._output = folder / f"runner{'-dry' if dry_run else ''}.out"
        self._lines = self._output.with_suffix(".log")  # a file of its own: two writers mix lines
        self._process: subprocess.Popen[bytes] | None = None
        self._began = (0, 0)  # where this run's output and log lines begin
        self.started_s = 0.0

    # --- its life ---------------------------------------------------------------------------

    def start(self, hash_seed: int | None = None) -> None:
        """Start it; its log lines and the witness's go to one file."""
        assert self._process is None
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OS_")},
            "OS_CLIENT_CONFIG_FILE": self._clouds_yaml,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}",
            "PYTHONHASHSEED": "random" if hash_seed is None else str(hash_seed),
        }
        told = json.dumps({**self._told, "times": self.times})
        with self._output.open("ab") as output, self._lines.open("ab") as lines:
            self._began = (output.tell(), lines.tell())
            self.started_s = time.time()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.entry", told],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=lines,
            )

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def terminate(self, within_s: float = 30.0) -> float:
        """SIGTERM; the seconds until it ended, which it must do with exit status 0."""
        assert self._process is not None
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        status = self.wait(within_s)
        assert status == 0, self.output()
        return time.monotonic() - began

    def wait(self, within_s: float) -> int:
        """The exit status."""
        assert self._process is not None
        status = self._process.wait(within_s)
        self._process = None
        return status

    def end(self) -> None:
        """Whatever it does, it is gone afterwards; for the end of a test."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process = None

    # --- what it says -----------------------------------------------------------------------

    def output(self) -> str:
        """What this run wrote so far, log lines last."""
        return self._written(self._output, self._began[0]) + self._written(
            self._lines, self._began[1]
        )

    @staticmethod
    def _written(path: Path, began: int) -> str:
        with path.open("rb") as file:
            file.seek(began)
            return file.read().decode(errors="replace")

    def said(self, what: str) -> list[dict[str, Any]]:
        """The witness's lines of one kind, of this run."""
        lines = self._objects(self._output, self._began[0])
        return [line for line in lines if line.get("what") == what]

    def _objects(self, path: Path, began: int) -> list[dict[str, Any]]:
        """The lines that are JSON and whole: the last may be half written."""
        lines = self._written(path, began).splitlines(keepends=True)
        return [json.loads(line) for line in lines if line[:1] == "{" and line[-1:] == "\n"]

    def log_lines(self, after: int = 0) -> list[dict[str, Any]]:
        """The product's own log lines of this run, beginning with the line of that number."""
        return self._objects(self._lines, self._began[1])[after:]

    def anomalies(self) -> list[str]:
        """Kinds of the anomalies of all runs."""
        lines = self._objects(self._output, 0)
        return [line["kind"] for line in lines if line.get("what") == "anomaly"]

    def wait_listed(self, within_s: float = 30.0) -> float:
        """Until the first listing is complete; seconds since the start of the process."""
        until("the first listing", lambda: bool(self.said("listed")) or not self.running, within_s)
        assert self.running, self.output()
        return float(self.said("listed")[0]["at_s"]) - self.started_s

    # --- what one asks it -------------------------------------------------------------------

    def ask(self, request: Request) -> Result:
        """Have a request carried out, by the runner or, if none runs, in its log."""
        result, _ = session.perform(self.log, request, origin=ORIGIN)
        return result

    def try_to_ask(self, request: Request, timeout_s: float = 5.0) -> Result | None:
        """The same of a runner that may be killed at any moment; None without an answer."""
        with suppress(PoolsmError, OSError):
            return control.call(self.log, Envelope(request, ORIGIN), timeout_s=timeout_s)
        return None

    def apply(self, file: Path) -> None:
        """Declare what a pool file says, as `poolsm pools apply` does."""
        declared = read_pool_file(file)
        self.ask(Apply(declared.pools, declared.configs))

    def standing(self, *, vms: bool = False) -> Standing:
        """The fleet as the runner sees it."""
        found = self.ask(Status(vms=vms))
        assert isinstance(found, Standing)
        return found

    def pools(self) -> dict[str, PoolView]:
        """Its pools by their serverpool id."""
        return {pool.key.serverpool_id: pool for pool in self.standing().fleet.pools}

    def pool(self, name: str) -> PoolView:
        """One pool."""
        return self.pools()[name]

    def vms(self, pool: str = "") -> list[VmView]:
        """The VMs of a pool, or of all."""
        found = self.standing(vms=True).vms
        return [vm for vm in found if pool in ("", vm.pool.serverpool_id)]


def until(what: str, ready: Callable[[], object], seconds: float, pause_s: float = 0.2) -> None:
    """Poll; a wait in vain names what was waited for."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise WaitedInVainError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause_s)


def pool_file(path: Path, *pools: Mapping[str, object]) -> Path:
    """Write a pool file; each pool is a table of its keys."""
    lines: list[str] = []
    for pool in pools:
        lines.append("[[pool]]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in pool.items()]
        lines.append("")
    path.write_text("\n".join(lines))
    return path
