"""The public API as a user's type checker sees it; checked by mypy, never run."""

from __future__ import annotations

from typing import assert_type

from poolsm import (
    Anomaly,
    Entry,
    Fleet,
    Moved,
    PoolKey,
    PoolSpec,
    Problem,
    RunnerSettings,
    Step,
    check_spec,
    diff_catalog,
    diff_listing,
)
from poolsm.codec import decode_event, encode
from poolsm.commands import Command, CreateServer, DeleteServer
from poolsm.events import (
    AssignmentRequested,
    CallAnswered,
    Event,
    ListingCompleted,
    ListingFailed,
    LogOpened,
    PoolDeclared,
    RunnerStarted,
    Ticked,
)
from poolsm.expect import verdict
from poolsm.records import FlavorRecord, ServerRecord
from poolsm.replay import Difference, replay
from poolsm.shapes import PoolView, VmView
from poolsm.testing import SimReply, SimulatedCloud
from poolsm.views import pool_view, vm_views

spec = PoolSpec("course", "school", 2, 5, image_ref="image", flavor_ref="m1.tiny")
assert_type(spec.key, PoolKey)
assert_type(check_spec(spec), tuple[Problem, ...])

fleet = Fleet()
step = fleet.step(LogOpened(at_ms=0, log_id="7b7d6f6e-2f0c-4b8e-9d52-3d8f6c1f0a11"))
assert_type(step, Step)
assert_type(step.entries, tuple[Entry, ...])
assert_type(step.commands, tuple[Command, ...])
assert_type(step.anomalies, tuple[Anomaly, ...])
assert_type(step.moves, tuple[Moved, ...])
assert_type(fleet.snapshot(), bytes | None)

records = [ServerRecord("id", "ACTIVE", metadata={"user_id": "school"})]
listing = fleet.diff(records, started_ms=1, at_ms=2)
assert_type(listing, ListingCompleted | ListingFailed)
assert_type(diff_listing(records, {}, (), started_ms=1, at_ms=2), ListingCompleted | ListingFailed)
changed, gone = diff_catalog([("1", FlavorRecord("1", "m1.tiny"))], {})
assert_type(changed, tuple[FlavorRecord, ...])
assert_type(gone, tuple[str, ...])


def act(command: Command) -> str:
    """Commands are told apart by their class."""
    if isinstance(command, CreateServer):
        return command.metadata["user_id"] + command.image_id
    if isinstance(command, DeleteServer):
        return verdict(command, records[0]) or command.server_id
    return command.command_id


def requests(now_ms: int) -> list[Event]:
    """What a service may feed."""
    key = PoolKey("course", "school")
    return [
        RunnerStarted(at_ms=now_ms, epoch="1", version="1", settings=RunnerSettings()),
        PoolDeclared(at_ms=now_ms, spec=spec, origin="a call"),
        AssignmentRequested(
            at_ms=now_ms,
            request_id="1",
            pool=key,
            claimant="carol",
            deadline_ms=now_ms + 1000,
            origin="a call",
        ),
        CallAnswered(at_ms=now_ms, command_id="1", started_ms=now_ms, transport_error="timeout"),
        Ticked(at_ms=now_ms),
    ]


assert_type(pool_view(fleet.state, spec.key), PoolView | None)
assert_type(vm_views(fleet.state), tuple[VmView, ...])
assert_type(replay(step.entries).difference, Difference | None)
assert_type(encode(step.entries[0].event), bytes)
assert_type(decode_event("Ticked", 1, b"{}"), Event)
assert_type(SimulatedCloud().request(0, "vm", "compute", "GET", "/servers/detail"), SimReply)
