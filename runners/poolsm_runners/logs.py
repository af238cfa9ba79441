"""Log lines of a run: what was decided and why, what the cloud said, what did not fit.

Every line is of one event; ``position`` and command ids lead from a line to the log, where
``poolsm explain`` tells the rest. Each line about a command names its kind, id, pool and VM, and
its server as soon as there is one. There are no secrets in events, so there are none here.
"""

from __future__ import annotations

import atexit
import logging
import sys
from typing import TextIO, cast

import structlog
from attrs import evolve, frozen

from poolsm import Step
from poolsm.answers import ALREADY, DONE, GONE, classify
from poolsm.commands import Command
from poolsm.conditions import CLEAR, FALSE, PROVISIONED, concerns, fleet_conditions, pool_conditions
from poolsm.events import (
    CallAnswered,
    Event,
    ListingFailed,
    RunnerStarted,
    RunnerStopped,
    Ticked,
)
from poolsm.members import Anomaly, Moved, Op
from poolsm.shapes import ConditionView
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.vm import DELETING, MISSING
from poolsm_runners.engine import Engine, Watcher
from poolsm_runners.library_lines import LibraryLines
from poolsm_runners.line_output import LineOutput

DRAIN_S = 1.0  # that a process waits at its end for its last lines to leave

logger = structlog.get_logger("poolsm")


def configure_logs(*, as_json: bool) -> None:
    """Send structured lines to stderr: ``key=value``, or one JSON object each.

    From then on nobody waits for a line to be written; see :mod:`.line_output`.
    """
    logging.getLogger().addHandler(LibraryLines())
    output = LineOutput(_stderr(), _lines_lost)
    atexit.register(output.drain, DRAIN_S)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", output)),
        cache_logger_on_first_use=True,
    )


def _stderr() -> int | None:
    """Its descriptor; None where there is none, as in a process that was started without."""
    try:
        # not sys.stderr: that may be another by now, see cli.output.aside
        return cast("TextIO", sys.__stderr__).fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _lines_lost(count: int) -> None:
    logger.warning(
        "log_lines.lost",
        count=count,
        remedy="whatever reads stderr did not keep up, or its disk is full; "
        "`poolsm events list` has all that happened",
    )


@frozen
class _About:
    """What a line says of a command that is on its way."""

    kind: str
    pool: str
    vm: str = ""
    server_id: str = ""


def log_watcher(engine: Engine) -> Watcher:
    """A watcher that writes the lines of one epoch."""
    return _Lines(engine.state).watch


