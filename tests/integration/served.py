"""The simulated cloud in a process of its own, and its /sim side, where nothing is hidden."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from poolsm.testing import CallRecord, CloudConfig, Fault, ServerStory
from tests.integration.running import ROOT

GONE = "gone"
VM = "sim-vm"
INFRA = "sim-infra"


class ServedCloud:
    """A running served cloud."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.clouds_yaml = str(ready["clouds_yaml"])
        self._url = str(ready["sim_url"])

    def sim(self, method: str = "GET", path: str = "", value: object = None) -> bytes:
        """One request to /sim."""
        data = None if value is None else msgspec.json.encode(value)
        request = urllib.request.Request(self._url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
            return body

    def creates(self) -> dict[str, int]:
        """Servers ever made for each create command."""
        return msgspec.json.decode(self.sim(path="/creates"), type=dict[str, int])

    def stories(self) -> list[ServerStory]:
        """Every server that the VM project ever had, the oldest first."""
        body = self.sim(path="/servers?project=vm")
        return msgspec.json.decode(body, type=list[ServerStory])

    def live(self, pool: str = "") -> list[ServerStory]:
        """The servers that exist, of one pool by their tags, or all."""
        there = [story for story in self.stories() if story.status != GONE]
        return [s for s in there if pool in ("", s.metadata.get("serverpool_id"))]

    def writes(self) -> list[str]:
        """Every call that could change something."""
        calls = msgspec.json.decode(self.sim(path="/writes"), type=list[CallRecord])
        return [f"{c.at_ms} {c.operation} {c.path} {c.status}" for c in calls]

    def calls(self) -> dict[str, int]:
        """How many calls there were of each operation."""
        counts: dict[str, int] = {}
        for row in json.loads(self.sim())["calls"]:
            counts[row["operation"]] = counts.get(row["operation"], 0) + row["count"]
        return counts

    def set_faults(self, *faults: Fault) -> None:
        """Replace all faults."""
        self.sim("PUT", "/faults", faults)

    def heal(self) -> None:
        """No faults any more."""
        self.sim("DELETE", "/faults")

    def expire_tokens(self) -> None:
        """All tokens are bad from now on."""
        self.sim("POST", "/tokens/expire")


@contextmanager
def serving(
    folder: Path, config: CloudConfig | None = None, options: Iterable[str] = ()
) -> Iterator[ServedCloud]:
    """Start a served cloud, and end it afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.json"
    file.write_bytes(msgspec.json.encode(config or CloudConfig()))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "poolsm_runners.cloud.served"),
            *("--config", str(file), "--state", str(folder), *options),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}"},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield ServedCloud(json.loads(process.stdout.readline()))
    finally:
        process.terminate()
        process.wait(15)
        if process.stdout is not None:
            process.stdout.close()
