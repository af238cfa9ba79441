"""A proxy between a client and an OpenStack, that lies as it is told.

``python -m tests.lying.proxy --auth-url http://127.0.0.1:5000/v3`` prints a line of JSON when it
is ready: ``{"auth_url": ..., "control_url": ...}``. A client that signs in at this ``auth_url``
reaches every service through the proxy (see ``origins.py``); nothing else is needed.

Told while it runs, at the control address (JSON):

    PUT    /lies        replace all lies (see ``lies.py``); DELETE: tell the truth
    GET    /lies        each with how often it happened
    GET    /exchanges   every request since the start, or from ``?after=N`` on
    POST   /close       refuse connections, and break those there are; POST /open: serve again
    PUT    /page-limit  ask Nova for pages of so many servers (0: as the client asks)
"""

import asyncio
import contextlib
import json
import signal
import socket
import struct
import sys
import time
from collections import deque
from random import Random
from uuid import UUID

import aiohttp
import click
import msgspec
from aiohttp import web
from attrs import define, field

from poolsm.commands import COMMAND_ID
from poolsm.testing.faults import NOBODY, FaultBook, Subject
from poolsm.testing.replies import FAULT_KEYS, proxy_error, service_error
from poolsm.testing.routes import Call, parse
from tests.lying import bending, lies
from tests.lying.lies import Lie
from tests.lying.origins import Origins, catalog_of, origin_of

HOST = "127.0.0.1"
BODY_LIMIT_BYTES = 64 * 2**20
OLD_ANSWERS = 400  # kept of each listing, for stale ones
# Of one connection or one hop, and not of the exchange.
_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade", "content-length", "host", "accept-encoding", "expect",
}  # fmt: skip
_LINGER_0 = struct.pack("ii", 1, 0)  # close with a reset


@define
class Exchange:
    """One request of the client and what became of it.

    Attributes:
        at_s: Unix time of its arrival.
        forwarded: it reached the real service, whose answer was ``real_status`` (0: none came).
        status: what the client was answered; 0 for nothing or a broken answer.
        lie: the kinds of the lies that happened to it.
        agent: of its User-Agent header.
        command_id: of a create, the command's id in the metadata that it gives the server.
    """

    at_s: float
    service: str
    operation: str
    method: str
    path: str
    server_id: str
    agent: str
    command_id: str = ""
    forwarded: bool = False
    real_status: int = 0
    status: int = 0
    lie: tuple[str, ...] = ()


@define
class Answer:
    """An answer on its way back."""

    status: int
    headers: dict[str, str]
    body: bytes


