"""A lying proxy as a process of its own, in front of any cloud of a clouds.yaml."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml
from attrs import frozen

from tests.integration.running import ROOT
from tests.lying.lies import Lie
from tests.lying.proxy import Exchange

READING = ("GET", "HEAD")


@frozen
class Proxied:
    """A cloud as a client sees it through the proxy.

    Attributes:
        clouds_yaml: the clouds of the original file, signing in at the proxy.
        control_url: where the proxy is told what to do.
    """

    clouds_yaml: str
    control_url: str

    def _ask(self, method: str, path: str, value: object = None) -> bytes:
        data = None if value is None else msgspec.json.encode(value)
        request = urllib.request.Request(self.control_url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
            return body

    def tell(self, *lies: Lie) -> None:
        """Lie like this from now on, and no longer as before."""
        self._ask("PUT", "/lies", lies)

    def truth(self) -> None:
        """No lies any more."""
        self._ask("DELETE", "/lies")

    def happened(self) -> int:
        """How often the lies that are told have happened."""
        return sum(row["happened"] for row in json.loads(self._ask("GET", "/lies")))

    def shut(self) -> None:
        """Connections are refused from now on."""
        self._ask("POST", "/close")

    def open(self) -> None:
        """They are taken again."""
        self._ask("POST", "/open")

    def set_page_limit(self, limit: int) -> None:
        """Have Nova list so many servers a page."""
        self._ask("PUT", "/page-limit", limit)

    def exchanges(self, after: int = 0) -> list[Exchange]:
        """What passed, the oldest first."""
        body = self._ask("GET", f"/exchanges?after={after}")
        return msgspec.json.decode(body, type=list[Exchange])

    def writes(self) -> list[Exchange]:
        """What reached the cloud and could change something there."""
        return [
            one
            for one in self.exchanges()
            if one.forwarded and one.method not in READING and one.service != "identity"
        ]


@contextmanager
def lying(folder: Path, clouds_yaml: str | Path, *, seed: int = 0) -> Iterator[Proxied]:
    """Start a proxy in front of a cloud, and end it afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    clouds: dict[str, Any] = yaml.safe_load(Path(clouds_yaml).read_text())
    (auth_url,) = {cloud["auth"]["auth_url"] for cloud in clouds["clouds"].values()}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.lying.proxy", "--auth-url", auth_url, "--seed", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}"},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        for cloud in clouds["clouds"].values():
            cloud["auth"]["auth_url"] = ready["auth_url"]
        file = folder / "clouds.yaml"
        file.write_text(yaml.safe_dump(clouds))
        yield Proxied(str(file), ready["control_url"])
    finally:
        process.terminate()
        process.wait(15)
        if process.stdout is not None:
            process.stdout.close()
