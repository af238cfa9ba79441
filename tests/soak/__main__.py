"""``python -m tests.soak``: `poolsm run` on the OpenStack lab for hours, under churn and at rest.

Hours of assignments, releases, changed sizes, failing boots and meddling hands; then pools as in
the beginning, held against the cloud's own account; then rest, in which no command may fall; then
the pools are drained, and the log is replayed. Samples go to FOLDER/samples.jsonl as they are
taken, the figures to standard output as JSON. Exit status 1: something did not hold.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

from attrs import asdict

from poolsm.commands import COMMAND_ID
from poolsm.replay import replay
from poolsm_runners import control, session
from poolsm_runners.control_requests import Standing, Status
from poolsm_runners.log import sqlite
from tests.chaos.killing import Wanted, reckon, unrest
from tests.chaos.sides import LabSide
from tests.integration.running import ROOT, until
from tests.lab.openstack import client
from tests.soak.churn import Churn
from tests.soak.measures import Calls, Sample, sample

SAMPLE_EVERY_S = 30.0
SETTLE_S = 600.0
RUN = "from poolsm_runners.cli import main; main()"


class Asked:
    """The runner as the reckoning of the chaos tests asks it."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def standing(self, *, vms: bool = False) -> Standing:
        found, _ = session.perform(self._log, Status(vms=vms))
        assert isinstance(found, Standing)
        return found

    def vms(self) -> Any:
        return self.standing(vms=True).vms


class Soak:
    """One run: its process, its samples, its calls."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True)
        self.log = folder / "fleet.db"
        self.lab = client.start()
        self.lab.reset_quota()
        self.lab.wipe()
        self.churn = Churn(self.log, self.lab, folder, seed)
        self.asked = Asked(self.log)
        self.samples: list[Sample] = []
        self._folder = folder
        self._calls = Calls(self.lab)
        self._began = time.monotonic()
        self._output: TextIO = (folder / "runner.jsonl").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, "run", "--json", "--log", str(self.log)],
            cwd=ROOT,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("OS_")},
                "OS_CLIENT_CONFIG_FILE": str(self.lab.facts["clouds_yaml"]),
                "OS_CLOUD": "lab-manager-vmpool",
                "INFRA_OS_CLOUD": "lab-manager-infra",
                "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}",
            },
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def begin(self) -> None:
        """Until the runner listens, then declare."""
        path = control.socket_path(self.log)
        until("the runner listens", lambda: path.exists() or self.process.poll() is not None, 60)
        until("it has its cloud", self._declared, 120)

    def _declared(self) -> bool:
        try:
            self.churn.declare()
        except control.RunnerAwayError:
            return False
        return True

    def live(self, seconds: float, *, churning: bool) -> dict[str, Any]:
        """Let it run for so long; what it cost."""
        self._calls.take()
        first = self._sample()
        calls: Counter[str] = Counter()
        began = sampled = time.monotonic()
        while time.monotonic() - began < seconds:
            if churning:
                self.churn.step()
            time.sleep(1.0)
            assert self.process.poll() is None, "the runner ended"
            if time.monotonic() - sampled >= SAMPLE_EVERY_S:
                sampled = time.monotonic()
                self._sample()
        last = self._sample()
        calls += self._calls.take()
        return _cost(first, last, self.samples, calls)

    def _sample(self) -> Sample:
        found = sample(self.process.pid, self.log, time.monotonic() - self._began)
        self.samples.append(found)
        with (self._folder / "samples.jsonl").open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        return found

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._output.close()


def _cost(
    first: Sample, last: Sample, samples: list[Sample], calls: Counter[str]
) -> dict[str, Any]:
    within = [one for one in samples if first.at_s <= one.at_s <= last.at_s]
    seconds = last.at_s - first.at_s
    tenth = max(len(within) // 10, 1)
    return {
        "seconds": round(seconds),
        "events": last.events - first.events,
        "commands": last.commands - first.commands,
        "log_bytes_per_hour": round((last.log_bytes - first.log_bytes) / seconds * 3600),
        "log_bytes": last.log_bytes,
        "rss_mib": {
            "first tenth": _mib(within[:tenth]),
            "last tenth": _mib(within[-tenth:]),
            "most": _mib([max(within, key=lambda one: one.rss_bytes)]),
        },
        "descriptors": {"least": min(s.descriptors for s in within),
                        "most": max(s.descriptors for s in within)},
        "threads": {"least": min(s.threads for s in within),
                    "most": max(s.threads for s in within)},
        "cpu_percent": round((last.cpu_s - first.cpu_s) / seconds * 100, 2),
        "calls_per_minute": {
            kind: round(count / seconds * 60, 3) for kind, count in sorted(calls.items())
        },
    }  # fmt: skip


def _mib(samples: list[Sample]) -> float:
    return round(sum(one.rss_bytes for one in samples) / len(samples) / 2**20, 1)


class SoakSide(LabSide):
    """Every server that the project ever had is of this run; the claimed ones have other names."""

    def creates(self) -> Counter[str]:
        rows = [*self._lab.servers(), *self._lab.servers(deleted="true")]
        created = {
            row["id"]: row["metadata"].get(COMMAND_ID) or str(row["name"])[-36:] for row in rows
        }
        return Counter(created.values())


def _reckon(soak: Soak, wanted: list[Wanted]) -> str:
    """The cloud's own account."""
    side = SoakSide(soak.lab, "")
    until("rest", lambda: not unrest(soak.asked, side, wanted), SETTLE_S, 2.0)  # type: ignore[arg-type]
    return reckon(soak.asked, side, wanted, silence_s=5.0)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("folder", type=Path, help="new; for the log, samples, output")
    parser.add_argument("--churn-min", type=float, default=120.0)
    parser.add_argument("--rest-min", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    soak = Soak(told.folder, told.seed)
    figures: dict[str, Any] = {}
    try:
        soak.begin()
        figures["churn"] = soak.live(told.churn_min * 60, churning=True)
        figures["deeds"] = dict(sorted(soak.churn.done.items()))
        print(json.dumps(figures, indent=2), file=sys.stderr, flush=True)
        figures["account"] = _reckon(soak, soak.churn.end())
        figures["rest"] = soak.live(told.rest_min * 60, churning=False)
        assert not figures["rest"]["commands"], "a command fell at rest"
        soak.churn.remove()
        until("drained", lambda: not soak.lab.servers(), SETTLE_S, 2.0)
        until("forgotten", lambda: not soak.asked.standing().fleet.pools, 60, 2.0)
    finally:
        status = soak.stop()
        (told.folder / "figures.json").write_text(json.dumps(figures, indent=2))
    result = replay(sqlite.open_read_only(soak.log).read())
    figures["replay"] = f"{result.events} events, {result.commands} commands"
    assert result.same, "\n".join(result.difference.describe() if result.difference else [])
    assert status == 0, status
    (told.folder / "figures.json").write_text(json.dumps(figures, indent=2))
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
