"""What a log stores: one event with its position and the commands that it caused (C8)."""

from __future__ import annotations

from attrs import frozen

from poolsm.commands import Command
from poolsm.events import Event


@frozen
class Entry:
    """One stored event. ``position`` counts from 1, without a gap (C9)."""

    position: int
    event: Event
    commands: tuple[Command, ...] = ()
