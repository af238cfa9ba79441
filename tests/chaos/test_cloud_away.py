"""A whole cloud that goes away and comes back: few calls meanwhile, flat memory, soon at rest.

Short on the served cloud, with a loop in a fraction of its time. POOLSM_AWAY_LAB_S=600 runs it on
the real OpenStack with the product's own times, in all three ways at once.
"""

import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attrs import frozen

from poolsm.conditions import concerns
from tests.chaos.served_churn import COMMON
from tests.chaos.sides import LabSide, ServedSide
from tests.chaos.town import Town, free_address, requests_made
from tests.chaos.towns import QUICK
from tests.integration.conftest import empty, lab
from tests.integration.running import RunnerProcess, until
from tests.integration.served import INFRA, VM, serving
from tests.lying.lies import Lie
from tests.lying.proxied import lying

__all__ = ["empty", "lab"]  # fixtures

AWAY_LAB_S = float(os.environ.get("POOLSM_AWAY_LAB_S", "0"))
WAYS = {
    "refused": (Lie(kind="refuse", status=503, html=True),),
    "no connection": None,
    "hangs": (Lie(kind="hang"),),
}
FLAT_KIB = 6_000  # what a process may grow by while nothing happens


@frozen
class Absence:
    """Figures of one absence. Calls are the runner's own count, answered or not."""

    way: str
    away_s: float
    calls: int
    calls_last_half: int
    rss_kib: tuple[int, int]
    files: tuple[int, int]
    log_bytes: int
    recovered_s: float
    conditions: tuple[str, ...]

    def __str__(self) -> str:
        """A row of the table in the docs."""
        return (
            f"| {self.way} | {self.calls} | {self.calls_last_half / self.away_s * 120:.1f} | "
            f"{self.rss_kib[0] / 1024:.1f} -> {self.rss_kib[1] / 1024:.1f} MiB | "
            f"{self.files[0]} -> {self.files[1]} | {self.log_bytes} | {self.recovered_s:.1f} s | "
            f"{', '.join(self.conditions)} |"
        )


def rss_kib(pid: int) -> int:
    (line,) = [
        one
        for one in Path(f"/proc/{pid}/status").read_text().splitlines()
        if one.startswith("VmRSS:")
    ]
    return int(line.split()[1])


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def size(log: Path) -> int:
    return sum(part.stat().st_size for part in log.parent.glob(f"{log.name}*"))


def absent(town: Town, way: str, away_s: float, within_s: float) -> Absence:
    """Let the cloud go away, and say what the runner did meanwhile."""
    lies = WAYS[way]
    pid, log = town.runner.pid, town.runner.log
    begun = requests_made(town.metrics_url)
    before = (rss_kib(pid), open_files(pid), size(log))
    town.proxied.tell(*(lies or ()))
    if lies is None:
        town.proxied.shut()
    began, halfway = time.monotonic(), 0.0
    seen: set[str] = set()
    settled: tuple[int, int] | None = None
    while time.monotonic() - began < away_s:
        time.sleep(min(1.0, away_s / 20))
        assert town.runner.running
        fleet = town.runner.standing().fleet
        seen |= {f"{one.type} ({one.reason})" for one in concerns(fleet.conditions)}
        if settled is None and time.monotonic() - began > away_s / 2:
            settled = (rss_kib(pid), open_files(pid))
            halfway = requests_made(town.metrics_url)
    assert settled is not None
    made = requests_made(town.metrics_url)
    after = (rss_kib(pid), open_files(pid))
    assert not town.proxied.exchanges() or town.runner.running
    town.proxied.truth()
    town.proxied.open()
    recovered_s = town.settle(within_s)
    assert after[0] - settled[0] < FLAT_KIB, "memory grows while the cloud is away"
    assert after[1] <= settled[1] + 4, "files stay open"
    return Absence(
        way,
        away_s,
        round(made - begun),
        round(made - halfway),
        (before[0], after[0]),
        (before[1], after[1]),
        size(log) - before[2],
        recovered_s,
        tuple(sorted(seen)),
    )


@pytest.mark.timeout(150)
@pytest.mark.parametrize("way", WAYS)
def test_a_cloud_that_is_away_is_asked_seldom_and_found_again_soon(tmp_path, way):
    address = free_address()
    with (
        serving(tmp_path / "cloud", options=("--seed", "5", "--speed", "4")) as cloud,
        lying(tmp_path / "proxy", cloud.clouds_yaml) as proxied,
    ):
        runner = RunnerProcess(
            tmp_path, VM, INFRA, clouds_yaml=proxied.clouds_yaml, times=QUICK, metrics=address
        )
        try:
            runner.start()
            runner.wait_listed()
            town = Town(tmp_path, ServedSide(cloud), proxied, runner,
                        f"http://{address}/metrics", COMMON)  # fmt: skip
            town.declare()
            town.settle()
            found = absent(town, way, 20.0, within_s=60)
            print(found)
            assert town.proxied.writes()
            # a loop that is not told to wait would list 33 times and more
            assert found.calls <= 60
            assert "ListingFailed (CallFailed)" in found.conditions
            runner.terminate()
        finally:
            runner.end()


@pytest.mark.lab
@pytest.mark.skipif(not AWAY_LAB_S, reason="takes as long as POOLSM_AWAY_LAB_S says")
@pytest.mark.timeout(AWAY_LAB_S + 600)
def test_a_real_cloud_is_away_for_minutes(empty, tmp_path):
    with ThreadPoolExecutor(len(WAYS)) as pool:
        runs = [pool.submit(_on_lab, empty, tmp_path / way.replace(" ", "-"), way) for way in WAYS]
        found = [run.result() for run in runs]
    for one in found:
        print(one)
        assert one.calls_last_half / AWAY_LAB_S * 120 <= 12, "calls a minute"
        assert "ListingStale (TooOld)" in one.conditions


class _OwnSide(LabSide):
    """The lab's servers of our pools alone: others are at work there, too."""

    def live(self):
        return [one for one in super().live() if one.pool.startswith(self._prefix)]


def _on_lab(lab, folder, way):
    folder.mkdir()
    prefix, address = f"away{uuid.uuid4().hex[:6]}-", free_address()
    common = {"image": "worker-image", "networks": ["lab-net"], "key_name": "lab-key"}
    with lying(folder / "proxy", lab.facts["clouds_yaml"]) as proxied:
        runner = RunnerProcess(
            folder,
            "lab-manager-vmpool",
            "lab-manager-infra",
            clouds_yaml=proxied.clouds_yaml,
            metrics=address,
        )
        try:
            runner.start()
            runner.wait_listed(120)
            side = _OwnSide(lab, prefix)
            town = Town(folder, side, proxied, runner, f"http://{address}/metrics", common, prefix)
            town.declare()
            town.settle(120)
            creates = sum(side.creates().values())
            found = absent(town, way, AWAY_LAB_S, within_s=240)
            assert sum(side.creates().values()) == creates, "servers were made for nothing"
            until("silence", lambda: not town.unrest(), 30)
            runner.terminate()
            return found
        finally:
            runner.end()
