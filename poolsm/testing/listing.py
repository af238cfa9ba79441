"""Nova's listings: servers and flavors, page by page, and what can be wrong with a page."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from urllib.parse import urlencode

import msgspec

from poolsm.testing.config import FlavorConfig
from poolsm.testing.create import invalid
from poolsm.testing.faults import ABSENT, RECORD
from poolsm.testing.replies import Json, SimReply, json_bytes_reply, json_reply, refuse
from poolsm.testing.server import Face, SimServer
from poolsm.testing.world import World, subject_of

Row = tuple[SimServer, Face]
_LIMIT = re.compile(r"^[0-9]*$")


def list_servers(
    world: World, project: str, query: dict[str, str], now_ms: int, *, detail: bool
) -> SimReply:
    """``GET /servers/detail`` and ``GET /servers``: newest first."""
    limit = _limit(world, query)
    marker = query.get("marker", "")
    if marker and world.faults.strike(("lost_marker",), now_ms, "list", project):
        raise refuse(400, f"marker [{marker}] not found")
    down, rows = _page(world, project, query, limit, now_ms)
    full = bool(rows) and len(down) + len(rows) == limit
    following = rows[-1][0].server_id if full else ""
    if following and world.faults.strike(("no_next_link",), now_ms, "list", project):
        following = ""
    records = [msgspec.json.encode(_down(server, detail=detail)) for server in down]
    records += _records(world, project, rows, now_ms, detail=detail)
    body = b'{"servers":[' + b",".join(records) + b"]"
    if following:
        place = "servers/detail" if detail else "servers"
        links = _links(world, place, query, following)
        body += b',"servers_links":' + msgspec.json.encode(links)
    return json_bytes_reply(200, body + b"}")


def _page(
    world: World, project: str, query: dict[str, str], limit: int, now_ms: int
) -> tuple[list[SimServer], list[Row]]:
    """The servers of cells that are down, if this listing shows them, and a page of others."""
    stale = world.faults.strike(("stale",), now_ms, "list", project)
    marker = query.get("marker", "")
    last = _marked(world, project, marker) if marker else None
    rows: Iterable[Row]
    if stale is None:
        keys = world.live[project]
        rows = _rows(world, keys, bisect_left(keys, last.sort_key) if last else len(keys))
    else:
        rows = _rows_at(world, project, now_ms - stale.age_ms, last)
    if world.faults.strike(("short_page",), now_ms, "list", project):
        limit -= 1  # Nova counts a server that is in two of its tables twice, and shows it once
    fits = _filter(query)
    watched = world.faults.any_of(ABSENT)
    down: list[SimServer] = []
    page: list[Row] = []
    for server, face in rows:
        if len(page) + len(down) >= limit:
            break
        if not fits((server, face)):
            continue
        fault = (
            world.faults.strike(ABSENT, now_ms, "list", project, subject_of(server))
            if watched
            else None
        )
        if fault is None:
            page.append((server, face))
        elif fault.kind == "cell_down" and query.keys() <= {"all_tenants"}:
            down.append(server)
    return down, page


def _marked(world: World, project: str, marker: str) -> SimServer:
    """The marker's server; a deleted one still marks its place, as Nova reads deleted rows."""
    server = world.servers.get(marker)
    if server is None or server.project != project or server.face.hidden:
        raise refuse(400, f"marker [{marker}] not found")
    return server


def _rows(world: World, keys: list[tuple[int, int, str]], end: int) -> Iterable[Row]:
    servers = world.servers
    for index in range(end - 1, -1, -1):
        server = servers[keys[index][2]]
        face = server.faces[-1]
        if face.visible:
            yield server, face


def _rows_at(world: World, project: str, at_ms: int, last: SimServer | None) -> list[Row]:
    """What a listing showed at a time in the past, after ``last``."""
    rows: list[Row] = []
    for server in world.servers.values():
        face = server.face_at(at_ms) if server.project == project else None
        if face is not None and (last is None or server.sort_key < last.sort_key):
            rows.append((server, face))
    rows.sort(key=lambda row: row[0].sort_key, reverse=True)
    return rows


def _filter(query: dict[str, str]) -> Callable[[Row], bool]:
    """Nova's name filter is a regular expression that may match anywhere."""
    try:
        pattern = re.compile(query["name"]) if "name" in query else None
    except re.error:  # Nova's database cannot compile it either
        raise refuse(500, "Unexpected API Error.") from None
    status = query.get("status", "").upper()
    if pattern is None and not status:
        return lambda _: True
    return lambda row: (
        (pattern is None or bool(pattern.search(row[1].name)))
        and (not status or row[1].status == status)
    )