class _Lines:
    """Writes lines, and remembers of each command in flight what it is about."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._commands = {op.command_id: self._about(op) for op in state.ops.values()}
        self._leaving: dict[str, str] = {}  # VM key: server id; known no more once it is gone
        # of conditions: what rules noted, since when each has its status, what was said last
        self._reasons: dict[tuple[PoolKey, str], str] = {}
        self._since: dict[PoolKey, dict[str, tuple[str, int]]] = {}
        self._said: dict[tuple[PoolKey | None, str], tuple[str, str]] = {}

    def watch(self, event: Event, step: Step) -> None:
        """Write the lines of one event that is durable."""
        if isinstance(event, Ticked):
            self._fleet_conditions()
        if not step.entries:
            return
        position = step.entries[-1].position
        self._event(event, position)
        for anomaly in step.anomalies:
            self._anomaly(anomaly, position)
        for move in step.moves:
            self._move(move, position)
        for command in step.commands:
            self._issued(command, position)
        self._pool_conditions(event, position)

    def _event(self, event: Event, position: int) -> None:
        match event:
            case RunnerStarted():
                logger.info(
                    "runner.started",
                    epoch=event.epoch,
                    version=event.version,
                    log_id=self._state.log_id,
                    position=position,
                )
            case RunnerStopped():
                logger.info("runner.stopped", why=event.why, position=position)
            case ListingFailed():
                logger.warning(
                    "listing.failed", what=event.what, message=event.message, position=position
                )
            case CallAnswered():
                self._answered(event, position)

    # --- commands ----------------------------------------------------------------------

    def _issued(self, command: Command, position: int) -> None:
        op = self._state.ops.get(command.command_id)
        about = self._about(op) if op else _About(type(command).__name__, "")
        about = evolve(
            about,
            vm=about.vm or str(getattr(command, "name", "")),
            server_id=str(getattr(command, "server_id", "")),
        )
        self._commands[command.command_id] = about
        logger.info(
            "command.issued",
            command_id=command.command_id,
            **_fields(about),
            rule=command.reason.rule,
            why=command.reason.text,
            position=position,
        )

    def _answered(self, event: CallAnswered, position: int) -> None:
        about = self._commands.pop(event.command_id, None) or _About("unknown", "")
        if event.server_id and not about.server_id:
            about = evolve(about, server_id=event.server_id)
        outcome = classify(about.kind, event).kind
        well = outcome in {DONE, ALREADY, GONE}
        say = logger.info if well else logger.warning
        say(
            "command.answered",
            command_id=event.command_id,
            **_fields(about),
            outcome=outcome,
            http_status=event.http_status,
            transport_error=event.transport_error,
            message=event.unmet or event.message,
            seconds=max(0, event.at_ms - event.started_ms) / 1000,
            position=position,
        )

    def _about(self, op: Op) -> _About:
        vm = self._state.vms.get(op.vm)
        pool = str(op.pool) if op.pool.serverpool_id else ""
        return _About(op.kind, pool, vm.name if vm else "", vm.server_id if vm else "")

    # --- what was seen -----------------------------------------------------------------

    def _anomaly(self, anomaly: Anomaly, position: int) -> None:
        vm = self._state.vms.get(anomaly.subject)
        known = {"vm": vm.name, "pool": str(vm.pool), "server_id": vm.server_id} if vm else {}
        logger.warning(
            "anomaly",
            kind=anomaly.kind,
            subject=anomaly.subject,
            **known,
            text=anomaly.text,
            position=position,
        )

    def _move(self, move: Moved, position: int) -> None:
        vm = self._state.vms.get(move.vm)
        server_id = self._leaving.pop(move.vm, "")
        server_id = vm.server_id if vm else server_id
        if move.dest in {DELETING, MISSING}:
            self._leaving[move.vm] = server_id
        logger.info(
            "vm.moved",
            vm=move.name or move.vm,
            key=move.vm,
            server_id=server_id,
            pool=str(move.pool),
            source=move.source,
            state=move.dest,
            position=position,
        )

    # --- conditions --------------------------------------------------------------------

    def _fleet_conditions(self) -> None:
        """At each tick, quiet ones too: a listing grows stale without an event."""
        for condition in fleet_conditions(self._state):
            self._say_condition("fleet.condition", condition, None, self._state.position)

    def _pool_conditions(self, event: Event, position: int) -> None:
        for key, pool in self._state.pools.items():
            changed = {
                kind
                for kind, condition in pool.conditions.items()
                if self._reasons.get((key, kind)) != condition.reason
            }
            self._reasons.update({(key, kind): pool.conditions[kind].reason for kind in changed})
            if isinstance(event, Ticked) and pool.since != self._since.get(key):
                self._since[key] = dict(pool.since)
                changed |= pool.since.keys()
            if changed:
                for condition in pool_conditions(self._state, pool):
                    if condition.type in changed:
                        self._say_condition("pool.condition", condition, key, position)

    def _say_condition(
        self, name: str, condition: ConditionView, key: PoolKey | None, position: int
    ) -> None:
        """A line, if status or reason are others than the last ones were."""
        now, about = (condition.status, condition.reason), (key, condition.type)
        if self._said.get(about, (FALSE, CLEAR)) == now:
            return
        self._said[about] = now
        # that a pool is not full yet is a warning only for whoever waits for it
        amiss = condition.type != PROVISIONED and concerns([condition])
        say = logger.warning if amiss else logger.info
        say(
            name,
            **({"pool": str(key)} if key else {}),
            type=condition.type,
            status=condition.status,
            reason=condition.reason,
            message=condition.message,
            position=position,
        )


def _fields(about: _About) -> dict[str, str]:
    return {
        "kind": about.kind,
        "pool": about.pool,
        "vm": about.vm,
        "server_id": about.server_id,
    }
