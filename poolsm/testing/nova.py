"""Nova: what can be done with a server that is there (creating is :mod:`.create`).

Checks come in Nova's order: lock, host, vm_state, task_state (``nova/compute/api.py``).
"""

from __future__ import annotations

from poolsm.testing import lifecycle
from poolsm.testing.create import (
    check_image,
    check_metadata,
    check_metadata_count,
    check_name,
    find_image,
    invalid,
)
from poolsm.testing.faults import READ, Fault
from poolsm.testing.replies import Json, SimReply, json_bytes_reply, json_reply, refuse
from poolsm.testing.server import SimServer, plain_addresses
from poolsm.testing.world import World, subject_of

MICROVERSION_MIN = (2, 1)
_READABLE = ("active", "paused", "suspended", "stopped")
# What a rename answers without at microversions below 2.75.
_NOT_IN_RENAME = (
    "OS-EXT-AZ:availability_zone",
    "config_drive",
    "key_name",
    "OS-SRV-USG:launched_at",
    "OS-SRV-USG:terminated_at",
    "security_groups",
    "OS-EXT-STS:task_state",
    "OS-EXT-STS:vm_state",
    "OS-EXT-STS:power_state",
    "os-extended-volumes:volumes_attached",
)


def find_server(world: World, project: str, server_id: str) -> SimServer:
    """The server, if there is one; else Nova's 404."""
    server = world.servers.get(server_id)
    if server is None or server.project != project or not server.face.visible:
        raise refuse(404, f"Instance {server_id} could not be found.")
    return server


def show(world: World, server: SimServer, now_ms: int) -> SimReply:
    """``GET /servers/{id}``."""
    subject = subject_of(server)
    fault = world.faults.strike(READ, now_ms, "get", server.project, subject)
    if fault is None:
        return json_bytes_reply(200, b'{"server":' + server.encoded() + b"}")
    view = server.view(server.face)
    if fault.kind == "blank_metadata":
        return json_reply(200, {"server": view | {"metadata": {}}})
    down = server.down_view() | {"image": view["image"], "flavor": view["flavor"]}
    down |= {"OS-EXT-AZ:availability_zone": "UNKNOWN", "OS-EXT-STS:power_state": 0}
    return json_reply(200, {"server": down | {"user_id": server.user_id}})


def delete(world: World, server: SimServer, now_ms: int) -> SimReply:
    """``DELETE /servers/{id}``."""
    _check_lock(server)
    server.deletes += 1
    lifecycle.begin_delete(world, server, now_ms, _life_fault(world, "delete", server, now_ms))
    return SimReply(204, headers={"content-type": "application/json"})


def act(world: World, server: SimServer, body: Json, now_ms: int) -> SimReply:
    """``POST /servers/{id}/action``: os-stop, os-start, rebuild."""
    action = action_of(body)
    if action == "os-stop":
        _check_lock(server)
        _check_host(server)
        _check_state(server, "stop", ("active", "error"))
        fault = _life_fault(world, "stop", server, now_ms)
        lifecycle.begin_stop(world, server, now_ms, fault)
    elif action == "os-start":
        _check_lock(server)
        _check_host(server)
        _check_state(server, "start", ("stopped",))
        fault = _life_fault(world, "start", server, now_ms)
        lifecycle.begin_start(world, server, now_ms, fault)
    elif action == "rebuild":
        return _rebuild(world, server, body["rebuild"], now_ms)
    elif action == "os-resetState":
        policy = "os_compute_api:os-admin-actions:reset_state"
        raise refuse(403, f"Policy doesn't allow {policy} to be performed.")
    else:
        raise refuse(400, f"There is no such action: {action}")
    return SimReply(202, headers={"content-type": "application/json"})


def action_of(body: Json) -> str:
    """The name of the action in the body of a call."""
    return next(iter(body), "")


def _rebuild(world: World, server: SimServer, wanted: object, now_ms: int) -> SimReply:
    if not isinstance(wanted, dict) or "imageRef" not in wanted:
        raise invalid("rebuild", wanted, "'imageRef' is a required property")
    image = find_image(world, server.project, str(wanted["imageRef"]))
    if image is None:
        raise refuse(400, "Cannot find image for rebuild")
    if "name" in wanted:
        check_name(wanted["name"])
    if "metadata" in wanted:
        check_metadata(wanted["metadata"])
        check_metadata_count(world, server.project, len(wanted["metadata"]))
    _check_lock(server)
    _check_state(server, "rebuild", ("active", "stopped", "error"))
    if image.status != "active":
        raise refuse(400, f"Image {image.image_id} is not active.")
    check_image(image, server.flavor)
    fault = _life_fault(world, "rebuild", server, now_ms)
    lifecycle.begin_rebuild(world, server, now_ms, fault)
    changes: dict[str, object] = {"image_id": image.image_id, "fault": None}
    changes |= {key: wanted[key] for key in ("name", "metadata") if key in wanted}
    if fault is None or fault.kind != "ignore":
        world.change(server, now_ms, **changes)
    view = server.view(server.face) | {"adminPass": server.server_id[:12]}
    return json_reply(202, {"server": view})


