"""The recorder with a user's token and what most of the recorded requests share."""

import base64
from typing import Any

from tests.lab.openstack.ask import Answer, token_of
from tests.lab.openstack.client import ROOT, LabClient, until
from tests.lab.openstack.recorder import Recorder
from tests.lab.openstack.settings import made

TARGET = ROOT / "tests" / "recorded" / "openstack"


class Session:
    """The recorder with a user's token and the bodies that most requests share."""

    def __init__(self, client: LabClient) -> None:
        self.client = client
        self.facts = client.facts
        self.out = Recorder(client.lab, made(TARGET))
        self.token = token_of(client.lab, "vmpool")
        self.image = client.image_id("vmpool", "worker-image")
        self._name_ids()

    def _name_ids(self) -> None:
        name = self.out.normaliser.name
        for project in ("infra", "vmpool", "admin"):
            name(self.facts["projects"][project], f"project {project}")
        for project in ("vmpool", "infra"):
            for image, ident in self.facts["images"][project].items():
                name(ident, f"image {image} of {project}")
        name(self.facts["networks"]["lab-net"], "network lab-net")
        name(self.facts["subnets"]["lab-subnet"], "subnet lab-subnet")

    def get(self, name: str, service: str, template: str, **more: Any) -> Answer:
        return self.out.record(name, "GET", service, template, token=self.token, **more)

    def nova(self, name: str, method: str, template: str, body: Any = None, **ids: str) -> Answer:
        return self.out.record(
            name, method, "nova-api", template, token=self.token, body=body, **ids
        )

    def order(self, name: str = "vm-1", **more: Any) -> dict[str, Any]:
        """The body of a create; a field given as None is left out."""
        fields: dict[str, Any] = {
            "name": name,
            "flavorRef": self.facts["flavors"]["m1.tiny"],
            "imageRef": self.image,
            "networks": [{"uuid": self.facts["networks"]["lab-net"]}],
            "key_name": self.facts["keypair"],
            "metadata": {"pool": "pool-1", "owner": "user-1"},
            "user_data": base64.b64encode(b"#cloud-config\n{}\n").decode(),
            **more,
        }
        return {"server": {k: v for k, v in fields.items() if v is not None}}

    def create(self, name: str, **more: Any) -> str:
        """A server that is needed and not recorded."""
        return str(self.client.create_server(name, **more)["id"])

    def rest(self, ident: str, status: str) -> None:
        self.client.wait_for_status(ident, status)

    def act(self, ident: str, action: str, arguments: Any = None) -> None:
        self.client.act(ident, {action: arguments})

    def task(self, ident: str, *tasks: str | None) -> None:
        """Until the server is at one of the tasks."""

        def at_it() -> bool:
            row = self.client.server(ident)
            return row is not None and row["OS-EXT-STS:task_state"] in tasks

        until(f"{ident} at {tasks}", at_it, 30, 0.05)
