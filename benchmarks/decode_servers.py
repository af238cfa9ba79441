"""Servers decoded per CPU-second: ours, the standard library, openstacksdk; in one run.

Trust the ratios: the absolute figures are this machine's, now.

    python benchmarks/decode_servers.py [--servers N] [--seconds S] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poolsm.records import ServerRecord
from poolsm_runners.cloud import decode

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "recorded" / "openstack" / "server-active.json"
OURS = "msgspec into ServerRecord (ours)"


def listing(servers: int) -> bytes:
    """A page of a real server, as often as asked for, each with its own id and name."""
    server = json.loads(RECORDED.read_text())["body"]["server"]
    rows = [
        {**server, "id": f"00000000-0000-4000-8000-{n:012x}", "name": f"pool-1-{n:012x}"}
        for n in range(servers)
    ]
    return json.dumps({"servers": rows}).encode()


def ours(body: bytes) -> list[Any]:
    return decode.servers_page(body).records


def json_only(body: bytes) -> list[Any]:
    rows: list[Any] = json.loads(body)["servers"]
    return rows


def json_kwargs(body: bytes) -> list[Any]:
    return [
        ServerRecord(
            server_id=row["id"],
            status=row["status"],
            name=row.get("name"),
            task_state=row.get("OS-EXT-STS:task_state"),
            metadata=row.get("metadata"),
            image_id=row["image"]["id"] if row.get("image") else None,
            flavor_id=row["flavor"].get("id") or row["flavor"].get("original_name"),
            key_name=row.get("key_name"),
            addresses=tuple(
                f"{network}:{one['addr']}"
                for network, addresses in row.get("addresses", {}).items()
                for one in addresses
            ),
            created=row.get("created") or "",
            fault=row["fault"].get("message") if row.get("fault") else None,
            progress=row.get("progress") or 0,
        )
        for row in json.loads(body)["servers"]
    ]


def sdk_resources() -> Callable[[bytes], list[Any]]:
    from openstack.compute.v2.server import Server  # noqa: PLC0415 - it takes a second

    def run(body: bytes) -> list[Any]:
        return [Server.existing(**row) for row in json.loads(body)["servers"]]

    return run


def rate(work: Callable[[bytes], list[Any]], body: bytes, seconds: float) -> float:
    """Servers per CPU-second, over at least so many CPU-seconds and one run to warm up."""
    work(body)
    done = 0
    began = time.process_time()
    while (spent := time.process_time() - began) < seconds:
        done += len(work(body))
    return done / spent


def measure(servers: int, seconds: float) -> dict[str, float]:
    body = listing(servers)
    if ours(body) != json_kwargs(body):
        raise SystemExit("the decoders disagree")
    small = listing(max(1, servers // 20))  # the SDK takes milliseconds a server
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sdk = rate(sdk_resources(), small, seconds)
    return {
        OURS: rate(ours, body, seconds),
        "json.loads alone": rate(json_only, body, seconds),
        "json.loads + keyword arguments": rate(json_kwargs, body, seconds),
        "openstacksdk Server resources": sdk,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--servers", type=int, default=1000, help="on one page")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU time for each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rates = measure(options.servers, options.seconds)
    rows = [
        {"decoder": name, "servers_per_cpu_s": round(value), "ours_is_faster": rates[OURS] / value}
        for name, value in rates.items()
    ]
    if options.json:
        print(json.dumps({"servers": options.servers, "results": rows}))
        return
    print(f"{options.servers} servers a page, {len(listing(1))} bytes each")
    print(f"{'decoder':34} {'servers / CPU-s':>16} {'ours is faster':>15}")
    for row in rows:
        faster = f"{row['ours_is_faster']:.1f} x"
        print(f"{row['decoder']:34} {row['servers_per_cpu_s']:>16,} {faster:>15}")


if __name__ == "__main__":
    main()
