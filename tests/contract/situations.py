"""Puts a simulated cloud into the situation in which an answer of the real one was recorded.

The cloud has the recorded ids of projects, images and networks; those of servers are random,
so each situation says which server of its own plays the recorded one.
"""

import json
import re
from pathlib import Path

from attrs import evolve

from poolsm.testing import (
    VM,
    CloudConfig,
    Fault,
    ImageConfig,
    NetworkConfig,
    SimulatedCloud,
)

RECORDED = Path(__file__).parents[1] / "recorded" / "openstack"
START_MS = 1_780_000_000_000
LONG_MS = 60_000
HEADERS = {"accept": "application/json", "openstack-api-version": "compute 2.69"}

PROJECT, FOREIGN = "00000000000000000000000000000002", "00000000000000000000000000000001"
NETWORK = "00000000-0000-4000-8000-000000000010"
IMAGE = "00000000-0000-4000-8000-000000000004"


def recording(name):
    return json.loads((RECORDED / f"{name}.json").read_text())


def the_cloud():
    """The lab as it was seeded, with the ids of the recordings."""
    uuid = "00000000-0000-4000-8000-{:012}".format
    images = (
        # The order of the recorded listing: the newest comes first.
        ImageConfig("worker-image", VM, uuid(4), created_ms=START_MS - 30_000),
        ImageConfig("desktop-image", VM, uuid(6), created_ms=START_MS - 20_000),
        ImageConfig("worker-image-old", VM, uuid(5), created_ms=START_MS - 10_000),
        ImageConfig("worker-image", "infra", uuid(7)),
        ImageConfig("worker-image-old", "infra", uuid(8)),
        ImageConfig("desktop-image", "infra", uuid(9)),
    )
    return SimulatedCloud(
        CloudConfig(
            vm_project_id=PROJECT,
            infra_project_id=FOREIGN,
            images=images,
            networks=(NetworkConfig("lab-net", network_id=NETWORK),),
        )
    )


class Situation:
    """A cloud, the server in question, and the time."""

    def __init__(self, cloud=None):
        self.cloud = cloud or the_cloud()
        self.now_ms = START_MS
        self.ids = {}  # recorded server id to the simulated one

    def ask(self, method, path, body=None, headers=HEADERS, service="compute"):
        data = None if body is None else json.dumps(body).encode()
        return self.cloud.request(self.now_ms, VM, service, method, path, data, headers)

    def create(self, name="vm-1", metadata=None, **more):
        order = {
            "name": name,
            "flavorRef": "1",
            "imageRef": IMAGE,
            "networks": [{"uuid": NETWORK}],
            "metadata": metadata or {},
            **more,
        }
        reply = self.ask("POST", "/servers", {"server": order})
        assert reply.status == 202, reply.body
        return json.loads(reply.body)["server"]["id"]

    def wait(self, span_ms=LONG_MS):
        self.now_ms += span_ms
        self.cloud.advance(self.now_ms)

    def until(self, server_id, status, task_state):
        for _ in range(10_000):
            story = self.cloud.server(server_id)
            if (story.status, story.task_state) == (status, task_state):
                return
            self.wait(5)
        raise AssertionError(f"never {status}/{task_state}: {self.cloud.server(server_id)}")

    def act(self, server_id, action):
        reply = self.ask("POST", f"/servers/{server_id}/action", {action: None})
        assert reply.status == 202, reply.body


# --- how a server comes into the state in which it was recorded -----------------------------


def _active(s, server_id):
    s.until(server_id, "ACTIVE", None)


def _scheduling(s, server_id):
    s.until(server_id, "BUILD", "scheduling")


def _spawning(s, server_id):
    s.until(server_id, "BUILD", "spawning")


def _powering_off(s, server_id):
    _active(s, server_id)
    s.act(server_id, "os-stop")


def _shutoff(s, server_id):
    _powering_off(s, server_id)
    s.until(server_id, "SHUTOFF", None)


def _powering_on(s, server_id):
    _shutoff(s, server_id)
    s.act(server_id, "os-start")


def _deleting(s, server_id):
    _active(s, server_id)
    assert s.ask("DELETE", f"/servers/{server_id}").status == 204


def _gone(s, server_id):
    _deleting(s, server_id)
    s.wait()


def _error(s, server_id):
    s.until(server_id, "ERROR", None)


def _reset(s, server_id):
    _active(s, server_id)
    s.cloud.hands.set_status(server_id, "ERROR")


def _by_operator(status):
    def arrange(s, server_id):
        _active(s, server_id)
        s.cloud.hands.set_status(server_id, status)

    return arrange


def _locked(s, server_id):
    _active(s, server_id)
    s.cloud.hands.lock(server_id)


def _cell_down(s, server_id):
    _active(s, server_id)
    s.cloud.add_fault(Fault(kind="cell_down"))


