"""Servers listed per CPU-second through the OpenStack adapter, and through openstacksdk.

A local HTTP server in another process gives pages of 1,000 servers as a real Nova gives them
(pages.py). Ours is the runner's own path: token, discovery and sessions of the OpenStack
transport, all pages through the gateway, decoded into records and compared with a fleet that
knows all of them. CPU time of the listing process alone, all its threads.

    python benchmarks/list_servers.py [--servers 10000] [--light] [--json]
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import measure
import openstack
import pages
import requests

from poolsm import Fleet, PoolSpec, RunnerSettings
from poolsm.events import ListingCompleted, LogOpened, PoolDeclared, RunnerStarted
from poolsm_runners.cloud import decode
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.openstack import OpenStackTransport
from poolsm_runners.cloud.port import Deadlines

NOW_MS = 1_800_000_000_000
SDK_SERVERS = 500  # it takes milliseconds for each
OURS, PLAIN, SDK = "poolsm: gateway, records, comparison", "requests and json", "openstacksdk"
DECODE = "poolsm: decoding alone"


@contextmanager
def served(count: int) -> Iterator[str]:
    """The base URL of the pages, whose clouds.yaml is in the environment."""
    with tempfile.TemporaryDirectory() as folder:
        script = [sys.executable, pages.__file__, "--state", folder, "--servers", str(count)]
        with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                told = json.loads(process.stdout.readline())
                os.environ["OS_CLIENT_CONFIG_FILE"] = str(Path(folder) / "clouds.yaml")
                yield told["base_url"]
            finally:
                process.kill()


def declared(count: int) -> Fleet:
    """A fleet of pools for so many servers, none of them seen yet."""
    fleet = Fleet()
    settings = RunnerSettings(vm_project_id="p", infra_project_id="p")
    fleet.step(LogOpened(at_ms=NOW_MS, log_id=pages.server_id(1)))
    fleet.step(RunnerStarted(at_ms=NOW_MS, epoch=str(uuid4()), version="bench", settings=settings))
    size = pages.POOL_SIZE
    for n in range(-(-count // size)):
        spec = PoolSpec(f"pool-{n}", "bench", size, size, "worker", "m1.tiny")
        fleet.step(PoolDeclared(at_ms=NOW_MS, spec=spec, origin="benchmark"))
    return fleet


class Listing:
    """The runner's path, on one event loop."""

    def __init__(self, count: int, loop: asyncio.Runner) -> None:
        self._gateway = Gateway(OpenStackTransport("sim-vm"), Deadlines())
        self._fleet = declared(count)
        self._count = count
        self._loop = loop
        self._now_ms = NOW_MS
        first = loop.run(self._list())
        assert len(first.changed) == count, len(first.changed)
        self._fleet.step(first)

    async def _list(self) -> ListingCompleted:
        self._now_ms += 5000
        records = await self._gateway.list_servers()
        event = self._fleet.diff(records, started_ms=self._now_ms, at_ms=self._now_ms)
        assert isinstance(event, ListingCompleted), event
        assert event.total == self._count
        return event

    def again(self) -> None:
        """Everything is listed, and nothing is new."""
        event = self._loop.run(self._list())
        assert not event.changed
        assert not event.absent

    def close(self) -> None:
        """Give the connections back."""
        self._loop.run(self._gateway.close())


def plain(base_url: str, count: int) -> Callable[[], None]:
    """The same pages with requests and the standard library's JSON, into dicts."""
    session = requests.Session()
    auth = openstack.config.OpenStackConfig().get_one("sim-vm").get_session().get_auth_headers()
    session.headers.update(auth)

    def work() -> None:
        url, found = f"{base_url}{pages.DETAIL}", 0
        while url:
            body = session.get(url).json()
            found += len(body["servers"])
            url = next((link["href"] for link in body.get("servers_links", ())), "")
        assert found == count

    return work


def sdk(base_url: str) -> tuple[Callable[[], None], Callable[[int], None]]:
    """The SDK's own listing, and a way to change how many servers there are."""
    warnings.simplefilter("ignore")  # the SDK deprecates features of its own
    connection = openstack.connect("sim-vm")

    def work() -> None:
        assert sum(1 for _ in connection.compute.servers()) == SDK_SERVERS

    def resize(count: int) -> None:
        requests.get(f"{base_url}/bench/servers/{count}", timeout=60).raise_for_status()

    return work, resize


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--servers", type=int, help="10,000; 3,000 if light")
    options = parser.parse_args()
    count = options.servers or (3000 if options.light else 10_000)
    body = pages.pages(pages.PAGE, "")[""]
    with served(count) as base_url, asyncio.Runner() as loop:
        listing = Listing(count, loop)
        few, resize = sdk(base_url)
        rounds = 3 if options.light else 7
        best = measure.best_of(
            rounds,
            {
                OURS: listing.again,
                PLAIN: plain(base_url, count),
                DECODE: lambda: decode.servers_page(body),
            },
        )
        resize(SDK_SERVERS)
        few()  # discovery
        best |= measure.best_of(2, {SDK: few})
        resize(count)
        listing.again()  # and the machine is no slower than it was
        listing.close()
    amounts = {OURS: count, PLAIN: count, DECODE: pages.PAGE, SDK: SDK_SERVERS}
    rates = {name: amounts[name] / best[name] for name in amounts}
    per_server = len(body) // pages.PAGE
    measure.finish(
        options,
        f"Listing {count:,} servers in pages of {pages.PAGE:,}, {per_server:,} bytes each",
        {
            "CPU of the client, best round": (
                ("path", "servers / CPU-s", "ours is faster"),
                [(name, rate, rates[OURS] / rate) for name, rate in rates.items()],
            )
        },
        [
            measure.Figure("listed through the adapter", rates[OURS], 50_000, 10_000, unit="/s"),
            measure.Figure("adapter / openstacksdk", rates[OURS] / rates[SDK], 100, 30),
        ],
    )


if __name__ == "__main__":
    main()
