"""The simulated cloud over HTTP, in a process of its own, for unmodified OpenStack clients.

``python -m poolsm_runners.cloud.served --state DIR`` binds 127.0.0.1, writes ``clouds.yaml``
(clouds ``sim-vm`` and ``sim-infra``) into DIR and prints one line of JSON when it is ready:
``{"port": ..., "clouds_yaml": ..., "sim_url": ...}``. Time is the wall clock, ``--speed`` times
as fast: delays and boots get shorter, and the timestamps run ahead.

A request has its effect when its last byte has arrived, whatever becomes of the client.

Operators and tests use ``/sim`` (JSON, no authentication):

    GET    /sim                 time, calls by operation and status, live servers, faults
    GET    /sim/servers         the story of every server ever created
    GET    /sim/writes          every call that could change something
    GET    /sim/creates         servers per create command
    POST   /sim/faults          set one more fault; PUT: replace all by a list
    DELETE /sim/faults[?name=]  remove all faults, or those of a name
    POST   /sim/hands           {"action": ..., "arguments": {...}, "at_ms": ...}: manipulate
    POST   /sim/tokens/expire   make all tokens bad
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

import click
import msgspec
from aiohttp import web
from attrs import evolve

from poolsm.testing import CloudConfig, Fault, SimReply, SimulatedCloud, read_config
from poolsm.testing.config import PROJECTS
from poolsm.testing.replies import service_error
from poolsm_runners.clock import FastClock
from poolsm_runners.cloud.served_identity import Tokens, denied, version_documents

HOST = "127.0.0.1"
BODY_LIMIT_BYTES = 16 * 2**20
_ROOTS = {"compute": "/compute/v2.1", "image": "/image/v2", "network": "/network/v2.0"}
_POLL_S = 0.5
_GRACE_S = 0.5


class _Deed(msgspec.Struct):
    action: str
    arguments: dict[str, object] = {}
    at_ms: int | None = None


class ServedCloud:
    """One simulated cloud behind HTTP handlers.

    Attributes:
        cloud: the cloud itself, for a test that runs this in its own process.
    """

    def __init__(self, cloud: SimulatedCloud, clock: FastClock) -> None:
        self.cloud = cloud
        self._clock = clock
        self._tokens = Tokens(cloud.config)
        self._documents = version_documents(cloud.config)
        self._stopping = asyncio.Event()

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=BODY_LIMIT_BYTES)
        app.router.add_post("/v3/auth/tokens", self._sign_in)
        app.router.add_get("/sim", self._overview)
        app.router.add_get("/sim/servers", self._servers)
        app.router.add_get("/sim/writes", self._writes)
        app.router.add_get("/sim/creates", self._creates)
        app.router.add_route("*", "/sim/faults", self._faults)
        app.router.add_post("/sim/hands", self._hands)
        app.router.add_post("/sim/tokens/expire", self._expire)
        app.router.add_route("*", "/{path:.*}", self._serve)
        app.on_shutdown.append(self._stop)
        return app

    async def _stop(self, _: web.Application) -> None:
        self._stopping.set()

    # --- OpenStack --------------------------------------------------------------------------

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        project = self._tokens.wanted_project(body)
        if project is None:
            return await self._send(request, denied())
        reply = self.cloud.request(
            self._clock.now_ms(), project, "identity", "POST", "/auth/tokens", b"{}"
        )
        if reply.status == 201:
            issued = self._tokens.issue(project)
            reply = evolve(reply, body=issued.body, headers=issued.headers)
        return await self._send(request, reply)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        document = self._documents.get(request.path.rstrip("/") or "/")
        if document is not None and request.method == "GET":
            return await self._send(request, document)
        service = request.path.split("/")[1]
        root, accept = _ROOTS.get(service, ""), request.headers.get("Accept", "")
        if not root or not request.path.startswith(f"{root}/"):
            return await self._send(
                request, service_error(service, 404, "Not Found", accept=accept)
            )
        body = await request.read()
        project = self._tokens.project_of(request.headers.get("X-Auth-Token", ""))
        if project is None:
            return await self._send(request, service_error(service, 401, "", accept=accept))
        reply = self.cloud.request(
            self._clock.now_ms(),
            project,
            service,
            request.method,
            request.raw_path.removeprefix(root),
            body,
            {name.lower(): value for name, value in request.headers.items()},
        )
        return await self._send(request, reply)

    async def _send(self, request: web.Request, reply: SimReply) -> web.StreamResponse:
        if reply.hang:
            await self._until_gone(request)
            return web.Response(status=504)
        if reply.delay_ms:
            await self._clock.sleep(reply.delay_ms / 1000)
        if not (reply.cut or reply.unreachable):
            return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
        response = web.StreamResponse(status=reply.status or 200, headers=reply.headers)
        if reply.body:
            response.content_length = len(reply.body)
            await response.prepare(request)
            await response.write(reply.body[: len(reply.body) // 2])
        if request.transport is not None:
            request.transport.close()
        return response

    async def _until_gone(self, request: web.Request) -> None:
        """Keep the client waiting until it goes away."""
        while request.transport is not None and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _POLL_S)

    # --- /sim -------------------------------------------------------------------------------

    def _now(self) -> int:
        now_ms = self._clock.now_ms()
        self.cloud.advance(now_ms)
        return now_ms

    async def _overview(self, _: web.Request) -> web.Response:
        calls = [
            {"operation": operation, "status": status, "count": count}
            for (operation, status), count in sorted(self.cloud.calls.items())
        ]
        return _json(
            {
                "now_ms": self._now(),
                "calls": calls,
                "live": {project: self.cloud.live_count(project) for project in PROJECTS},
                "faults": [{"fault": one, "happened": n} for one, n in self.cloud.faults()],
            }
        )

    async def _servers(self, request: web.Request) -> web.Response:
        self._now()
        return _json(self.cloud.servers(request.query.get("project", "")))

    async def _writes(self, _: web.Request) -> web.Response:
        return _json(self.cloud.writes)

    async def _creates(self, _: web.Request) -> web.Response:
        self._now()
        return _json(self.cloud.creates_by_command())

    async def _faults(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            if request.method == "POST":
                self.cloud.add_fault(msgspec.json.decode(body, type=Fault))
            elif request.method == "PUT":
                self.cloud.set_faults(msgspec.json.decode(body, type=tuple[Fault, ...]))
            elif "name" in request.query:
                self.cloud.remove_faults(request.query["name"])
            else:
                self.cloud.heal()
        except (msgspec.MsgspecError, ValueError) as error:
            return _json({"error": str(error)}, status=400)
        return _json({"faults": len(self.cloud.faults())})

    async def _hands(self, request: web.Request) -> web.Response:
        body = await request.read()
        self._now()
        try:
            deed = msgspec.json.decode(body, type=_Deed)
            if deed.at_ms is not None:
                self.cloud.hands.schedule(deed.at_ms, deed.action, **deed.arguments)
                return _json({"result": None})
            return _json({"result": self.cloud.hands.carry_out(body.decode())})
        except (msgspec.MsgspecError, ValueError) as error:
            return _json({"error": str(error)}, status=400)

    async def _expire(self, _: web.Request) -> web.Response:
        return _json({"expired": self._tokens.expire_all()})


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def clouds_yaml(config: CloudConfig) -> str:
    """A clouds.yaml for both projects; the values are quoted as JSON, which YAML reads."""
    lines = ["clouds:"]
    for project in PROJECTS:
        auth = {
            "auth_url": f"{config.base_url}/v3",
            "username": config.username,
            "password": config.password,
            "project_name": project,
            "user_domain_id": "default",
            "project_domain_id": "default",
        }
        lines += [f"  sim-{project}:", "    auth:"]
        lines += [f"      {name}: {json.dumps(value)}" for name, value in auth.items()]
        lines += [
            f"    region_name: {json.dumps(config.region)}",
            "    identity_api_version: 3",
            "    interface: public",
        ]
    return "\n".join(lines) + "\n"


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever reads half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


async def serve(config: CloudConfig, listener: socket.socket, seed: int, speed: float) -> None:
    """Serve until SIGTERM or SIGINT; ``listener`` is bound already."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    served = ServedCloud(SimulatedCloud(config, seed), FastClock(speed=speed))
    runner = web.AppRunner(served.application(), access_log=None, shutdown_timeout=_GRACE_S)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    try:
        await stop.wait()
    finally:
        await runner.cleanup()


