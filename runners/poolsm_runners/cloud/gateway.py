"""OpenStack's protocol over any transport: what the loop asks, as requests and answers (C4).

Nothing is interpreted here beyond the shape of an answer. Listings are all or nothing (R10):
whatever casts doubt on one page fails the whole. Commands never raise for what the cloud
does; what it said, or that it said nothing, is the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from poolsm import expect
from poolsm.answers import NOT_SENT
from poolsm.commands import (
    ClaimServer,
    Command,
    CreateServer,
    DeleteServer,
    FindServer,
    RebuildServer,
    RenameServer,
    StartServer,
    StopServer,
)
from poolsm.records import FlavorRecord, ImageRecord, NetworkRecord, ServerRecord
from poolsm_runners.cloud import decode
from poolsm_runners.cloud.port import (
    VM,
    Answer,
    Deadlines,
    ListingError,
    Projects,
    Reply,
    Transport,
    TransportError,
)
from poolsm_runners.cloud.refusals import parse_refusal

R = TypeVar("R")

PAGE_LIMIT = 1000
MAX_PAGES = 10_000  # ten million records: a listing that goes on beyond is no listing


class Gateway:
    """A :class:`~poolsm_runners.cloud.port.Cloud` made of HTTP requests.

    The transport adds the pinned microversion and the token. Each page of a listing and each
    request of a command has its own deadline, so a listing of n pages ends within n times
    ``list_s`` and a command that reads first within ``read_s + write_s``.
    """

    def __init__(
        self, transport: Transport, deadlines: Deadlines, *, page_limit: int = PAGE_LIMIT
    ) -> None:
        self._transport = transport
        self._deadlines = deadlines
        self._page_limit = page_limit

    async def projects(self) -> Projects:
        """The ids of both projects; raises ListingError when there is no authenticating."""
        try:
            return await self._transport.projects()
        except TransportError as error:
            raise ListingError(error.message, transport_error=error.kind) from None

    async def list_servers(self) -> list[ServerRecord]:
        """All servers of the VM project; raises ListingError."""
        return await self._list(VM, "compute", "/servers/detail", decode.servers_page)

    async def list_images(self, project: str) -> list[ImageRecord]:
        """All images that a project sees, community ones aside; raises ListingError."""
        return await self._list(project, "image", "/images", decode.images_page)

    async def list_flavors(self) -> list[FlavorRecord]:
        """All flavors that the VM project may use; raises ListingError."""
        return await self._list(VM, "compute", "/flavors/detail", decode.flavors_page)

    async def list_networks(self) -> list[NetworkRecord]:
        """All networks that the VM project sees; raises ListingError."""
        return await self._list(VM, "network", "/networks", decode.networks_page)

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()

    async def execute(self, command: Command, user_data: str = "") -> Answer:
        """Carry out one command; raises only TypeError, for a command that is no cloud call."""
        match command:
            case CreateServer():
                return await self._create(command, user_data)
            case DeleteServer():
                return await self._delete(command)
            case ClaimServer():
                return await self._claim(command)
            case StopServer():
                return await self._act(command.server_id, {"os-stop": None})
            case StartServer():
                return await self._act(command.server_id, {"os-start": None})
            case RebuildServer():
                rebuild = {"imageRef": command.image_id, "name": command.name}
                return await self._act(command.server_id, {"rebuild": rebuild})
            case RenameServer():
                body = {"server": {"name": command.name}}
                return await self._write("PUT", _path(command.server_id), body, command.server_id)
            case FindServer():
                return await self._read(command.server_id)
            case _:
                raise TypeError(f"{type(command).__name__} is not a call to the cloud")

    # A page that has as many records as were asked for is followed by another one, always:
    # all three services give a next link then, even if that page turns out to be empty.
    async def _list(
        self, project: str, service: str, path: str, decoder: Callable[[bytes], decode.Page[R]]
    ) -> list[R]:
        records: list[R] = []
        query = f"limit={self._page_limit}"
        seen = {query}
        for _ in range(MAX_PAGES):
            page = await self._page(project, service, f"{path}?{query}", decoder)
            records += page.records
            if not page.next_url:
                if len(page.records) >= self._page_limit:
                    raise ListingError(f"{path}: a full page without a link to the next one")
                return records
            query = urlsplit(page.next_url).query
            if "marker" not in parse_qs(query) or query in seen:
                raise ListingError(f"{path}: the link to the next page leads back")
            seen.add(query)
        raise ListingError(f"{path}: more than {MAX_PAGES} pages")

    async def _page(
        self, project: str, service: str, path: str, decoder: Callable[[bytes], decode.Page[R]]
    ) -> decode.Page[R]:
        try:
            reply = await self._transport.request(
                project, service, "GET", path, deadline_s=self._deadlines.list_s
            )
        except TransportError as error:
            raise ListingError(f"{path}: {error.message}", transport_error=error.kind) from None
        if reply.status != 200:
            refusal = parse_refusal(reply, time.time())
            raise ListingError(
                f"{path}: {reply.status} {refusal.message}".rstrip(), http_status=reply.status
            )
        try:
            return decoder(reply.body)
        except decode.DecodeError as error:
            raise ListingError(f"{path}: unreadable answer: {error}", http_status=200) from None

    async def _create(self, command: CreateServer, user_data: str) -> Answer:
        server: dict[str, object] = {
            "name": command.name,
            "imageRef": command.image_id,
            "flavorRef": command.flavor_id,
            "networks": [{"uuid": network} for network in command.networks] or "none",
            "config_drive": True,
            "metadata": command.metadata,
        }
        if command.key_name:
            server["key_name"] = command.key_name
        if user_data:
            server["user_data"] = user_data
        try:
            reply = await self._transport.request(
                VM,
                "compute",
                "POST",
                "/servers",
                body=msgspec.json.encode({"server": server}),
                deadline_s=self._deadlines.create_s,
                once=True,
            )
        except TransportError as error:
            return _no_answer(error)
        if not _ok(reply):
            return _refused(reply, user_data)
        try:
            return Answer(reply.status, server_id=decode.created_server_id(reply.body))
        except decode.DecodeError as error:
            # Accepted, by whoever answered; which server it is, a listing will tell.
            return Answer(reply.status, message=f"unreadable answer: {error}")

    async def _delete(self, command: DeleteServer) -> Answer:
        found = await self._read(command.server_id)
        stop = _not_to_be_done(command, found)
        if stop is not None:
            return stop
        return await self._write("DELETE", _path(command.server_id), None, command.server_id)

    async def _claim(self, command: ClaimServer) -> Answer:
        found = await self._read(command.server_id)
        stop = _not_to_be_done(command, found)
        if stop is not None:
            return stop
        # POST adds to the metadata and changes it, PUT would remove what it does not name.
        path = _path(command.server_id, "/metadata")
        body = {"metadata": command.metadata}
        return await self._write("POST", path, body, command.server_id)

    async def _act(self, server_id: str, action: dict[str, object]) -> Answer:
        return await self._write("POST", _path(server_id, "/action"), action, server_id)

    async def _read(self, server_id: str) -> Answer:
        try:
            reply = await self._transport.request(
                VM, "compute", "GET", _path(server_id), deadline_s=self._deadlines.read_s
            )
        except TransportError as error:
            return _no_answer(error)
        if not _ok(reply):
            return _refused(reply)
        try:
            record = decode.server(reply.body)
        except decode.DecodeError as error:
            return Answer(transport_error="unreadable", message=f"unreadable answer: {error}")
        if record.server_id != server_id:
            return Answer(
                transport_error="unreadable", message=f"answered with server {record.server_id}"
            )
        return Answer(reply.status, server_id=server_id, server=record)

    async def _write(self, method: str, path: str, body: object, server_id: str) -> Answer:
        try:
            reply = await self._transport.request(
                VM,
                "compute",
                method,
                path,
                body=None if body is None else msgspec.json.encode(body),
                deadline_s=self._deadlines.write_s,
            )
        except TransportError as error:
            return _no_answer(error)
        if not _ok(reply):
            return _refused(reply)
        return Answer(reply.status, server_id=server_id)


def _not_to_be_done(command: Command, found: Answer) -> Answer | None:
    """The answer that ends a command after the reading before it, None to go on (R8).

    What went wrong in reading proves that nothing was done: no byte of the command left.
    """
    if found.transport_error is not None:
        text = f"{found.transport_error} in reading the server first: {found.message}"
        return Answer(transport_error=NOT_SENT, message=text)
    if found.server is None:
        return found
    verdict = expect.verdict(command, found.server)
    if verdict == expect.ALREADY:
        return found
    if verdict != expect.GO:
        return Answer(server_id=found.server_id, server=found.server, unmet=verdict)
    return None


def _path(server_id: str, rest: str = "") -> str:
    return f"/servers/{quote(server_id, safe='')}{rest}"


def _ok(reply: Reply) -> bool:
    return 200 <= reply.status < 300


def _no_answer(error: TransportError) -> Answer:
    return Answer(transport_error=error.kind, message=error.message)


def _refused(reply: Reply, user_data: str = "") -> Answer:
    refusal = parse_refusal(reply, time.time(), user_data)
    return Answer(
        reply.status,
        error_kind=refusal.kind,
        message=refusal.message,
        retry_after_s=refusal.retry_after_s,
    )
