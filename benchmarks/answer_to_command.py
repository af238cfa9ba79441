"""From the cloud's answer to a durable command: decode, compare, fold, plan, append.

A fleet of N servers in pools of 100 is at rest; then a listing shows one server of one pool
in ERROR, and the runner must delete it. Each stage is timed in one run, as the share of the
physical limit that matters here: decoding the same bytes with the standard library alone.

    python benchmarks/answer_to_command.py [--servers 10000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from uuid import uuid4

from poolsm import Fleet, PoolSpec, RunnerSettings
from poolsm.events import (
    FlavorsListed,
    ImagesListed,
    LogOpened,
    NetworksListed,
    PoolDeclared,
    RunnerStarted,
    Ticked,
)
from poolsm.records import FlavorRecord, ImageRecord
from poolsm_runners.cloud import decode
from poolsm_runners.engine import Engine
from poolsm_runners.log import sqlite

NOW_MS = 1_800_000_000_000
POOL_SIZE = 100


def listing(count: int, log_id: str, broken: int | None = None) -> bytes:
    """The body of ``GET /servers/detail`` with ``count`` servers."""
    servers = [
        {
            "id": f"00000000-0000-4000-8000-{n:012d}",
            "name": f"pool-{n // POOL_SIZE}-{n}",
            "status": "ERROR" if n == broken else "ACTIVE",
            "created": "2026-01-01T00:00:00Z",
            "updated": "2026-01-01T00:00:00Z",
            "image": {"id": "image-1", "links": []},
            "flavor": {"original_name": "m1.tiny", "vcpus": 1, "ram": 512, "disk": 1},
            "addresses": {"net": [{"addr": f"10.0.{n // 250}.{n % 250}", "version": 4}]},
            "metadata": {
                "serverpool_id": f"pool-{n // POOL_SIZE}",
                "user_id": "bench",
                "reattrib": "false",
                "poolsm_log": log_id,
                "poolsm_command": str(n),
            },
            "OS-EXT-STS:task_state": None,
            "OS-EXT-STS:vm_state": "active",
            "OS-EXT-STS:power_state": 1,
            "key_name": None,
            "progress": 0,
            "links": [],
        }
        for n in range(count)
    ]
    return json.dumps({"servers": servers}).encode()


async def measure(count: int, rounds: int, folder: Path) -> dict[str, float]:
    """Median milliseconds of each stage."""
    log = await sqlite.create(folder / "bench.db", created_ms=NOW_MS)
    engine = Engine(log, Fleet())
    now_ms = NOW_MS
    log_id = log.header.log_id
    settings = RunnerSettings(vm_project_id="p", infra_project_id="p")
    image = ImageRecord("image-1", "worker", "active", "private", "p")
    for event in (
        LogOpened(at_ms=now_ms, log_id=log_id),
        RunnerStarted(at_ms=now_ms, epoch=str(uuid4()), version="bench", settings=settings),
        ImagesListed(at_ms=now_ms, project="vm", started_ms=now_ms, total=1, changed=(image,)),
        FlavorsListed(
            at_ms=now_ms, started_ms=now_ms, total=1, changed=(FlavorRecord("1", "m1.tiny"),)
        ),
        NetworksListed(at_ms=now_ms, started_ms=now_ms, total=0),
    ):
        await engine.record(event)
    for n in range(count // POOL_SIZE):
        spec = PoolSpec(f"pool-{n}", "bench", POOL_SIZE, POOL_SIZE, "worker", "m1.tiny")
        await engine.record(PoolDeclared(at_ms=now_ms, spec=spec, origin="benchmark"))
    rest = decode.servers_page(listing(count, log_id)).records
    now_ms += 5000
    await engine.record(engine.fleet.diff(rest, started_ms=now_ms, at_ms=now_ms))
    await engine.record(Ticked(at_ms=now_ms))
    times: dict[str, list[float]] = {}
    for n in range(min(rounds, count // POOL_SIZE)):
        now_ms += 5000
        body = listing(count, log_id, broken=n * POOL_SIZE)
        marks = [("", time.perf_counter())]

        def mark(name: str, marks: list[tuple[str, float]] = marks) -> None:
            marks.append((name, time.perf_counter()))

        json.loads(body)
        mark("json.loads (peer)")
        records = decode.servers_page(body).records
        mark("decode")
        event = engine.fleet.diff(records, started_ms=now_ms, at_ms=now_ms)
        mark("compare")
        await engine.record(event)
        mark("fold and append")
        step = await engine.record(Ticked(at_ms=now_ms))
        mark("plan and append")
        assert [type(c).__name__ for c in step.commands] == ["DeleteServer"], step.commands
        for (_, began), (name, ended) in itertools.pairwise(marks):
            times.setdefault(name, []).append((ended - began) * 1000)
    await log.close()
    return {name: median(values) for name, values in times.items()}


def main() -> None:
    """Print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(options.servers, options.rounds, Path(folder)))
    peer = found.pop("json.loads (peer)")
    total = sum(found.values())
    if options.json:
        result = {"servers": options.servers, "ms": found, "total_ms": total, "peer_ms": peer}
        print(json.dumps({**result, "ratio": total / peer}))
        return
    for name, value in found.items():
        print(f"{name:20} {value:8.2f} ms  {value / peer:6.2f} of json.loads")
    print(f"{'together':20} {total:8.2f} ms  {total / peer:6.2f} of json.loads")
    print(f"{'json.loads (peer)':20} {peer:8.2f} ms")


if __name__ == "__main__":
    main()
