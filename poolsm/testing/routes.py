"""From a request to the function that answers it."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from attrs import frozen

from poolsm.commands import SERVERPOOL_ID
from poolsm.testing import create, glance, listing, neutron, nova
from poolsm.testing.faults import NOBODY, Subject
from poolsm.testing.replies import (
    Json,
    Refused,
    SimReply,
    as_json,
    json_reply,
    keystone_error,
    refuse,
)
from poolsm.testing.world import World, subject_of

_VERSIONS = ("v2", "v2.0", "v2.1", "v3")
_ACTIONS = {"os-stop": "stop", "os-start": "start", "rebuild": "rebuild"}
_WITH_BODY = ("POST", "PUT")

# (service, method, shape of the path) to the operation that faults and counts know it by.
# In a shape, * is one part of the path.
ROUTES: dict[tuple[str, str, str], str] = {
    ("compute", "POST", "servers"): "create",
    ("compute", "GET", "servers/detail"): "list",
    ("compute", "GET", "servers"): "list",
    ("compute", "GET", "servers/*"): "get",
    ("compute", "DELETE", "servers/*"): "delete",
    ("compute", "PUT", "servers/*"): "rename",
    ("compute", "POST", "servers/*/action"): "act",
    ("compute", "GET", "servers/*/metadata"): "get",
    ("compute", "POST", "servers/*/metadata"): "metadata",
    ("compute", "DELETE", "servers/*/metadata/*"): "metadata",
    ("compute", "GET", "flavors/detail"): "flavors",
    ("compute", "GET", "flavors"): "flavors",
    ("compute", "GET", "flavors/*"): "flavors",
    ("image", "GET", "images"): "images",
    ("image", "GET", "images/*"): "image",
    ("network", "GET", "networks"): "networks",
    ("network", "GET", "networks/*"): "networks",
    ("identity", "POST", "auth/tokens"): "auth",
}


@frozen
class Call:
    """One request, taken apart.

    ``operation`` is that of the faults, ``other`` for what this cloud does not do.
    """

    project: str
    service: str
    method: str
    path: str
    parts: tuple[str, ...]
    query: dict[str, str]
    body: Json
    readable: bool
    headers: dict[str, str]
    shape: str
    operation: str

    @property
    def server_id(self) -> str:
        """The server that the path names; empty without one."""
        return self.parts[1] if self.shape.startswith("servers/*") else ""


def parse(
    project: str,
    service: str,
    method: str,
    path: str,
    *,
    body: bytes | None,
    headers: dict[str, str],
) -> Call:
    """Take a request apart; never raises, whatever it holds."""
    split = urlsplit(path)
    parts = tuple(unquote(part) for part in split.path.split("/") if part)
    if parts and parts[0] in _VERSIONS:
        parts = parts[1:]
    shape, operation = _match(service, method, parts)
    decoded, readable = _decode(body) if method in _WITH_BODY else ({}, True)
    if operation == "act":
        operation = _ACTIONS.get(nova.action_of(decoded), "other")
    return Call(
        project=project,
        service=service,
        method=method,
        path=path,
        parts=parts,
        query=dict(parse_qsl(split.query, keep_blank_values=True)),
        body=decoded,
        readable=readable,
        headers=headers,
        shape=shape,
        operation=operation,
    )


def _match(service: str, method: str, parts: tuple[str, ...]) -> tuple[str, str]:
    plain = "/".join(parts)
    if (service, method, plain) in ROUTES:
        return plain, ROUTES[service, method, plain]
    shape = "/".join("*" if index % 2 else part for index, part in enumerate(parts))
    return shape, ROUTES.get((service, method, shape), "other")


def _decode(body: bytes | None) -> tuple[Json, bool]:
    try:
        value = msgspec.json.decode(body or b"{}", type=dict[str, object])
    except msgspec.MsgspecError:
        return {}, False
    return value, True


def subject_of_call(world: World, call: Call) -> Subject:
    """The server that a request is about: by its id, or as a create describes it."""
    server = world.servers.get(call.server_id)
    if server is not None:
        return subject_of(server)
    wanted = call.body.get("server") if call.operation == "create" else None
    if not isinstance(wanted, dict):
        return NOBODY
    metadata = wanted.get("metadata")
    pool = metadata.get(SERVERPOOL_ID, "") if isinstance(metadata, dict) else ""
    return Subject(name=str(wanted.get("name", "")), pool=str(pool))


def perform(world: World, call: Call, now_ms: int) -> SimReply:
    """Carry a request out and answer it."""
    try:
        if call.service == "image":
            return _image(world, call)
        if call.service == "network":
            return _network(world, call)
        if call.service == "identity":
            return _identity(world, call)
        return _compute(world, call, now_ms)
    except Refused as refused:
        if refused.text and "json" in call.headers.get("accept", ""):
            return as_json(refused.reply, refused.text)
        return refused.reply


def _compute(world: World, call: Call, now_ms: int) -> SimReply:
    microversion = nova.check_microversion(world, call.headers)
    if not call.readable:
        raise refuse(400, "Malformed request body")
    query = call.query
    match call.shape, call.method:
        case "servers", "POST":
            reply = create.create(world, call.project, call.body, now_ms)
        case "servers", "GET":
            reply = listing.list_servers(world, call.project, query, now_ms, detail=False)
        case "servers/detail", "GET":
            reply = listing.list_servers(world, call.project, query, now_ms, detail=True)
        case "flavors/detail", "GET":
            reply = listing.list_flavors(world, query, microversion, detail=True)
        case "flavors", "GET":
            reply = listing.list_flavors(world, query, microversion, detail=False)
        case "flavors/*", "GET":
            reply = listing.show_flavor(world, call.parts[1], microversion)
        case _:
            reply = _one_server(world, call, now_ms)
    reply.headers["openstack-api-version"] = f"compute {microversion}"
    return reply


def _one_server(world: World, call: Call, now_ms: int) -> SimReply:
    if not call.server_id:
        raise refuse(404, "The resource could not be found.")
    server = nova.find_server(world, call.project, call.server_id)
    match call.shape, call.method:
        case "servers/*", "GET":
            return nova.show(world, server, now_ms)
        case "servers/*", "DELETE":
            return nova.delete(world, server, now_ms)
        case "servers/*", "PUT":
            return nova.rename(world, server, call.body, now_ms)
        case "servers/*/action", "POST":
            return nova.act(world, server, call.body, now_ms)
        case "servers/*/metadata", "GET":
            return nova.read_metadata(server)
        case "servers/*/metadata", "POST":
            return nova.update_metadata(world, server, call.body, now_ms)
        case "servers/*/metadata/*", "DELETE":
            return nova.delete_metadata_item(world, server, call.parts[3], now_ms)
        case _:
            raise refuse(404, "The resource could not be found.")


def _image(world: World, call: Call) -> SimReply:
    match call.shape, call.method:
        case "images", "GET":
            return glance.list_images(world, call.project, call.query)
        case "images/*", "GET":
            return glance.show_image(world, call.project, call.parts[1])
        case _:
            raise glance.refuse_image(404, "The resource could not be found.")


def _network(world: World, call: Call) -> SimReply:
    match call.shape, call.method:
        case "networks", "GET":
            return neutron.list_networks(world, call.project, call.query)
        case "networks/*", "GET":
            return neutron.show_network(world, call.project, call.parts[1])
        case _:
            raise neutron.refuse_network(404, "HTTPNotFound", "The resource could not be found.")


def _identity(world: World, call: Call) -> SimReply:
    """Only for the in-process transport; the served cloud checks passwords itself."""
    if call.operation != "auth":
        return keystone_error(404, "The resource could not be found.")
    project_id = world.config.project_id(call.project)
    return json_reply(201, {"token": {"project": {"id": project_id, "name": call.project}}})
