"""OpenStack's protocol over any transport: what the loop asks, as requests and answers (C4).

Nothing is interpreted here beyond the shape of an answer. Listings are all or nothing (R10):
whatever casts doubt on one page fails the whole. Commands never raise for what the cloud
does; what it said, or that it said nothing, is the answer.
"""

from __future__ import annotations

import asyncio
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
Decoder = Callable[[bytes], decode.Page[R]]

PAGE_LIMIT = 1000  # what Nova, Glance and Neutron give at most by default
READS_AT_ONCE = 4  # of servers that a listing lacks
LARGE_BODY_BYTES = 100_000  # decoded beside the event loop, not in its way
MAX_PAGES = 10_000  # ten million records: a listing that goes on beyond is no listing


class Gateway:
    """A :class:`~poolsm_runners.cloud.port.Cloud` made of HTTP requests.

    The transport adds the pinned microversion and the token. Each page of a listing and each
    request of a command has its own deadline, so a listing of n pages ends within n times
    ``list_s`` and a command that reads first within ``read_s + write_s``.

    Servers are listed without a limit. Nova shows the servers of a cell that is down only in
    a listing without limit, marker, sorting or filter; with one of these it leaves them out,
    with a 200, as if they were gone (seen with Nova 34; ``_is_cell_down_supported``). From
    the second page on there is no way around a marker, and a server that is just being built
    may be passed over as well: Nova moves it from one of its tables to another, whose order
    begins before the marker. So a listing of several pages proves no absence by itself: each
    server that an earlier listing had, or that this gateway made, is then read on its own.

    Args:
        transport: what carries the requests.
        deadlines: seconds for each class of call.
        page_limit: ask for pages of this size, of servers too; for tests.
    """

    def __init__(
        self, transport: Transport, deadlines: Deadlines, *, page_limit: int | None = None
    ) -> None:
        self._transport = transport
        self._deadlines = deadlines
        self._page_limit = page_limit
        self._known: set[str] = set()  # ids listed last, or made before the present listing
        self._made: set[str] = set()  # ids made since

    async def projects(self) -> Projects:
        """The ids of both projects; raises ListingError when there is no authenticating."""
        try:
            return await self._transport.projects()
        except TransportError as error:
            raise ListingError(error.message, transport_error=error.kind) from None

    async def list_servers(self) -> list[ServerRecord]:
        """All servers of the VM project; raises ListingError."""
        path = "/servers/detail"
        query = "" if self._page_limit is None else f"limit={self._page_limit}"
        made, self._made = self._made, set()
        self._known |= made
        records, pages = await self._list(VM, "compute", path, query, decode.servers_page)
        if query or pages > 1:
            records += await self._left_out(records)
        self._known = {record.server_id for record in records}
        return records

    async def list_images(self, project: str) -> list[ImageRecord]:
        """All images that a project sees, community ones aside; raises ListingError."""
        return await self._list_with_limit(project, "image", "/images", decode.images_page)

    async def list_flavors(self, project: str) -> list[FlavorRecord]:
        """All flavors that a project may use; raises ListingError."""
        path = "/flavors/detail"
        return await self._list_with_limit(project, "compute", path, decode.flavors_page)

    async def list_networks(self, project: str) -> list[NetworkRecord]:
        """All networks that a project sees; raises ListingError."""
        return await self._list_with_limit(project, "network", "/networks", decode.networks_page)

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

    async def _list_with_limit(
        self, project: str, service: str, path: str, decoder: Decoder[R]
    ) -> list[R]:
        # Without a limit Glance gives 25 records a page.
        query = f"limit={self._page_limit or PAGE_LIMIT}"
        return (await self._list(project, service, path, query, decoder))[0]

    async def _list(
        self, project: str, service: str, path: str, query: str, decoder: Decoder[R]
    ) -> tuple[list[R], int]:
        """All records, and on how many pages they came."""
        records: list[R] = []
        seen = {query}
        for pages in range(1, MAX_PAGES + 1):
            page = await self._page(project, service, _url(path, query), decoder)
            records += page.records
            if page.next_url:
                query = urlsplit(page.next_url).query
                if "marker" not in parse_qs(query) or query in seen:
                    raise ListingError(f"{path}: the link to the next page leads back")
            elif self._may_go_on(pages, page):
                query = f"limit={self._page_limit or PAGE_LIMIT}&marker={quote(page.last_id)}"
            else:
                return records, pages
            seen.add(query)
        raise ListingError(f"{path}: more than {MAX_PAGES} pages")

    def _may_go_on(self, pages: int, page: decode.Page[R]) -> bool:
        """Whether a page without a link to the next one might still not be the last.

        Nova takes a server that it finds in two of its tables off the page; the page is then
        short, and a short one gets no link, whatever follows. Only an empty page after it,
        or a page that is far from full, is the end.
        """
        limit = self._page_limit or PAGE_LIMIT
        return bool(page.records) and (pages > 1 or 2 * len(page.records) >= limit)

    async def _left_out(self, records: list[ServerRecord]) -> list[ServerRecord]:
        """Servers that were known before and that this listing lacks, though they exist."""
        absent = sorted(self._known.difference(record.server_id for record in records))
        at_once = asyncio.Semaphore(READS_AT_ONCE)

        async def read(server_id: str) -> Answer:
            async with at_once:
                return await self._read(server_id)

        found: list[ServerRecord] = []
        for answer in await asyncio.gather(*map(read, absent)):
            if answer.server is not None:
                found.append(answer.server)
            elif answer.http_status != 404 or not answer.error_kind:
                raise ListingError(
                    f"/servers: reading one that the listing lacks: {answer.message}",
                    http_status=answer.http_status,
                    transport_error=answer.transport_error,
                )
        return found

    async def _page(
        self, project: str, service: str, path: str, decoder: Decoder[R]
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
                f"{path}: {reply.status} {refusal.message}".rstrip(),
                http_status=reply.status,
                retry_after_s=refusal.retry_after_s,
            )
        try:
            if len(reply.body) < LARGE_BODY_BYTES:
                return decoder(reply.body)
            return await asyncio.to_thread(decoder, reply.body)  # 20 ms for a thousand servers
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
            server_id = decode.created_server_id(reply.body)
        except decode.DecodeError as error:
            # Accepted, by whoever answered; which server it is, a listing will tell.
            return Answer(reply.status, message=f"unreadable answer: {error}")
        self._made.add(server_id)
        return Answer(reply.status, server_id=server_id)

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


def _url(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


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
