"""Time to N ACTIVE servers on a real OpenStack: poolsm, and a bare script, in turn.

Both are processes that begin with nothing and end when their own listing shows all N ACTIVE.
The bare script signs in, posts the same bodies, as many calls at a time and as many unfinished
servers as poolsm's limits allow, and lists every 5 s; it writes nothing down, checks nothing and
would lose servers if it were killed. Wall-clock time, the median of the
rounds; who begins alternates. The lab (tests/lab/openstack) must be up; it is emptied.

    python benchmarks/time_to_active.py [--servers 50] [--pools 5] [--rounds 3] [--json]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import measure
import requests

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from poolsm.spec import RunnerSettings  # noqa: E402 - the tests' tools come with the sources
from poolsm_runners.budget import Limits  # noqa: E402
from poolsm_runners.cloud.sdk import COMPUTE_MICROVERSION  # noqa: E402
from poolsm_runners.runner import LIST_EVERY_S  # noqa: E402
from tests.integration.running import RunnerProcess, pool_file, until  # noqa: E402
from tests.lab.openstack.client import LabClient  # noqa: E402
from tests.lab.openstack.settings import Lab  # noqa: E402

BAR = 1.25
PATIENCE_S = 900.0


def in_flight() -> int:
    """Servers on their way at once; poolsm also keeps a share of them for a pool to come."""
    return RunnerSettings(vm_project_id="", infra_project_id="").creations_limit


# --- the bare script, in a process of its own -------------------------------------------------


class Bare:
    """Sign in, post, list."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._session = requests.Session()
        self._session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=32))
        auth = {
            "identity": {"methods": ["password"], "password": {"user": told["user"]}},
            "scope": {"project": {"id": told["project_id"]}},
        }
        answer = self._session.post(f"{told['auth_url']}/auth/tokens", json={"auth": auth})
        answer.raise_for_status()
        catalog = answer.json()["token"]["catalog"]
        self._nova = next(
            endpoint["url"]
            for service in catalog
            if service["type"] == "compute"
            for endpoint in service["endpoints"]
            if endpoint["interface"] == "public"
        )
        self._session.headers["X-Auth-Token"] = answer.headers["X-Subject-Token"]
        self._session.headers["OpenStack-API-Version"] = f"compute {COMPUTE_MICROVERSION}"

    def run(self) -> None:
        """Until all are ACTIVE."""
        bodies, at_once = list(self._told["bodies"]), self._told["in_flight"]
        wanted, unfinished = len(bodies), 0
        next_listing = time.monotonic() + LIST_EVERY_S
        with ThreadPoolExecutor(self._told["calls"]) as calls:
            while True:
                posts, bodies = bodies[: at_once - unfinished], bodies[at_once - unfinished :]
                posted = [calls.submit(self._create, body) for body in posts]
                time.sleep(max(0.0, next_listing - time.monotonic()))
                next_listing = time.monotonic() + LIST_EVERY_S
                active = self._active()
                if active == wanted:
                    return
                for answer in posted:
                    if answer.done():
                        answer.result()  # a refused create ends the round
                unfinished = wanted - len(bodies) - active

    def _create(self, body: dict[str, Any]) -> None:
        self._session.post(f"{self._nova}/servers", json=body).raise_for_status()

    def _active(self) -> int:
        answer = self._session.get(f"{self._nova}/servers/detail")
        answer.raise_for_status()
        servers = answer.json()["servers"]
        return sum(one["status"] == "ACTIVE" for one in servers)


# --- the two sides -----------------------------------------------------------------------------


