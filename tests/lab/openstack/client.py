"""What the integration tests do to the lab behind the back of the program under test.

It runs in the project's environment (openstacksdk) against a lab that `start` brings up.
Everything is synchronous: a test that has an event loop calls it through `to_thread`.
"""

import io
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openstack
from openstack import exceptions

from tests.lab.openstack.settings import SOURCES, Lab, LabError, LabImpossibleError

ROOT = SOURCES.parents[2]
MICROVERSION = "2.69"
# What `seed.py` sets; `reset_quota` goes back to it.
ROOMY = {"instances": 5000, "cores": 20000, "ram": 50_000_000}
ROOMY_PORTS = 10000
GONE = exceptions.NotFoundException


def start(*, setup: bool = True) -> "LabClient":
    """Bring the lab up and connect; an impossible lab raises `LabImpossibleError`.

    Its text is the reason to give when a test is skipped.
    """
    for command in (["setup"], ["up"]) if setup else (["up"],):
        done = subprocess.run(
            [sys.executable, "-m", "tests.lab.openstack", *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no output"]
            kind = LabImpossibleError if done.returncode == LabImpossibleError.code else LabError
            raise kind("\n".join(lines[-1:] if kind is LabImpossibleError else lines))
    client = LabClient(Lab.from_environment())
    client.wait()
    return client


class LabClient:
    """Connections to a running lab and the few operations that tests share."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._connections: dict[str, Any] = {}

    # ---------------------------------------------------------------- getting there
    @property
    def facts(self) -> dict[str, Any]:
        """`lab.json`: the ids of images, flavors, networks and projects."""
        value = json.loads(self.lab.lab_json.read_text())
        assert isinstance(value, dict)
        return value

    def connect(self, cloud: str) -> Any:
        """The SDK's connection of a cloud of the lab's clouds.yaml, such as `lab-vmpool`."""
        if cloud not in self._connections:
            os.environ.pop("OS_CLOUD", None)
            files = [str(self.lab.clouds_yaml)]
            config = openstack.config.OpenStackConfig(config_files=files, load_envvars=False)
            with warnings.catch_warnings():
                # the SDK deprecates features of its own at every connection
                warnings.simplefilter("ignore", PendingDeprecationWarning)
                region = config.get_one(cloud=cloud)
                self._connections[cloud] = openstack.connection.Connection(config=region)
        return self._connections[cloud]

    @property
    def admin(self) -> Any:
        return self.connect("lab-admin")

    def project_id(self, project: str) -> str:
        return str(self.facts["projects"][project])

    def image_id(self, project: str, name: str) -> str:
        return str(self.facts["images"][project][name])

    def wait(self, seconds: float = 60.0) -> None:
        """Until the compute API answers an admin."""

        def answers() -> bool:
            try:
                return bool(self.admin.compute.get("/limits").status_code == 200)
            except (exceptions.SDKException, OSError):
                self._connections.pop("lab-admin", None)
                return False

        until("the lab answers", answers, seconds)

    def access_log(self, service: str) -> list[str]:
        """The requests that an API was sent, one line each (see inside/serve.py)."""
        path = Path(self.lab.log / f"{service}.access")
        return path.read_text().splitlines() if path.exists() else []

    @contextmanager
    def locked_table(self, table: str) -> Iterator[None]:
        """Let every query of a table hang: a database out of reach, as no API can make it."""
        port = self.lab.port("mysql")
        client = ["mariadb", "--no-defaults", "-h127.0.0.1", "-uroot", f"-P{port}", "-Nn"]
        session = subprocess.Popen(client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(f"LOCK TABLES {table} WRITE; SELECT 'locked';\n")
        session.stdin.flush()
        session.stdout.readline()
        try:
            yield
        finally:
            session.communicate()  # the end of the session ends the lock

    # ----------------------------------------------------------------------- quotas
    def set_quota(self, project: str = "vmpool", **limits: int) -> None:
        """Set instances, cores, ram (MiB), metadata_items, ... and `ports` of a project."""
        ports = limits.pop("ports", None)
        if ports is not None:
            self.admin.network.update_quota(self.project_id(project), ports=ports)
        if limits:
            self.admin.compute.update_quota_set(self.project_id(project), **limits)

    def reset_quota(self, project: str = "vmpool") -> None:
        self.set_quota(project, **ROOMY, ports=ROOMY_PORTS)

    # ---------------------------------------------------------------------- servers
    def servers(self, project: str = "vmpool", **query: str) -> list[dict[str, Any]]:
        """Every server of a project as the cloud itself sees it, with its metadata.

        Plain JSON and not the SDK's objects, which cost more than the request.
        """
        rows: list[dict[str, Any]] = []
        params = {"all_tenants": "1", "project_id": self.project_id(project), **query}
        while True:
            answer = self.admin.compute.get(
                "/servers/detail", params=params, microversion=MICROVERSION
            )
            exceptions.raise_from_response(answer)
            page = answer.json()["servers"]
            rows += page
            if not page or "servers_links" not in answer.json():
                return rows
            params["marker"] = page[-1]["id"]

    def server(self, ident: str) -> dict[str, Any] | None:
        """One server; None if the cloud does not know it (any more)."""
        answer = self.admin.compute.get(f"/servers/{ident}", microversion=MICROVERSION)
        if answer.status_code == 404:
            return None
        exceptions.raise_from_response(answer)
        found = answer.json()["server"]
        assert isinstance(found, dict)
        return found

    def count(self, project: str = "vmpool", **metadata: str) -> Counter[str]:
        """How many servers there are in each status, of those that bear the metadata."""
        return Counter(
            row["status"]
            for row in self.servers(project)
            if metadata.items() <= row["metadata"].items()
        )

    def create_server(self, name: str, cloud: str = "lab-vmpool", **more: Any) -> dict[str, Any]:
        """A server that no pool asked for; `more` are fields of the request body."""
        project = cloud.rpartition("-")[2]
        body = {
            "name": name,
            "flavorRef": self.facts["flavors"]["m1.tiny"],
            "imageRef": self.image_id(project, "worker-image"),
            "networks": [{"uuid": self.facts["networks"]["lab-net"]}],
            **more,
        }
        answer = self.connect(cloud).compute.post(
            "/servers", json={"server": body}, microversion=MICROVERSION
        )
        exceptions.raise_from_response(answer)
        created = answer.json()["server"]
        assert isinstance(created, dict)
        return created

    def act(self, ident: str, action: Mapping[str, Any], cloud: str = "lab-admin") -> None:
        """An action such as `{"os-stop": None}` or `{"os-resetState": {"state": "error"}}`."""
        answer = self.connect(cloud).compute.post(
            f"/servers/{ident}/action", json=dict(action), microversion=MICROVERSION
        )
        exceptions.raise_from_response(answer)

    def delete_servers(self, idents: Iterable[str]) -> None:
        """Ask for the deletion; those that are gone already count as deleted."""

        def delete(ident: str) -> None:
            answer = self.admin.compute.delete(f"/servers/{ident}")
            if answer.status_code != 404:
                exceptions.raise_from_response(answer)

        self.wait(5.0)  # a connection made by eight threads at once signs in eight times
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(delete, idents))

    def wipe(self, *projects: str, seconds: float = 600.0) -> int:
        """Delete every server of the projects (both by default) and wait for the end."""
        names = projects or ("vmpool", "infra")
        idents = [row["id"] for name in names for row in self.servers(name)]
        self.delete_servers(idents)
        until("all servers are gone", lambda: not any(map(self.servers, names)), seconds)
        return len(idents)

    def wait_for_status(self, ident: str, *statuses: str, seconds: float = 60.0) -> dict[str, Any]:
        """Until the server rests (no task) in one of the statuses; returns its last view."""
        last: dict[str, Any] | None = None

        def rests() -> bool:
            nonlocal last
            last = self.server(ident)
            if last is None:
                raise LabError(f"server {ident} is gone, not {' or '.join(statuses)}")
            return last["status"] in statuses and last["OS-EXT-STS:task_state"] is None

        until(f"server {ident} is {' or '.join(statuses)}", rests, seconds)
        assert last is not None
        return last

    def wait_gone(self, ident: str, seconds: float = 60.0) -> None:
        until(f"server {ident} is gone", lambda: self.server(ident) is None, seconds)

    # ----------------------------------------------------------------------- images
    def create_image(
        self, name: str, project: str = "vmpool", *, data: bytes = b"x" * 1024, **more: Any
    ) -> str:
        """An active image; a second one may bear the same name, as in any cloud."""
        image = self.connect(f"lab-{project}").image.create_image(
            name=name,
            disk_format="raw",
            container_format="bare",
            visibility="private",
            data=io.BytesIO(data),
            validate_checksum=False,
            **more,
        )
        return str(image.id)

    def create_snapshot(self, name: str, project: str = "vmpool", **more: Any) -> str:
        """An image marked as Nova marks a snapshot (the fake hypervisor has no disks)."""
        return self.create_image(name, project, image_type="snapshot", **more)

    def images(self, project: str = "vmpool", **query: str) -> list[dict[str, Any]]:
        """The images that a project sees, as Glance describes them."""
        answer = self.connect(f"lab-{project}").image.get("/images", params=query)
        exceptions.raise_from_response(answer)
        return list(answer.json()["images"])

    def delete_image(self, ident: str) -> None:
        self.admin.image.delete_image(ident, ignore_missing=True)

    def deactivate_image(self, ident: str) -> None:
        self.admin.image.deactivate_image(ident)

    def reactivate_image(self, ident: str) -> None:
        self.admin.image.reactivate_image(ident)

    def wipe_images(self, project: str = "vmpool") -> int:
        """Delete what tests created, keep what the lab was seeded with, and wake that up."""
        seeded = set(self.facts["images"][project].values())
        extra = [row for row in self.images(project) if row["id"] not in seeded]
        for row in self.images(project):
            if row["id"] not in seeded:
                self.delete_image(row["id"])
            elif row["status"] == "deactivated":
                self.reactivate_image(row["id"])
        return len(extra)


def until(what: str, ready: Callable[[], bool], seconds: float, pause: float = 0.2) -> None:
    """Poll; a wait that takes too long is an error that names what was waited for."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise LabError(f"not within {seconds:.0f} s: {what}")
        time.sleep(pause)
