"""Log lines of a run: what was decided and why, what the cloud said, what did not fit.

Every line is of one event; ``position`` and command ids lead from a line to the log, where
``poolsm explain`` tells the rest. Each line about a command names its kind, id, pool and VM, and
its server as soon as there is one. There are no secrets in events, so there are none here.
"""

from __future__ import annotations

import logging
import sys

import structlog
from attrs import evolve, frozen

from poolsm import Step
from poolsm.answers import ALREADY, DONE, GONE, classify
from poolsm.commands import Command
from poolsm.events import CallAnswered, Event, ListingFailed, RunnerStarted, RunnerStopped
from poolsm.members import Anomaly, Condition, Moved, Op
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.vm import DELETING, MISSING
from poolsm_runners.engine import Engine, Watcher

logger = structlog.get_logger("poolsm")


def configure_logs(*, as_json: bool) -> None:
    """Send structured lines to stderr: ``key=value``, or one JSON object each."""
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
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
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
        self._conditions: dict[tuple[PoolKey, str], Condition] = {}

    def watch(self, event: Event, step: Step) -> None:
        """Write the lines of one event that is durable."""
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
        self._changed_conditions(position)

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
            **_said(about),
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
            **_said(about),
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

    def _changed_conditions(self, position: int) -> None:
        seen = self._conditions
        for key, pool in self._state.pools.items():
            for kind, condition in pool.conditions.items():
                old = seen.get((key, kind))
                seen[key, kind] = condition
                if old is None or old.reason != condition.reason:
                    logger.info(
                        "pool.condition",
                        pool=str(key),
                        kind=kind,
                        reason=condition.reason,
                        message=condition.message,
                        position=position,
                    )


def _said(about: _About) -> dict[str, str]:
    return {
        "kind": about.kind,
        "pool": about.pool,
        "vm": about.vm,
        "server_id": about.server_id,
    }
