"""Following one pool through a log: what it was to be, where it stood, what was decided."""

from __future__ import annotations

from collections import Counter

from attrs import frozen

from poolsm.commands import Command
from poolsm.conditions import why_at
from poolsm.entries import Entry
from poolsm.events import (
    FleetPaused,
    FleetResumed,
    PoolAcknowledged,
    PoolDeclared,
    PoolPaused,
    PoolRemovalRequested,
    PoolReset,
    PoolResumed,
)
from poolsm.fleet import Step
from poolsm.members import Moved, Pool
from poolsm.pool import CLOSED
from poolsm.replay import flatten
from poolsm.spec import PoolKey, PoolSpec
from poolsm.state import State
from poolsm.story import ANOMALY, COMMAND, CONDITION, EVENT, TRANSITION, Line
from poolsm.views import pools_of, standing_of
from poolsm.vm import DELETED, DELETING, ERROR, MISSING
from poolsm.wording import event_text, move_text, noun, reason_text, spec_text, standing_text
from poolsm.words import is_off_day

_ON_POOL = (PoolRemovalRequested, PoolReset, PoolAcknowledged, PoolPaused, PoolResumed)
_PASSING = ("NotPlannedYet",)  # says nothing that the next tick does not say better


@frozen
class _Seen:
    """A pool as it was when it was last looked at."""

    spec: PoolSpec
    why: str
    off_day: bool | None
    breaker: str
    failure: str
    failures: int


def _seen(state: State, pool: Pool, old: _Seen | None) -> _Seen:
    why = why_at(state, pool)[0]
    failure = pool.conditions.get("LastFailure")
    return _Seen(
        pool.spec,
        old.why if old is not None and why in _PASSING else why,
        is_off_day(pool, state),
        pool.breaker,
        failure.message if failure else "",
        pool.failures,
    )


class PoolFollower:
    """Looks at the fold before and after each event, and tells what concerns its pool."""

    def __init__(self, key: PoolKey) -> None:
        self.key = key
        self.lines: list[Line] = []
        self.ended = False
        self._seen: _Seen | None = None
        self._standing = ""
        self._own: list[Command] = []
        self._totals: Counter[str] = Counter()
        self._last = "it was refused"

    def _tell(self, entry: Entry, kind: str, text: str, rule: str = "", reason: str = "") -> None:
        self.lines.append(Line(entry.position, entry.event.at_ms, kind, text, rule, reason))

    def before(self, state: State, entry: Entry) -> None:
        """Which commands are the pool's is known only before they are carried out."""
        self._own = [c for c in entry.commands if self.key in pools_of(state, c)]
        pool = state.pools.get(self.key)
        if self._own and pool is not None:
            self._standing = standing_text(standing_of(pool))

    def after(self, state: State, entry: Entry, step: Step) -> None:
        """Tell what the event did."""
        pool, old = state.pools.get(self.key), self._seen
        self._tell_event(entry)
        for anomaly in step.anomalies:
            vm = state.vms.get(state.by_server.get(anomaly.subject, anomaly.subject))
            if anomaly.subject == str(self.key) or (vm is not None and vm.pool == self.key):
                text = f"Out of the ordinary ({anomaly.kind}), {anomaly.subject}: {anomaly.text}."
                self._tell(entry, ANOMALY, text)
        for move in step.moves:
            if move.pool == self.key:
                self._tell_move(state, entry, move)
        self._tell_commands(entry)
        if pool is not None:
            self._seen = _seen(state, pool, old)
            self._tell_pool(state, entry, pool, old)
            self._last = _brief(standing_text(standing_of(pool)))
        elif old is not None:
            self._seen = None
            self._last = "it was removed"
            self._tell(entry, TRANSITION, "The pool is gone: its last VM was removed.")

    def _tell_event(self, entry: Entry) -> None:
        event, old = entry.event, self._seen
        if isinstance(event, PoolDeclared) and event.spec.key == self.key:
            text = event_text(event)
            if old is None:
                self._tell(entry, EVENT, f"{text} It is to have {spec_text(event.spec)}.")
            elif old.spec != event.spec:
                self._tell(entry, EVENT, f"{text} Changed: {_changes(old.spec, event.spec)}.")
        elif (isinstance(event, _ON_POOL) and event.pool == self.key) or (
            isinstance(event, FleetPaused | FleetResumed) and old is not None
        ):
            self._tell(entry, EVENT, event_text(event))

    def _tell_move(self, state: State, entry: Entry, move: Moved) -> None:
        """Of its VMs only what an operator may have to see to."""
        vm = state.vms.get(move.vm)
        lost = move.dest == DELETED and move.source != DELETING
        if move.dest in (ERROR, MISSING) or move.source == MISSING or lost:
            fault = (vm.record.fault or "") if vm and vm.record else ""
            text = move_text(move.source, move.trigger, move.dest, fault=fault)
            self._tell(entry, TRANSITION, f"VM {move.name}: {text}")
        self._totals[f"became {move.dest}"] += move.dest in ("ACTIVE", ERROR, DELETED)

    def _tell_commands(self, entry: Entry) -> None:
        groups: dict[tuple[str, str], list[Command]] = {}
        for command in self._own:
            kind = type(command).__name__
            groups.setdefault((kind, command.reason.rule), []).append(command)
            self._totals[f"{noun(kind)}s"] += 1
        if groups:
            self._tell(entry, CONDITION, self._standing)
        for (kind, rule), commands in groups.items():
            text = f"Decided: {len(commands)} {noun(kind)}{'s' if len(commands) > 1 else ''}."
            self._tell(entry, COMMAND, text, rule, reason_text(commands[0]))

    def _tell_pool(self, state: State, entry: Entry, pool: Pool, old: _Seen | None) -> None:
        new = self._seen
        assert new is not None
        why, message = why_at(state, pool)
        if why not in _PASSING and (old is None or old.why != why):
            at = f"At {pool.capacity} of {pool.spec.min_vm}"
            self._tell(entry, CONDITION, f"{at} because {why}: {message}.")
        if (
            new.failure
            and new.failures
            and (old is None or (old.failures, old.failure) != (new.failures, new.failure))
        ):
            text = f"A creation failed ({new.failures} since the last success): {new.failure}."
            self._tell(entry, CONDITION, text)
        if old is not None and old.breaker != new.breaker:
            text = (
                "Creation goes on."
                if new.breaker == CLOSED
                else f"Creation is stopped after {new.failures} failures (breaker {new.breaker})."
            )
            self._tell(entry, CONDITION, text)
        if (old.off_day if old else False) != new.off_day and new.off_day is not None:
            day = "Today is one of its off-days." if new.off_day else "Today is no off-day."
            self._tell(entry, CONDITION, day)

    def summary(self) -> str:
        """Where it stands at the end of the log, and what was decided for it in all."""
        totals = ", ".join(f"{what} {n}" for what, n in sorted(self._totals.items()) if n)
        return f"{self._last}. In all: {totals or 'nothing was decided'}"


def _brief(standing: str) -> str:
    return standing.partition(" then had ")[2].rstrip(".")


def _changes(old: PoolSpec, new: PoolSpec) -> str:
    before, after = dict(flatten("", old)), dict(flatten("", new))
    names = [*before, *(name for name in after if name not in before)]
    return ", ".join(
        f"{name} from {before.get(name, 'nothing')} to {after.get(name, 'nothing')}"
        for name in names
        if before.get(name) != after.get(name)
    )
