"""The bytes of Nova, Glance and Neutron into records, and nothing in between.

Each page is decoded in one pass by msgspec into small structs that name only the fields that
a record has; a listing of 1,000 servers costs milliseconds. What a record needs and the cloud
does not give (an id, a status) makes the page unreadable: such a page never counts as a
listing (R10). Fields that no rule needs may be missing or null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from attrs import frozen

from poolsm.records import FlavorRecord, ImageRecord, NetworkRecord, ServerRecord

R = TypeVar("R")


class DecodeError(Exception):
    """The bytes are not what the service answers. The text holds no value of the body."""


class _Link(msgspec.Struct):
    href: str
    rel: str = ""


class _Id(msgspec.Struct):
    id: str


class _Flavor(msgspec.Struct):
    # An id up to microversion 2.46, the flavor itself without its id from 2.47 on.
    id: str | None = None
    original_name: str | None = None


class _Address(msgspec.Struct):
    addr: str


class _Fault(msgspec.Struct):
    message: str | None = None


class _Server(msgspec.Struct):
    id: str
    status: str
    name: str | None = None
    task_state: str | None = msgspec.field(default=None, name="OS-EXT-STS:task_state")
    metadata: dict[str, str] | None = None
    image: _Id | str | None = None  # "" for boot from volume
    flavor: _Flavor | None = None
    key_name: str | None = None
    addresses: dict[str, list[_Address]] = {}
    created: str | None = None
    fault: _Fault | None = None
    progress: int | None = None


class _Servers(msgspec.Struct):
    servers: list[_Server]
    servers_links: list[_Link] = []


class _OneServer(msgspec.Struct):
    server: _Server


class _CreatedServer(msgspec.Struct):
    server: _Id


class _Image(msgspec.Struct):
    id: str
    status: str
    visibility: str
    name: str | None = None
    owner: str | None = None
    created_at: str | None = None


class _Images(msgspec.Struct):
    images: list[_Image]
    next: str | None = None


class _FullFlavor(msgspec.Struct):
    id: str
    name: str
    vcpus: int = 0
    ram: int = 0
    disk: int = 0


class _Flavors(msgspec.Struct):
    flavors: list[_FullFlavor]
    flavors_links: list[_Link] = []


class _Network(msgspec.Struct):
    id: str
    name: str = ""
    status: str | None = None
    project_id: str | None = None
    tenant_id: str | None = None
    shared: bool | None = None


class _Networks(msgspec.Struct):
    networks: list[_Network]
    networks_links: list[_Link] = []


_SERVERS = msgspec.json.Decoder(_Servers)
_SERVER = msgspec.json.Decoder(_OneServer)
_CREATED = msgspec.json.Decoder(_CreatedServer)
_IMAGES = msgspec.json.Decoder(_Images)
_FLAVORS = msgspec.json.Decoder(_Flavors)
_NETWORKS = msgspec.json.Decoder(_Networks)
_ERROR = msgspec.json.Decoder(dict[str, Any])


@frozen
class Page(Generic[R]):
    """One page of a listing.

    Attributes:
        records: what is on it.
        last_id: id of the last one, which is the marker of what would follow.
        next_url: where the service says that the next page is; empty on the last one.
    """

    records: list[R]
    last_id: str
    next_url: str = ""


def servers_page(body: bytes) -> Page[ServerRecord]:
    """A page of ``GET /servers/detail``; raises DecodeError."""
    page = _decoded(_SERVERS.decode, body)
    return Page(
        [_server(one) for one in page.servers], _last(page.servers), _next(page.servers_links)
    )


def server(body: bytes) -> ServerRecord:
    """The answer to ``GET /servers/{id}``; raises DecodeError."""
    return _server(_decoded(_SERVER.decode, body).server)


def created_server_id(body: bytes) -> str:
    """The id in the answer to a create; raises DecodeError."""
    return _decoded(_CREATED.decode, body).server.id


def images_page(body: bytes) -> Page[ImageRecord]:
    """A page of ``GET /images``; raises DecodeError."""
    page = _decoded(_IMAGES.decode, body)
    records = [
        ImageRecord(
            image_id=one.id,
            name=one.name,
            status=one.status,
            visibility=one.visibility,
            owner=one.owner,
            created=one.created_at or "",
        )
        for one in page.images
    ]
    return Page(records, _last(page.images), page.next or "")


def flavors_page(body: bytes) -> Page[FlavorRecord]:
    """A page of ``GET /flavors/detail``; raises DecodeError."""
    page = _decoded(_FLAVORS.decode, body)
    records = [
        FlavorRecord(
            flavor_id=one.id, name=one.name, vcpus=one.vcpus, ram_mb=one.ram, disk_gb=one.disk
        )
        for one in page.flavors
    ]
    return Page(records, _last(page.flavors), _next(page.flavors_links))


def networks_page(body: bytes) -> Page[NetworkRecord]:
    """A page of ``GET /networks``; raises DecodeError."""
    page = _decoded(_NETWORKS.decode, body)
    records = [
        NetworkRecord(
            network_id=one.id,
            name=one.name,
            status=one.status or "",
            owner=one.project_id or one.tenant_id,
            shared=bool(one.shared),
        )
        for one in page.networks
    ]
    return Page(records, _last(page.networks), _next(page.networks_links))


def json_object(body: bytes) -> dict[str, Any] | None:
    """The object that a body is, None if it is anything else."""
    try:
        return _ERROR.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _decoded(decode: Callable[[bytes], R], body: bytes) -> R:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DecodeError(str(error)) from None


def _server(one: _Server) -> ServerRecord:
    image = one.image
    flavor = one.flavor
    return ServerRecord(
        one.id,
        one.status,
        one.name,
        one.task_state,
        one.metadata,
        image.id if isinstance(image, _Id) else None,
        None if flavor is None else flavor.id or flavor.original_name,
        one.key_name,
        tuple(
            f"{network}:{address.addr}"
            for network, addresses in one.addresses.items()
            for address in addresses
        ),
        one.created or "",
        None if one.fault is None else one.fault.message or "",
        one.progress or 0,
    )


def _last(page: Sequence[_Server | _Image | _FullFlavor | _Network]) -> str:
    return page[-1].id if page else ""


def _next(links: list[_Link]) -> str:
    return next((link.href for link in links if link.rel == "next"), "")