@click.command()
@click.option("--port", default=0, help="Port on 127.0.0.1; 0 takes a free one.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="JSON: CloudConfig.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for clouds.yaml and sim.json.",
)
@click.option("--seed", default=0, help="The same seed gives the same ids and boot times.")
@click.option("--speed", default=1.0, help="How much faster than the wall clock time runs.")
def main(port: int, config_file: Path | None, state: Path, seed: int, speed: float) -> None:
    """Serve a simulated OpenStack on 127.0.0.1."""
    try:
        config = read_config(config_file.read_bytes()) if config_file else CloudConfig()
        listener = socket.create_server((HOST, port), backlog=1024)
    except (OSError, ValueError) as error:
        sys.exit(f"simulated cloud: {error}")
    port = listener.getsockname()[1]
    config = evolve(config, base_url=f"http://{HOST}:{port}")
    state.mkdir(parents=True, exist_ok=True)
    write_whole(state / "clouds.yaml", clouds_yaml(config))
    ready = {
        "port": port,
        "pid": os.getpid(),
        "clouds_yaml": str((state / "clouds.yaml").resolve()),
        "sim_url": f"{config.base_url}/sim",
    }
    write_whole(state / "sim.json", json.dumps(ready) + "\n")
    # The socket listens already: whoever connects from now on is served.
    click.echo(json.dumps(ready))
    sys.stdout.flush()
    asyncio.run(serve(config, listener, seed, speed))


if __name__ == "__main__":
    main()
