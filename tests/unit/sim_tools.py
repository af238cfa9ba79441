"""What the tests of the simulated cloud share."""

import json

from poolsm.testing import (
    VM,
    CloudConfig,
    SimulatedCloud,
    image_id_of,
    network_id_of,
)

T0 = 1_780_000_000_000
HEADERS = {"accept": "application/json", "openstack-api-version": "compute 2.69"}
IMAGE, NETWORK = image_id_of("worker-image"), network_id_of("lab-net")
MINUTE = 60_000


class Client:
    """Asks a cloud at a time of its own."""

    def __init__(self, config=None, seed=0, cloud=None):
        self.cloud = cloud or SimulatedCloud(config or CloudConfig(), seed)
        self.now_ms = T0

    def ask(self, method, path, body=None, *, project=VM, service="compute", headers=HEADERS):
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return self.cloud.request(self.now_ms, project, service, method, path, data, headers)

    def order(self, name="p-1", pool="p", command="", **more):
        metadata = {"serverpool_id": pool, "user_id": "u"}
        if command:
            metadata["poolsm_command"] = command
        server = {
            "name": name,
            "imageRef": IMAGE,
            "flavorRef": "1",
            "networks": [{"uuid": NETWORK}],
            "metadata": metadata,
            **more,
        }
        return {"server": server}

    def create(self, name="p-1", **more):
        reply = self.ask("POST", "/servers", self.order(name, **more))
        assert reply.status == 202, reply
        return json.loads(reply.body)["server"]["id"]

    def active(self, name="p-1", **more):
        server_id = self.create(name, **more)
        self.wait(MINUTE)
        assert self.cloud.server(server_id).status == "ACTIVE"
        return server_id

    def show(self, server_id):
        reply = self.ask("GET", f"/servers/{server_id}")
        return json.loads(reply.body)["server"] if reply.status == 200 else reply.status

    def act(self, server_id, action):
        return self.ask("POST", f"/servers/{server_id}/action", {action: None}).status

    def delete(self, server_id):
        return self.ask("DELETE", f"/servers/{server_id}").status

    def page(self, query=""):
        reply = self.ask("GET", f"/servers/detail{query}")
        assert reply.status == 200, reply
        return json.loads(reply.body)

    def names(self, query=""):
        return [one.get("name") for one in self.page(query)["servers"]]

    def wait(self, span_ms):
        self.now_ms += span_ms
        self.cloud.advance(self.now_ms)


def message(reply):
    (body,) = json.loads(reply.body).values()
    return body["message"]