class Sides:
    """One round of either side on an empty project."""

    def __init__(self, servers: int, pools: int) -> None:
        self._lab = LabClient(Lab.from_environment())
        self._lab.wait()
        self._servers = servers
        self._pools = pools

    def bare(self) -> float:
        """Seconds from the start of the process to its end."""
        facts = self._lab.facts
        password = {"domain": {"id": "default"}, **self._login()}
        names = [f"pool-{n % self._pools}-{uuid4()}" for n in range(self._servers)]
        told = {
            "auth_url": facts["auth_url"],
            "user": password,
            "project_id": facts["projects"]["vmpool"],
            "bodies": [self._body(name) for name in names],
            "calls": min(Limits().write_slots, self._pools * Limits().per_pool),
            "in_flight": in_flight(),
        }
        began = time.monotonic()
        subprocess.run(
            [sys.executable, __file__, "--bare"], input=json.dumps(told), text=True, check=True
        )
        return time.monotonic() - began

    def _login(self) -> dict[str, Any]:
        auth = self._lab.connect("lab-manager-vmpool").config.config["auth"]
        return {"name": auth["username"], "password": auth["password"]}

    def _body(self, name: str) -> dict[str, Any]:
        facts = self._lab.facts
        metadata = {
            "user_id": "bench",
            "serverpool_id": name[:6],
            "min_vm": str(self._servers),
            "max_vm": str(self._servers),
            "host": "OpenStack",
            "network_uuid": facts["networks"]["lab-net"],
            "reattrib": "false",
            "poolsm_log": str(uuid4()),
            "poolsm_command": str(uuid4()),
        }
        server = {
            "name": name,
            "imageRef": facts["images"]["vmpool"]["worker-image"],
            "flavorRef": facts["flavors"]["m1.tiny"],
            "networks": [{"uuid": facts["networks"]["lab-net"]}],
            "config_drive": True,
            "metadata": metadata,
        }
        return {"server": server}

    def poolsm(self) -> float:
        """Seconds from the start of the process to the listing that shows all ACTIVE."""
        size = self._servers // self._pools
        pools = [
            {
                "id": f"pool-{n}",
                "user": "bench",
                "image": "worker-image",
                "flavor": "m1.tiny",
                "networks": ["lab-net"],
                "min_vm": size,
                "max_vm": size,
            }
            for n in range(self._pools)
        ]
        with tempfile.TemporaryDirectory() as folder:
            runner = RunnerProcess(
                Path(folder),
                "lab-manager-vmpool",
                "lab-manager-infra",
                clouds_yaml=str(self._lab.facts["clouds_yaml"]),
                files=[pool_file(Path(folder) / "pools.toml", *pools)],
            )
            runner.start()
            began = time.monotonic()
            try:
                runner.wait_listed()
                until(
                    "all ACTIVE",
                    lambda: sum(pool.ready for pool in runner.pools().values()) == self._servers,
                    PATIENCE_S,
                )
                took_s = time.monotonic() - began
                runner.terminate()
            finally:
                runner.end()
        return took_s

    def wipe(self) -> None:
        """Behind a round."""
        self._lab.wipe("vmpool")


def main() -> None:
    if sys.argv[1:] == ["--bare"]:
        Bare(json.load(sys.stdin)).run()
        return
    parser = measure.parser(__doc__)
    parser.add_argument("--servers", type=int, default=50, help="a multiple of the pools")
    parser.add_argument("--pools", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="1 if light")
    options = parser.parse_args()
    sides = Sides(options.servers, options.pools)
    sides.wipe()
    times: dict[str, list[float]] = {"poolsm": [], "bare": []}
    for n in range(1 if options.light else options.rounds):
        for name in sorted(times, reverse=n % 2 == 0):
            try:
                times[name].append(getattr(sides, name)())
            finally:
                sides.wipe()
    ratio = median(times["poolsm"]) / median(times["bare"])
    measure.finish(
        options,
        f"Time to {options.servers} ACTIVE servers in {options.pools} pools, on the lab",
        {
            "wall-clock seconds": (
                ("side", "median", "rounds"),
                [
                    (name, median(all_), ", ".join(f"{one:.1f}" for one in all_))
                    for name, all_ in times.items()
                ],
            )
        },
        [measure.Figure("poolsm / bare script", ratio, BAR, 2 * BAR, less_is_better=True)],
    )


if __name__ == "__main__":
    main()
