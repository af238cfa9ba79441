"""Small things that the tests of several rules need."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from attrs import evolve

from poolsm.commands import Command
from poolsm.events import (
    FleetPaused,
    FleetResumed,
    LossConfirmed,
    PoolAcknowledged,
    PoolPaused,
    PoolReset,
    PoolResumed,
    VmHeld,
    VmUnheld,
)
from poolsm.records import ImageRecord
from tests.unit.world import IMAGE

if TYPE_CHECKING:
    from tests.unit.world import World


def image(image_id: str, **more: object) -> ImageRecord:
    return evolve(IMAGE, image_id=image_id, **more)


def acknowledge(w: World, name: str) -> None:
    w.feed(PoolAcknowledged(at_ms=w.now_ms, pool=w.pool(name).key, origin="test"))


def reset(w: World, name: str) -> None:
    w.feed(PoolReset(at_ms=w.now_ms, pool=w.pool(name).key, origin="test"))


def pause(w: World, name: str, why: str = "") -> None:
    """One pool; the fleet without a name."""
    now_ms = w.now_ms
    if name:
        w.feed(PoolPaused(at_ms=now_ms, pool=w.pool(name).key, why=why, origin="test"))
    else:
        w.feed(FleetPaused(at_ms=now_ms, why=why, origin="test"))


def resume(w: World, name: str) -> None:
    if name:
        w.feed(PoolResumed(at_ms=w.now_ms, pool=w.pool(name).key, origin="test"))
    else:
        w.feed(FleetResumed(at_ms=w.now_ms, origin="test"))


def hold(w: World, target: str, why: str = "") -> None:
    w.feed(VmHeld(at_ms=w.now_ms, target=target, why=why, origin="test"))


def unhold(w: World, target: str) -> None:
    w.feed(VmUnheld(at_ms=w.now_ms, target=target, origin="test"))


def confirm_loss(w: World) -> None:
    w.feed(LossConfirmed(at_ms=w.now_ms, origin="test"))


def gaps_s(w: World, kind: type[Command]) -> list[float]:
    """Seconds between the commands of one kind."""
    times = w.times(kind)
    return [(later - earlier) / 1000 for earlier, later in itertools.pairwise(times)]


def last_text(w: World, kind: type[Command]) -> str:
    return w.issued(kind)[-1].reason.text