def _records(
    world: World, project: str, rows: list[Row], now_ms: int, *, detail: bool
) -> list[bytes]:
    if not detail:
        return [msgspec.json.encode(_basic(server, face)) for server, face in rows]
    if not world.faults.any_of((*RECORD, "shuffle")):
        return [
            server.encoded() if face is server.faces[-1] else server.encoded_as(face)
            for server, face in rows
        ]
    records: list[bytes] = []
    for server, face in rows:
        records += _record(world, project, server, face, now_ms)
    if world.faults.strike(("shuffle",), now_ms, "list", project):
        world.faults.dice.shuffle(records)
    return records


def _record(world: World, project: str, server: SimServer, face: Face, now_ms: int) -> list[bytes]:
    """One server's record, or what a fault makes of it."""
    fault = world.faults.strike(RECORD, now_ms, "list", project, subject_of(server))
    record = server.encoded_as(face)
    match fault.kind if fault is not None else "":
        case "duplicate":
            return [record, record]
        case "blank_metadata":
            return [msgspec.json.encode(server.view(face) | {"metadata": {}})]
        case "partial_record":
            return [msgspec.json.encode(_down(server, detail=True))]
        case "garbage":
            return [b'{"id":null,"status":17}']
        case _:
            return [record]


def _down(server: SimServer, *, detail: bool) -> Json:
    view = server.down_view()
    if detail:
        return view | {"security_groups": [{"name": "default"}]}
    return {key: view[key] for key in ("id", "status", "links")}


def _basic(server: SimServer, face: Face) -> Json:
    return {"id": server.server_id, "name": face.name, "links": server.links()}


def list_flavors(
    world: World, query: dict[str, str], microversion: str, *, detail: bool
) -> SimReply:
    """``GET /flavors/detail`` and ``GET /flavors``: in the order in which they were made."""
    limit = _limit(world, query)
    flavors = list(world.flavors.values())
    marker = query.get("marker")
    if marker is not None:
        ids = [flavor.flavor_id for flavor in flavors]
        if marker not in ids:
            raise refuse(400, f"marker [{marker}] not found")
        flavors = flavors[ids.index(marker) + 1 :]
    page = flavors[:limit]
    views = [flavor_view(world, one, microversion) for one in page]
    if not detail:
        short = ("id", "name", "links", "description")
        views = [{key: view[key] for key in short} for view in views]
    body: Json = {"flavors": views}
    place = "flavors/detail" if detail else "flavors"
    if page and len(page) == limit:
        body["flavors_links"] = _links(world, place, query, page[-1].flavor_id)
    return json_reply(200, body)


def show_flavor(world: World, flavor_id: str, microversion: str) -> SimReply:
    """``GET /flavors/{id}``."""
    flavor = world.flavors.get(flavor_id)
    if flavor is None:
        raise refuse(404, f"Flavor {flavor_id} could not be found.")
    return json_reply(200, {"flavor": flavor_view(world, flavor, microversion)})


def flavor_view(world: World, flavor: FlavorConfig, microversion: str) -> Json:
    """A flavor as Nova shows it; no swap is an empty text before 2.75."""
    root = f"{world.config.base_url}/compute"
    minor = int(microversion.partition(".")[2])
    return {
        "id": flavor.flavor_id,
        "name": flavor.name,
        "ram": flavor.ram_mb,
        "disk": flavor.disk_gb,
        "swap": "" if minor < 75 else 0,
        "OS-FLV-EXT-DATA:ephemeral": 0,
        "OS-FLV-DISABLED:disabled": False,
        "vcpus": flavor.vcpus,
        "os-flavor-access:is_public": True,
        "rxtx_factor": 1.0,
        "links": [
            {"rel": "self", "href": f"{root}/v2.1/flavors/{flavor.flavor_id}"},
            {"rel": "bookmark", "href": f"{root}/flavors/{flavor.flavor_id}"},
        ],
        "description": None,
        "extra_specs": {},
    }


def _limit(world: World, query: dict[str, str]) -> int:
    text = query.get("limit")
    if text is None or text == "":
        return world.config.max_limit
    if not _LIMIT.match(text):
        why = f"{text!r} does not match {_LIMIT.pattern!r}"
        raise invalid("limit", text, why, where="query parameters")
    return min(int(text), world.config.max_limit)


def _links(world: World, place: str, query: dict[str, str], marker: str) -> list[Json]:
    params = urlencode({**dict(sorted(query.items())), "marker": marker})
    return [{"rel": "next", "href": f"{world.config.base_url}/compute/v2.1/{place}?{params}"}]
