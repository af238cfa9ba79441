"""The live table of a run on a terminal: pools, VMs, the last decisions, and the time."""

from __future__ import annotations

from collections import deque
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from poolsm import Step
from poolsm.calendar import weekday
from poolsm.conditions import concerns
from poolsm.events import Event
from poolsm.shapes import FleetView, PoolView, VmView
from poolsm.story import format_span, format_time
from poolsm.views import fleet_view, vm_views
from poolsm.vm import ACTIVE, BUILD, DELETING, ERROR, MISSING, PENDING, SHUTOFF
from poolsm_runners.engine import Engine, Watcher

DECISIONS_SHOWN = 8
LEAST_VM_ROWS = 4
REDRAWS_PER_S = 4
_COLOURS = {
    ACTIVE: "green",
    BUILD: "yellow",
    PENDING: "yellow",
    SHUTOFF: "blue",
    ERROR: "red",
    MISSING: "red",
    DELETING: "magenta",
}


class LiveTable:
    """Draws the fleet of a run four times a second; use as a context manager."""

    def __init__(self, cloud: str, console: Console | None = None) -> None:
        self._cloud = cloud
        self._console = console or Console()
        self._engine: Engine | None = None
        self._decisions: deque[str] = deque(maxlen=DECISIONS_SHOWN)
        self._live = Live(
            get_renderable=self.draw,
            console=self._console,
            refresh_per_second=REDRAWS_PER_S,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last picture on the screen."""
        self._live.stop()

    def watcher(self, engine: Engine) -> Watcher:
        """A watcher for one epoch; what it sees is drawn from then on."""
        self._engine = engine

        def watch(event: Event, step: Step) -> None:
            time = format_time(event.at_ms)[11:19]
            self._decisions.extend(
                f"{time} {type(command).__name__}: {command.reason.text}"
                for command in step.commands
            )
            self._decisions.extend(
                f"{time} ! {anomaly.kind} {anomaly.subject}: {anomaly.text}"
                for anomaly in step.anomalies
            )

        return watch

    def draw(self) -> RenderableType:
        """The whole picture, cut to the terminal's height."""
        if self._engine is None:
            return Text(f"connecting to {self._cloud} ...")
        state = self._engine.state
        fleet = fleet_view(state)
        vms = vm_views(state)
        fixed = len(fleet.pools) + len(concerns(fleet.conditions)) + len(self._decisions) + 10
        room = max(LEAST_VM_ROWS, self._console.size.height - fixed)
        zone = state.zones.get(state.settings.time_zone)
        day = weekday(zone, fleet.now_ms).capitalize() if zone else ""
        parts: list[RenderableType] = [self._head(fleet, day)]
        parts += [
            Text(f"{c.type} ({c.reason}): {c.message}", style="bold red")
            for c in concerns(fleet.conditions)
        ]
        parts += [_pools(fleet.pools), _vms(vms, room)]
        parts += [
            Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._decisions
        ]
        return Group(*parts)

    def _head(self, fleet: FleetView, day: str) -> Text:
        age = (
            "never" if fleet.listing_age_ms is None else f"{format_span(fleet.listing_age_ms)} ago"
        )
        return Text(
            f"poolsm on {self._cloud}   {day} {format_time(fleet.now_ms)}   "
            f"listed {age}   log at {fleet.position}   Ctrl-C ends",
            style="bold",
        )


def _pools(pools: tuple[PoolView, ...]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("POOL", "STATE", "VMS", "MIN", "MAX", "READY", "ASSIGNED"):
        table.add_column(name, no_wrap=True)
    table.add_column("WHY", no_wrap=True, overflow="ellipsis")
    for pool in pools:
        words = [pool.state] * (pool.state != "active")
        words += ["warm"] * pool.warm + ["off-day"] * bool(pool.off_day)
        table.add_row(
            str(pool.key),
            " ".join(words) or "active",
            Text(str(pool.capacity), style="green" if pool.capacity >= pool.min_vm else "yellow"),
            str(pool.min_vm),
            str(pool.max_vm or "-"),
            str(pool.ready),
            str(pool.attributed),
            f"{pool.reason}: {pool.message}",
        )
    return table


def _vms(vms: tuple[VmView, ...], room: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("VM", "POOL", "STATE", "AGE", "WHOSE"):
        table.add_column(name, no_wrap=True)
    table.add_column("ADDRESS", no_wrap=True, overflow="ellipsis")
    for vm in vms[:room]:
        table.add_row(
            vm.name,
            str(vm.pool),
            Text(vm.task_state or vm.state, style=_COLOURS.get(vm.state, "")),
            format_span(vm.age_ms),
            (vm.claimant or vm.attributed_by or "") if vm.attributed else "-",
            ", ".join(vm.addresses),
        )
    if len(vms) > room:
        table.add_row(Text(f"... and {len(vms) - room} more", style="dim"))
    return table
