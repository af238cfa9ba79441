"""What happens to a fleet in some hours: people, an operator, a bad image, the cloud.

Each kind of deed keeps its own rhythm; a seed decides who does what, not when the cloud answers.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from poolsm.errors import PoolsmError
from poolsm_runners import control
from poolsm_runners.control_requests import (
    Apply,
    Assign,
    Envelope,
    Release,
    Remove,
    Request,
    Reset,
    Result,
)
from poolsm_runners.poolfile import read_pool_file
from tests.chaos.killing import Wanted
from tests.integration.running import pool_file
from tests.lab.openstack.client import LabClient

ORIGIN = "soak"
COMMON = {"user": "soak", "image": "worker-image", "networks": ["lab-net"]}
WARM = {**COMMON, "id": "pool_vms", "user": "admin", "flavor": "m1.tiny", "min_vm": 4}
DRAWN = {**COMMON, "id": "drawn", "flavor": "m1.tiny", "min_vm": 2, "max_vm": 10}
BUILT = {**COMMON, "id": "built", "flavor": "m1.small", "min_vm": 6, "max_vm": 14}
FAILING = {**COMMON, "id": "failing", "flavor": "m1.small", "min_vm": 2, "max_vm": 4}
SIZED = (DRAWN, BUILT)
BROKEN = "soak-broken"
MOST_HELD = 8  # requests that are somebody's at once


class Churn:
    """Deeds on one fleet.

    Args:
        log: of the runner, which is asked through its control socket.
        lab: where the servers are.
        folder: for pool files.
        seed: decides the deeds.
    """

    def __init__(self, log: Path, lab: LabClient, folder: Path, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._log = log
        self._lab = lab
        self._folder = folder
        self._chance = random.Random(seed)
        self._held: list[str] = []
        self._requests = 0
        self._broken = False
        self._sizes = {str(pool["id"]): dict(pool) for pool in SIZED}
        # seconds between two deeds of a kind, on average
        self._deeds: dict[Callable[[], str], float] = {
            self._assign: 15.0,
            self._release: 16.0,
            self._resize: 60.0,
            self._break_or_mend_the_image: 240.0,
            self._fail_a_server: 180.0,
            self._delete_a_server_by_hand: 300.0,
            self._stop_a_server_by_hand: 300.0,
        }
        now = time.monotonic()
        self._due = {deed: now + self._pause(deed) for deed in self._deeds}

    def declare(self) -> None:
        """The pools as they are in the beginning and in the end."""
        self._sizes = {str(pool["id"]): dict(pool) for pool in SIZED}
        self._apply(WARM, *self._sizes.values(), FAILING)

    def step(self) -> None:
        """Do what is due; a runner or a cloud that says no is part of it."""
        for deed, due in self._due.items():
            if time.monotonic() >= due:
                try:
                    self.done[deed()] += 1
                except PoolsmError as error:
                    self.done[f"refused: {type(error).__name__}"] += 1
                self._due[deed] = time.monotonic() + self._pause(deed)

    def end(self) -> list[Wanted]:
        """No request, the image mended, the sizes of the beginning; what is to come of it."""
        for request in self._held:
            self._ask(Release(request))
        self._held.clear()
        self._broken = False
        self.declare()
        self._ask(Reset("failing"))
        return [
            Wanted(str(pool["id"]), int(str(pool["min_vm"])), int(str(pool.get("max_vm", 0))))
            for pool in (WARM, DRAWN, BUILT, FAILING)
        ]

    def remove(self) -> None:
        """Drain every pool."""
        for pool in (DRAWN, BUILT, FAILING, WARM):
            self._ask(Remove(f"{pool['user']}/{pool['id']}", include_assigned=True))

    # --- deeds ------------------------------------------------------------------------------

    def _assign(self) -> str:
        if len(self._held) >= MOST_HELD:
            return "assign: enough are held"
        self._requests += 1
        request = f"request-{self._requests}"
        pool = self._chance.choice([pool["id"] for pool in SIZED])
        self._ask(Assign(str(pool), request, f"person-{self._requests}", 240.0))
        self._held.append(request)
        return "assign"

    def _release(self) -> str:
        if not self._held:
            return "release: none is held"
        self._ask(Release(self._held.pop(self._chance.randrange(len(self._held)))))
        return "release"

    def _resize(self) -> str:
        pool = self._sizes[str(self._chance.choice(SIZED)["id"])]
        pool["min_vm"] = self._chance.randint(1, 8)
        pool["max_vm"] = self._chance.randint(pool["min_vm"], 14)
        self._apply(pool)
        return "resize"

    def _break_or_mend_the_image(self) -> str:
        self._broken = not self._broken
        if not self._broken:
            self._apply(FAILING)
            self._ask(Reset("failing"))
            return "image mended, pool reset"
        if all(image["name"] != BROKEN for image in self._lab.images()):
            self._lab.create_image(BROKEN, lab_spawn_error="no space left on the volume")
        self._apply({**FAILING, "image": BROKEN, "min_vm": 3})
        return "image broken"

    def _fail_a_server(self) -> str:
        return self._meddle("set to ERROR", {"os-resetState": {"state": "error"}}, "free")

    def _stop_a_server_by_hand(self) -> str:
        return self._meddle("stopped by its user", {"os-stop": None}, "held")

    def _delete_a_server_by_hand(self) -> str:
        rows = self._servers("free")
        if not rows:
            return "deleted by hand: none to take"
        self._lab.delete_servers([self._chance.choice(rows)["id"]])
        return "deleted by hand"

    def _meddle(self, what: str, action: dict[str, Any], whose: str) -> str:
        rows = self._servers(whose)
        if not rows:
            return f"{what}: none to take"
        with suppress(Exception):  # it may be on its way out: the cloud then refuses
            self._lab.act(self._chance.choice(rows)["id"], action)
        return what

    # --- means ------------------------------------------------------------------------------

    def _servers(self, whose: str) -> list[dict[str, Any]]:
        tag = "true" if whose == "held" else None
        return [
            row
            for row in self._lab.servers()
            if row["status"] == "ACTIVE"
            and not row["OS-EXT-STS:task_state"]
            and (row["metadata"].get("reattrib") == "true") == (tag == "true")
        ]

    def _pause(self, deed: Callable[[], str]) -> float:
        return self._chance.expovariate(1 / self._deeds[deed])

    def _apply(self, *pools: dict[str, Any]) -> None:
        declared = read_pool_file(pool_file(self._folder / "declared.toml", *pools))
        self._ask(Apply(declared.pools, declared.configs))

    def _ask(self, request: Request) -> Result:
        return control.call(self._log, Envelope(request, ORIGIN), timeout_s=30.0)