def rename(world: World, server: SimServer, body: Json, now_ms: int) -> SimReply:
    """``PUT /servers/{id}``."""
    wanted = body.get("server")
    if not isinstance(wanted, dict):
        raise refuse(400, "'server' is a required property")
    if "name" in wanted:
        check_name(wanted["name"])
        if not _ignored(world, "rename", server, now_ms):
            world.change(server, now_ms, name=str(wanted["name"]))
    view = server.view(server.face)
    kept = {key: value for key, value in view.items() if key not in _NOT_IN_RENAME}
    kept["addresses"] = plain_addresses(server.face.addresses)
    return json_reply(200, {"server": kept})


def read_metadata(server: SimServer) -> SimReply:
    """``GET /servers/{id}/metadata``."""
    return json_reply(200, {"metadata": server.face.metadata})


def update_metadata(world: World, server: SimServer, body: Json, now_ms: int) -> SimReply:
    """``POST /servers/{id}/metadata``: adds and changes, removes nothing."""
    wanted = body.get("metadata")
    if not isinstance(wanted, dict):
        raise refuse(400, "'metadata' is a required property")
    check_metadata(wanted)
    _check_lock(server)
    if server.face.vm_state not in _READABLE:
        raise _conflict("update metadata", server, "vm_state", server.face.vm_state)
    merged = server.face.metadata | wanted
    check_metadata_count(world, server.project, len(merged))
    if not _ignored(world, "metadata", server, now_ms):
        world.change(server, now_ms, metadata=merged)
    return json_reply(200, {"metadata": merged})


def delete_metadata_item(world: World, server: SimServer, key: str, now_ms: int) -> SimReply:
    """``DELETE /servers/{id}/metadata/{key}``."""
    if key not in server.face.metadata:
        raise refuse(404, "Metadata item was not found")
    kept = {name: value for name, value in server.face.metadata.items() if name != key}
    world.change(server, now_ms, metadata=kept)
    return SimReply(204, headers={"content-type": "application/json"})


def check_microversion(world: World, headers: dict[str, str]) -> str:
    """The microversion of a request; Nova's refusal of one that it does not know."""
    service, _, version = headers.get("openstack-api-version", "").partition(" ")
    if service != "compute":
        version = headers.get("x-openstack-nova-api-version", "2.1")
    newest = world.config.max_microversion
    if version == "latest":
        return newest
    major, _, minor = version.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise refuse(
            400,
            f"API Version String {version} is of invalid format. "
            "Must be of format MajorNum.MinorNum.",
        )
    limit = tuple(int(part) for part in newest.split("."))
    if not MICROVERSION_MIN <= (int(major), int(minor)) <= limit:
        raise refuse(
            406,
            f"Version {version} is not supported by the API. "
            f"Minimum is 2.1 and maximum is {newest}.",
        )
    return version


def _life_fault(world: World, operation: str, server: SimServer, now_ms: int) -> Fault | None:
    kinds = ("stuck", "fails", "ignore")
    return world.faults.strike(kinds, now_ms, operation, server.project, subject_of(server))


def _ignored(world: World, operation: str, server: SimServer, now_ms: int) -> bool:
    subject = subject_of(server)
    fault = world.faults.strike(("ignore",), now_ms, operation, server.project, subject)
    return fault is not None


def _conflict(action: str, server: SimServer, attribute: str, state: str) -> Exception:
    return refuse(
        409,
        f"Cannot '{action}' instance {server.server_id} while it is in {attribute} {state}",
    )


def _check_lock(server: SimServer) -> None:
    if server.face.locked:
        raise refuse(409, f"Instance {server.server_id} is locked")


def _check_host(server: SimServer) -> None:
    if not server.face.host:
        raise refuse(409, f"Instance {server.server_id} is not ready")


def _check_state(server: SimServer, action: str, allowed: tuple[str, ...]) -> None:
    face = server.face
    if face.vm_state not in allowed:
        raise _conflict(action, server, "vm_state", face.vm_state)
    if face.task_state is not None:
        raise _conflict(action, server, "task_state", face.task_state)