@define
class Proxy:
    """The doors, the lies, and the record of what passed."""

    chance: Random
    origins: Origins = field(factory=Origins)
    exchanges: list[Exchange] = field(factory=list)
    page_limit: int = 0
    _book: FaultBook = field(init=False)
    _client: aiohttp.ClientSession = field(init=False)
    _runners: dict[str, web.AppRunner] = field(factory=dict)
    _ports: dict[str, int] = field(factory=dict)
    _old: dict[str, deque[tuple[float, bytes]]] = field(factory=dict)
    _stopping: asyncio.Event = field(factory=asyncio.Event)
    _background: set[asyncio.Task[None]] = field(factory=set)

    async def start(self, auth_url: str) -> str:
        """Open the first door; the address at which a client signs in."""
        self._book = FaultBook(self.chance)
        self._client = aiohttp.ClientSession(
            auto_decompress=False, timeout=aiohttp.ClientTimeout(total=120)
        )
        self.origins.learn("identity", auth_url)
        await self._open_door(origin_of(auth_url))
        return self.origins.to_doors(auth_url.encode()).decode()

    async def close(self) -> None:
        """End everything."""
        self._stopping.set()
        await self.shut()
        for task in self._background:
            task.cancel()
        await self._client.close()

    # --- doors ------------------------------------------------------------------------------

    async def _open_door(self, origin: str) -> None:
        listener = socket.create_server((HOST, self._ports.get(origin, 0)), backlog=256)
        self._ports[origin] = listener.getsockname()[1]
        self.origins.doors[origin] = f"http://{HOST}:{self._ports[origin]}"
        app = web.Application(client_max_size=BODY_LIMIT_BYTES)

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._handle(origin, request)

        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        self._runners[origin] = runner

    async def shut(self) -> None:
        """Refuse connections, and break those there are."""
        runners, self._runners = self._runners, {}
        await asyncio.gather(*(runner.cleanup() for runner in runners.values()))

    async def open(self) -> None:
        """Serve again, at the same addresses."""
        for origin in self._ports.keys() - self._runners.keys():
            await self._open_door(origin)

    # --- lies -------------------------------------------------------------------------------

    def tell(self, *told: Lie) -> None:
        """Replace all lies."""
        self._book.clear()
        for lie in told:
            self._book.add(lie)

    def told(self) -> list[tuple[Lie, int]]:
        """The lies that are told, and how often each happened."""
        return [(one.fault, one.happened) for one in self._book.active]  # type: ignore[misc]

    def _strike(self, kinds: tuple[str, ...], exchange: Exchange, subject: Subject) -> Lie | None:
        now_ms = round(time.time() * 1000)
        found = self._book.strike(kinds, now_ms, exchange.operation, exchange.service, subject)
        if found is None:
            return None
        assert isinstance(found, Lie)
        exchange.lie += (found.kind,)
        return found

    # --- one exchange -----------------------------------------------------------------------

    async def _handle(self, origin: str, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        service, below = self.origins.service_of(origin, request.raw_path)
        call = parse("vm", service, request.method, below, body=body, headers={})
        exchange = Exchange(
            at_s=time.time(),
            service=service,
            operation=call.operation,
            method=request.method,
            path=below,
            server_id=call.server_id,
            agent=request.headers.get("User-Agent", ""),
            command_id=_command_of(call),
        )
        self.exchanges.append(exchange)
        subject = Subject(server_id=call.server_id) if call.server_id else NOBODY
        kinds = lies.BEFORE_EFFECT if "marker" in call.query else lies.BEFORE_EFFECT[:-1]
        before = self._strike(kinds, exchange, subject)
        if before is not None:
            return await self._lie_before(before, exchange, origin, request, body)
        answer = await self._forward(exchange, origin, request, body)
        answer = self._bent(answer, exchange, call)
        after = self._strike((*lies.AFTER, *_BROKEN), exchange, subject)
        if after is not None:
            return await self._lie_after(after, exchange, request, answer)
        exchange.status = answer.status
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    async def _lie_before(
        self, lie: Lie, exchange: Exchange, origin: str, request: web.Request, body: bytes
    ) -> web.StreamResponse:
        match lie.kind:
            case "refuse":
                return _sent(exchange, _refusal(lie, exchange.service, request))
            case "lost_marker":
                lie = Lie(kind="refuse", status=400, message="marker [?] not found")
                return _sent(exchange, _refusal(lie, exchange.service, request))
            case "pretend":
                return _sent(exchange, _pretended(exchange, body, self.chance))
            case "drop":
                return _reset(request)
            case "late":
                task = asyncio.create_task(self._later(lie, exchange, origin, request, body))
                self._background.add(task)
                task.add_done_callback(self._background.discard)
        return await self._hang(request)

    async def _later(
        self, lie: Lie, exchange: Exchange, origin: str, request: web.Request, body: bytes
    ) -> None:
        await asyncio.sleep(lie.delay_ms / 1000)
        await self._forward(exchange, origin, request, body)

    async def _lie_after(
        self, lie: Lie, exchange: Exchange, request: web.Request, answer: Answer
    ) -> web.StreamResponse:
        match lie.kind:
            case "refuse_after":
                return _sent(exchange, _refusal(lie, exchange.service, request))
            case "drop_after":
                return _reset(request)
            case "delay":
                await asyncio.sleep(lie.delay_ms / 1000)
                return _sent(exchange, answer)
            case "cut":
                return await _cut(request, answer)
            case "broken_chunks":
                return await _broken_chunks(request, answer)
            case "drip":
                return await self._drip(request, answer, lie.delay_ms / 1000)
        return await self._hang(request)

    async def _forward(
        self, exchange: Exchange, origin: str, request: web.Request, body: bytes
    ) -> Answer:
        exchange.forwarded = True
        url = origin + self._with_limit(exchange, request.raw_path)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        headers["Accept-Encoding"] = "identity"
        try:
            async with self._client.request(
                request.method, _raw(url), data=body or None, headers=headers, allow_redirects=False
            ) as reply:
                real = await reply.read()
                kept = {k: v for k, v in reply.headers.items() if k.lower() not in _HOP}
                exchange.real_status = reply.status
        except aiohttp.ClientError as error:
            return Answer(502, {}, f"lying proxy: {url}: {error}".encode())
        for service, endpoint in catalog_of(real):
            self.origins.learn(service, endpoint)
            if origin_of(endpoint) not in self.origins.doors:
                await self._open_door(origin_of(endpoint))
        kept = {k: self.origins.to_doors(v.encode()).decode() for k, v in kept.items()}
        if exchange.service != "identity" or exchange.operation in {"auth", "other"}:
            real = self.origins.to_doors(real)
        return Answer(exchange.real_status, kept, real)

    def _with_limit(self, exchange: Exchange, path: str) -> str:
        if not self.page_limit or exchange.operation != "list" or "limit=" in path:
            return path
        return f"{path}{'&' if '?' in path else '?'}limit={self.page_limit}"

    async def _hang(self, request: web.Request) -> web.StreamResponse:
        """Keep the client waiting until it goes away."""
        while request.transport is not None and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 0.2)
        return web.Response(status=504)

    async def _drip(
        self, request: web.Request, answer: Answer, pause_s: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(answer.body)
        await response.prepare(request)
        for number in range(len(answer.body)):
            if request.transport is None or self._stopping.is_set():
                break
            await response.write(answer.body[number : number + 1])
            await asyncio.sleep(pause_s)
        return response

    # --- bodies -----------------------------------------------------------------------------

    def _bent(self, answer: Answer, exchange: Exchange, call: Call) -> Answer:
        if not 200 <= answer.status < 300:
            return answer
        if exchange.method != "GET":
            answer.body = self._spoilt(answer.body, exchange, answer.headers)
            return answer
        body = self._aged(answer.body, exchange, call)
        try:
            value = json.loads(body)
        except ValueError:
            return answer
        key = bending.collection_of(value)
        if key:
            for kind, bend in bending.PAGES.items():
                if self._strike((kind,), exchange, NOBODY) is not None:
                    value = bend(value, self.chance)
            value = value | {key: self._bent_records(value[key], exchange)}
        elif isinstance(value.get("server"), dict):
            bent = self._bent_records([value["server"]], exchange)
            value = value | {"server": bent[0]} if bent else value
        if exchange.lie:
            body = json.dumps(value).encode()
        return Answer(200, answer.headers, self._spoilt(body, exchange, answer.headers))

    def _bent_records(self, records: list[bending.Json], exchange: Exchange) -> list[bending.Json]:
        found: list[bending.Json] = []
        for record in records:
            subject = Subject(server_id=str(record.get("id", "")))
            lie = self._strike(lies.RECORD, exchange, subject)
            found += bending.bent_record(lie.kind if lie else "", record)
        return found

    def _aged(self, body: bytes, exchange: Exchange, call: Call) -> bytes:
        """Remember a listing's answer, and answer with an old one if told to."""
        if exchange.operation != "list":
            return body
        known = self._old.setdefault(exchange.path, deque(maxlen=OLD_ANSWERS))
        known.append((exchange.at_s, body))
        lie = self._strike(("stale",), exchange, NOBODY)
        if lie is None:
            return body
        before = [old for at_s, old in known if at_s <= exchange.at_s - lie.age_ms / 1000]
        return before[-1] if before else known[0][1]

    def _spoilt(self, body: bytes, exchange: Exchange, headers: dict[str, str]) -> bytes:
        if self._strike(("half_json",), exchange, NOBODY) is not None:
            return body[: len(body) // 2]
        if self._strike(("error_body",), exchange, NOBODY) is not None:
            error = {"code": 500, "message": "Unexpected API Error."}
            return json.dumps({"computeFault": error}).encode()
        if self._strike(("not_json",), exchange, NOBODY) is not None:
            headers["Content-Type"] = "text/html"
            return b"<html><body><h1>Welcome to the gateway</h1></body></html>\n"
        return body


_BROKEN = ("broken_chunks", "drip")


def _raw(url: str) -> "aiohttp.client.StrOrURL":
    from yarl import URL  # noqa: PLC0415 - aiohttp's own

    return URL(url, encoded=True)


def _command_of(call: Call) -> str:
    server = call.body.get("server") if call.operation == "create" else None
    metadata = server.get("metadata") if isinstance(server, dict) else None
    return str(metadata.get(COMMAND_ID, "")) if isinstance(metadata, dict) else ""


def _sent(exchange: Exchange, answer: Answer) -> web.Response:
    exchange.status = answer.status
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


def _refusal(lie: Lie, service: str, request: web.Request) -> Answer:
    """The service's own error, or a gateway's in HTML."""
    if lie.html:
        reply = proxy_error(lie.status, lie.message, lie.retry_after_s)
    else:
        known = lie.message or FAULT_KEYS.get(lie.status, "computeFault")
        accept = request.headers.get("Accept", "")
        reply = service_error(service, lie.status, known, lie.retry_after_s, accept=accept)
    return Answer(reply.status, dict(reply.headers), reply.body)


def _pretended(exchange: Exchange, body: bytes, chance: Random) -> Answer:
    """The answer to a write that was carried out, which it was not."""
    status = {"create": 202, "delete": 204, "metadata": 200, "rename": 200}
    if exchange.operation == "create":
        made = {"id": str(UUID(int=chance.getrandbits(128), version=4)), "links": []}
        body = json.dumps({"server": made}).encode()
    empty = exchange.operation not in {"create", "metadata", "rename"}
    headers = {} if empty else {"Content-Type": "application/json"}
    return Answer(status.get(exchange.operation, 202), headers, b"" if empty else body)


def _reset(request: web.Request) -> web.StreamResponse:
    """Break the connection off, with a reset and not an end."""
    if request.transport is not None:
        sock = request.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
        request.transport.abort()
    return web.Response(status=502)


async def _cut(request: web.Request, answer: Answer) -> web.StreamResponse:
    """Half of the body, with the length of the whole."""
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = max(len(answer.body), 1)
    await response.prepare(request)
    await response.write(answer.body[: len(answer.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


async def _broken_chunks(request: web.Request, answer: Answer) -> web.StreamResponse:
    """A chunk that is shorter than it says, and no last one."""
    if request.transport is not None:
        head = [f"HTTP/1.1 {answer.status} Lie", "Transfer-Encoding: chunked"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        half = answer.body[: len(answer.body) // 2]
        size = f"{len(answer.body) + 1:x}"
        request.transport.write("\r\n".join((*head, "", size, "")).encode() + half)
        request.transport.close()
    return web.Response(status=502)


def _control(proxy: Proxy) -> web.Application:
    async def put_lies(request: web.Request) -> web.Response:
        try:
            told = msgspec.json.decode(await request.read(), type=list[Lie])
        except (msgspec.MsgspecError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        proxy.tell(*told)
        return _json(len(told))

    async def delete_lies(_: web.Request) -> web.Response:
        proxy.tell()
        return _json(0)

    async def get_lies(_: web.Request) -> web.Response:
        return _json([{"lie": lie, "happened": count} for lie, count in proxy.told()])

    async def get_exchanges(request: web.Request) -> web.Response:
        return _json(proxy.exchanges[int(request.query.get("after", "0")) :])

    async def shut(_: web.Request) -> web.Response:
        await proxy.shut()
        return _json(None)

    async def reopen(_: web.Request) -> web.Response:
        await proxy.open()
        return _json(None)

    async def put_page_limit(request: web.Request) -> web.Response:
        proxy.page_limit = int(await request.text())
        return _json(proxy.page_limit)

    app = web.Application(client_max_size=BODY_LIMIT_BYTES)
    app.add_routes(
        [
            web.put("/lies", put_lies),
            web.delete("/lies", delete_lies),
            web.get("/lies", get_lies),
            web.get("/exchanges", get_exchanges),
            web.post("/close", shut),
            web.post("/open", reopen),
            web.put("/page-limit", put_page_limit),
        ]
    )
    return app


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


async def _serve(auth_url: str, seed: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    proxy = Proxy(Random(seed))
    ours = await proxy.start(auth_url)
    listener = socket.create_server((HOST, 0))
    runner = web.AppRunner(_control(proxy), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    control = f"http://{HOST}:{listener.getsockname()[1]}"
    sys.stdout.write(json.dumps({"auth_url": ours, "control_url": control}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await runner.cleanup()
    await proxy.close()


@click.command()
@click.option("--auth-url", required=True, help="Of the real Keystone.")
@click.option("--seed", default=0, help="Decides what chance decides.")
def main(auth_url: str, seed: int) -> None:
    """Stand between a client and an OpenStack, and lie as told."""
    asyncio.run(_serve(auth_url, seed))


if __name__ == "__main__":
    main()
