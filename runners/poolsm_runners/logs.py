"""Log lines of a run: what was decided and why, what the cloud refused, what did not fit.

Every line is of one event; ``position`` and command ids lead from a line to the log, where
``poolsm explain`` tells the rest. There are no secrets in events, so there are none here.
"""

from __future__ import annotations

import logging
import sys

import structlog

from poolsm import Step
from poolsm.commands import Command
from poolsm.events import CallAnswered, Event, ListingFailed, RunnerStarted, RunnerStopped
from poolsm.members import Condition
from poolsm.spec import PoolKey
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


def log_watcher(engine: Engine) -> Watcher:
    """A watcher that writes the lines of one epoch."""
    seen: dict[tuple[PoolKey, str], Condition] = {}

    def watch(event: Event, step: Step) -> None:
        if not step.entries:
            return
        position = step.entries[-1].position
        _log_event(event, position)
        for anomaly in step.anomalies:
            logger.warning(
                "anomaly",
                kind=anomaly.kind,
                subject=anomaly.subject,
                text=anomaly.text,
                position=position,
            )
        for move in step.moves:
            logger.info(
                "vm.moved",
                vm=move.name or move.vm,
                pool=str(move.pool),
                source=move.source,
                state=move.dest,
                position=position,
            )
        for command in step.commands:
            _log_command(command, position)
        _log_conditions(engine, seen, position)

    return watch


def _log_event(event: Event, position: int) -> None:
    match event:
        case RunnerStarted():
            logger.info(
                "runner.started", epoch=event.epoch, version=event.version, position=position
            )
        case RunnerStopped():
            logger.info("runner.stopped", why=event.why, position=position)
        case ListingFailed():
            logger.warning(
                "listing.failed", what=event.what, message=event.message, position=position
            )
        case CallAnswered() if event.unmet or not _is_success(event.http_status):
            logger.warning(
                "command.answered",
                command_id=event.command_id,
                http_status=event.http_status,
                transport_error=event.transport_error,
                message=event.unmet or event.message,
                position=position,
            )


def _is_success(status: int | None) -> bool:
    return status is not None and 200 <= status < 300


def _log_command(command: Command, position: int) -> None:
    logger.info(
        "command.issued",
        kind=type(command).__name__,
        command_id=command.command_id,
        server_id=getattr(command, "server_id", None),
        name=getattr(command, "name", None),
        rule=command.reason.rule,
        why=command.reason.text,
        position=position,
    )


def _log_conditions(
    engine: Engine, seen: dict[tuple[PoolKey, str], Condition], position: int
) -> None:
    for key, pool in engine.state.pools.items():
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
