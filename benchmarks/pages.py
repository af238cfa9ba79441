"""A Nova that gives pages of many servers, in a process of its own, for benchmarks to list.

Identity and discovery are the served simulated cloud's. The servers are copies of one that a
real Nova gave, each with its own id, name, address and the metadata of its pool; the pages are
encoded beforehand, so that the answers cost the serving process little.

    python benchmarks/pages.py --state DIR --servers N

``GET /bench/servers/N`` changes how many there are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from attrs import evolve

from poolsm.testing import CloudConfig, SimulatedCloud
from poolsm_runners.clock import FastClock
from poolsm_runners.cloud.served import HOST, ServedCloud, clouds_yaml, write_whole

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "recorded" / "openstack" / "server-active.json"
DETAIL = "/compute/v2.1/servers/detail"
PAGE = 1000
POOL_SIZE = 100
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def server_id(n: int) -> str:
    return f"00000000-0000-4000-8000-{n:012x}"


def rows(count: int) -> list[dict[str, object]]:
    """The servers, as Nova describes them."""
    one = json.loads(RECORDED.read_text())["body"]["server"]
    addresses = one["addresses"]
    found = []
    for n in range(count):
        pool = f"pool-{n // POOL_SIZE}"
        metadata = {
            "user_id": "bench",
            "serverpool_id": pool,
            "min_vm": str(POOL_SIZE),
            "max_vm": str(POOL_SIZE),
            "host": "OpenStack",
            "network_uuid": server_id(0),
            "reattrib": "false",
            "poolsm_log": server_id(1),
            "poolsm_command": server_id(n),
        }
        address = f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"
        nets = {name: [{**a, "addr": address} for a in all_] for name, all_ in addresses.items()}
        own = {"id": server_id(n), "name": f"{pool}-{server_id(n)}"}
        found.append({**one, **own, "metadata": metadata, "addresses": nets})
    return found


def pages(count: int, base_url: str) -> dict[str, bytes]:
    """The encoded pages by their marker; the one behind the last is empty."""
    servers = rows(count)
    found = {server_id(count - 1): b'{"servers": []}'}
    for start in range(0, count, PAGE):
        page: dict[str, object] = {"servers": servers[start : start + PAGE]}
        if start + PAGE < count:
            link = f"{base_url}{DETAIL}?marker={server_id(start + PAGE - 1)}"
            page["servers_links"] = [{"rel": "next", "href": link}]
        found[server_id(start - 1) if start else ""] = json.dumps(page).encode()
    return found


async def serve(state: Path, count: int) -> None:
    """Until it is killed."""
    listener = socket.create_server((HOST, 0), backlog=64)
    config = evolve(CloudConfig(), base_url=f"http://{HOST}:{listener.getsockname()[1]}")
    held = pages(count, config.base_url)

    @web.middleware
    async def listing(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal held
        if request.path.startswith("/bench/servers/"):
            held = pages(int(request.path.rpartition("/")[2]), config.base_url)
            return web.Response()
        if request.path == DETAIL:
            body = held[request.query.get("marker", "")]
            return web.Response(body=body, content_type="application/json")
        return await handler(request)

    app = ServedCloud(SimulatedCloud(config, 0), FastClock()).application()
    app.middlewares.append(listing)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    write_whole(state / "clouds.yaml", clouds_yaml(config))
    print(json.dumps({"base_url": config.base_url}), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--servers", type=int, required=True)
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(options.state, options.servers))


if __name__ == "__main__":
    main()