ARRANGEMENTS = [
    # recordings (a regular expression), what happened before
    (r"server-build-just-created|delete-accepted-building", _scheduling),
    (r"server-build-spawning|stop-refused-while-building", _spawning),
    (r"server-active-powering-off|st(op|art)-refused-powering-off", _powering_off),
    (r"server-shutoff-powering-on", _powering_on),
    (r"server-shutoff|stop-refused-shutoff|start-accepted", _shutoff),
    (r"server-active-deleting|stop-refused-deleting|delete-accepted-again", _deleting),
    (r"server-build-deleting", _spawning),
    (r".*-gone", _gone),
    (r".*no-valid-host|.*build-aborted|delete-accepted-error", _error),
    (r"server-error-reset-state|start-refused-error|stop-accepted-error", _reset),
    (r".*-paused", _by_operator("PAUSED")),
    (r".*-suspended", _by_operator("SUSPENDED")),
    (r".*-rescue", _by_operator("RESCUE")),
    (r".*-locked", _locked),
    (r"cell-down-.*", _cell_down),
    (r".*", _active),
]


def arranged(name, recorded):
    """The situation of one recording."""
    s = Situation()
    if name.startswith("create-refused-quota-"):
        _quota(s, name.removeprefix("create-refused-quota-"))
    elif name.startswith(("create-refused-image-", "image-get-", "networks-page-")):
        _resources(s, name, recorded)
    elif name.startswith("servers-") and not name.endswith(("-empty", "-token")):
        _lists(s, name)
    elif "server" in recorded["request"]["ids"] or name.startswith("cell-down"):
        _one_server(s, name, recorded)
    return s


def _one_server(s, name, recorded):
    recorded_id = recorded["request"]["ids"]["server"]
    if name in ("server-never-was", "server-no-uuid"):
        return
    view = (recorded["body"] or {}).get("server", {}) if recorded["status"] < 400 else {}
    metadata = _metadata_before(name, recorded, view)
    order = {"name": view.get("name", "vm-1"), "metadata": metadata}
    if view.get("key_name"):
        order["key_name"] = view["key_name"]
    if "no-valid-host" in name or name == "delete-accepted-error":
        order["flavorRef"] = "99"
    if "build-aborted" in name:
        s.cloud.add_fault(Fault(kind="spawn_error", message="no space left on device"))
    server_id = s.create(**order)
    s.ids[recorded_id] = server_id
    arrange = next(step for pattern, step in ARRANGEMENTS if re.fullmatch(pattern, name))
    arrange(s, server_id)


def _metadata_before(name, recorded, view):
    if "metadata" in view:
        return view["metadata"]
    if name == "metadata-get":
        return recorded["body"]["metadata"]
    if name == "metadata-item-delete":
        return {"owner": "user-2"}
    if name.startswith("metadata-post") and recorded["status"] == 200:
        sent = recorded["request"]["body"]["metadata"]
        result = recorded["body"]["metadata"]
        return {key: value for key, value in result.items() if key not in sent}
    if name == "metadata-post-too-many":
        return {"pool": "pool-1"}
    return {}


def _quota(s, name):
    _active(s, s.create("standing"))
    limits = {
        "instances": {"instances": 1},
        "cores": {"cores": 1},
        "ram": {"ram_mb": 600},
        "instances-and-cores": {"instances": 1, "cores": 1},
        "ports": {"ports": 1},
        "several-at-once": {"instances": 11},
    }
    s.cloud.hands.set_quota(**limits[name])


def _resources(s, name, recorded):
    request = recorded["request"]
    body = request["body"] or {}
    image_id = body.get("server", {}).get("imageRef") or request["ids"].get("image", "")
    made = {
        "create-refused-image-deactivated": {"status": "deactivated"},
        "create-refused-image-queued": {"status": "queued"},
        "create-refused-image-needs-more-memory": {"min_ram_mb": 4096},
        "image-get-deactivated": {"status": "deactivated", "name": "recorded-image"},
        "image-get-snapshot": {"name": "recorded-snapshot"},
    }.get(name)
    if made is not None:
        made = {"name": "extra", "size_bytes": 1024, **made}
        s.cloud.hands.add_image(ImageConfig(image_id=image_id, **made))
    if name.startswith("networks-page-"):
        second = recording("networks-page-2")["body"]["networks"][0]
        config = NetworkConfig(second["name"], cidr="", network_id=second["id"])
        s.cloud = SimulatedCloud(
            evolve(s.cloud.config, networks=(*s.cloud.config.networks, config))
        )


def _lists(s, name):
    rows = recording("servers-detail")["body"]["servers"]
    for row in reversed(rows):
        server_id = s.create(row["name"], row["metadata"])
        s.ids[row["id"]] = server_id
        s.wait()
        if row["status"] == "SHUTOFF":
            s.act(server_id, "os-stop")
            s.wait()
    if name == "servers-detail-marker-gone":
        newest = s.ids[rows[0]["id"]]
        assert s.ask("DELETE", f"/servers/{newest}").status == 204
        s.wait()
