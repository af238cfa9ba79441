"""Replay: fold a recorded log anew, and hold what it decided against what is decided now (I8).

A log says which events came and which commands they caused. The same release decides the
same again, on any machine. Another release, or a log that somebody edited, does not; the
first place where they part is named, with all that is needed to judge it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import zip_longest

from attrs import evolve, fields, frozen, has

from poolsm.commands import Command, Reason
from poolsm.entries import Entry
from poolsm.events import CallAnswered, Event, RebuildRequested, Ticked
from poolsm.fleet import Fleet, MisuseError
from poolsm.requests import find_vm
from poolsm.shapes import PoolStanding
from poolsm.spec import PoolKey
from poolsm.state import ALL_SHORT, State
from poolsm.views import pools_of, standing_of

# kinds of differences
POSITION = "position"  # an entry is missing, doubled or in the wrong place
QUIET = "quiet"  # the event changes and causes nothing, so it would not have been stored
COMMAND = "command"  # something else is done
REASON = "reason"  # the same is done, for a reason that reads differently
BEGINNING = "beginning"  # a log begins with LogOpened, exactly once
FAILED = "failed"  # the fold cannot digest the event: no runner ever stored it so

_NO_REASON = Reason("", "")
# what folding an event may raise that no runner ever stored so
FOLD_ERRORS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError)


@frozen
class FieldDifference:
    """One field of a command, recorded and recomputed; "-" where one of them has none."""

    name: str
    recorded: str
    recomputed: str


@frozen
class Difference:
    """The first place where a log and its replay part.

    Attributes:
        kind: one of this module's constants.
        position: where the fold stands: the position that this entry should have.
        at_ms: the event's time, wall clock.
        event: the event that was folded there.
        index: which of the event's commands, from 0; None when it is not about a command.
        recorded, recomputed: the two commands; None where there is none.
        fields: what differs between them.
        before: the pools that it is about, as they were before the event.
        text: the difference in one sentence.
    """

    kind: str
    position: int
    at_ms: int
    event: Event
    text: str
    index: int | None = None
    recorded: Command | None = None
    recomputed: Command | None = None
    fields: tuple[FieldDifference, ...] = ()
    before: tuple[PoolStanding, ...] = ()

    @property
    def in_words_only(self) -> bool:
        """Whether the same is done, and only the reason given for it differs."""
        return self.kind == REASON

    def describe(self) -> tuple[str, ...]:
        """Lines for an operator."""
        when = datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines = [f"position {self.position}, {when} UTC, {_event_text(self.event)}: {self.text}"]
        for what, command in (("recorded", self.recorded), ("recomputed", self.recomputed)):
            if command is not None:
                lines.append(f"  {what + ':':12}{type(command).__name__} {command.command_id}")
                lines.append(f"  {'':12}because {command.reason.rule}: {command.reason.text}")
        lines += [
            f"  {field.name}: {field.recorded} recorded, {field.recomputed} recomputed"
            for field in self.fields
        ]
        lines += [f"  before: {standing}" for standing in self.before]
        return tuple(lines)


@frozen
class ReplayResult:
    """What a replay found.

    Attributes:
        difference: the first one; None when the log and its replay are the same.
        events, commands: how many were folded and compared, the differing ones included.
        events_by_kind, commands_by_kind: the same by class name, the most frequent first.
        rewordings: commands whose reason alone differs, when these were passed over.
        from_ms, to_ms: times of the first and last event; 0 for an empty log.
        fleet: the fold at the point where the replay ended.
    """

    difference: Difference | None
    events: int
    commands: int
    events_by_kind: dict[str, int]
    commands_by_kind: dict[str, int]
    rewordings: int
    from_ms: int
    to_ms: int
    fleet: Fleet

    @property
    def same(self) -> bool:
        """Whether the whole log was replayed without a difference."""
        return self.difference is None


def replay(
    entries: Iterable[Entry],
    *,
    progress: Callable[[int], None] | None = None,
    every: int = 10_000,
    stop_at_reasons: bool = True,
) -> ReplayResult:
    """Fold a log from its first event and compare it, up to the first difference.

    Args:
        entries: from position 1 on; read once, one at a time.
        progress: called with the number of entries done, after each ``every`` entries.
        every: entries between two calls of ``progress``.
        stop_at_reasons: False: a reason that only reads differently (another release's
            wording) is counted and passed over.
    """
    fleet = Fleet()
    events: Counter[str] = Counter()
    commands: Counter[str] = Counter()
    rewordings = from_ms = to_ms = done = 0
    difference: Difference | None = None
    for done, entry in enumerate(entries, 1):
        events[type(entry.event).__name__] += 1
        commands.update(type(command).__name__ for command in entry.commands)
        from_ms, to_ms = from_ms or entry.event.at_ms, entry.event.at_ms
        for found in compare_next(fleet, entry):
            if found.in_words_only and not stop_at_reasons:
                rewordings += 1
            elif difference is None or (difference.in_words_only > found.in_words_only):
                difference = found  # what is done weighs more than how it is put
        if difference is not None:
            break
        if progress is not None and done % every == 0:
            progress(done)
    return ReplayResult(
        difference=difference,
        events=done,
        commands=sum(commands.values()),
        events_by_kind=dict(sorted(events.items(), key=lambda row: (-row[1], row[0]))),
        commands_by_kind=dict(sorted(commands.items(), key=lambda row: (-row[1], row[0]))),
        rewordings=rewordings,
        from_ms=from_ms,
        to_ms=to_ms,
        fleet=fleet,
    )


def compare_next(fleet: Fleet, entry: Entry) -> Iterator[Difference]:
    """Fold one entry into a fleet that stands before it, and yield where they part."""
    event, position = entry.event, fleet.position + 1

    def differ(kind: str, text: str) -> Difference:
        before = tuple(_standings(fleet.state, event).values())
        return Difference(kind, position, event.at_ms, event, text, before=before)

    if entry.position != position:
        text = f"the log goes on with position {entry.position}, {position} was expected"
        yield differ(POSITION, text)
        return
    before = _standings(fleet.state, event)
    try:
        step = fleet.step(event)
    except MisuseError as error:
        yield differ(BEGINNING, str(error))
        return
    except FOLD_ERRORS as error:
        text = f"the event cannot be folded: {type(error).__name__}: {error}"
        yield Difference(FAILED, position, event.at_ms, event, text, before=(*before.values(),))
        return
    if not step.entries:
        text = "the event changes nothing and causes nothing, yet it is stored"
        yield differ(QUIET, text)
        return
    if step.commands != entry.commands:
        yield from _compare_commands(fleet.state, entry, step.commands, before)


def _compare_commands(
    state: State,
    entry: Entry,
    recomputed: tuple[Command, ...],
    before: dict[PoolKey, PoolStanding],
) -> Iterator[Difference]:
    for index, (old, new) in enumerate(_paired(entry.commands, recomputed)):
        if old == new:
            continue
        reworded = (
            old is not None
            and new is not None
            and evolve(old, reason=_NO_REASON) == evolve(new, reason=_NO_REASON)
        )
        about = {key for command in (old, new) if command for key in pools_of(state, command)}
        yield Difference(
            kind=REASON if reworded else COMMAND,
            position=entry.position,
            at_ms=entry.event.at_ms,
            event=entry.event,
            text=_command_text(index, old, new, reworded=reworded),
            index=index,
            recorded=old,
            recomputed=new,
            fields=_field_differences(old, new),
            before=tuple(before[key] for key in sorted(before) if key in about or not about),
        )


def _paired(
    recorded: tuple[Command, ...], recomputed: tuple[Command, ...]
) -> list[tuple[Command | None, Command | None]]:
    """By id where both have it, so that one command more or less is named as that one."""
    ids = {command.command_id for command in recorded}
    later = {command.command_id: command for command in recomputed}
    if ids.isdisjoint(later):
        return list(zip_longest(recorded, recomputed))
    pairs: list[tuple[Command | None, Command | None]] = [
        (command, later.get(command.command_id)) for command in recorded
    ]
    pairs += [(None, command) for command in recomputed if command.command_id not in ids]
    if [new for _, new in pairs if new] != list(recomputed) and all(map(all, pairs)):
        return list(zip_longest(recorded, recomputed))  # the same ones in another order
    return pairs


def _command_text(index: int, old: Command | None, new: Command | None, *, reworded: bool) -> str:
    which = f"command {index + 1}"
    if reworded:
        return f"{which} is the same, its reason reads differently"
    if old is not None and new is None:
        return f"{type(old).__name__} {old.command_id} is recorded but not decided now"
    if new is not None and old is None:
        return f"{type(new).__name__} {new.command_id} is decided now but not recorded"
    if type(old) is not type(new):
        return f"{which} is recorded as {type(old).__name__}, decided now is {type(new).__name__}"
    return f"{which}, {type(old).__name__}, differs"


def _standings(state: State, event: Event) -> dict[PoolKey, PoolStanding]:
    """The pools that the event may cause commands for, as they are now."""
    keys: set[PoolKey] = set()
    if isinstance(event, Ticked):
        due = state.due_by(event.at_ms - state.skew_ms)
        keys = state.dirty.union(due, state.awaiting_room() if ALL_SHORT in due else ())
    elif isinstance(event, RebuildRequested):
        vm = find_vm(state, event.server_id)
        keys = {vm.pool} if vm else set()
    elif isinstance(event, CallAnswered):
        op = state.ops.get(event.command_id)
        keys = {op.pool} if op else set()
    if not keys:
        return {}
    pools = [state.pools[key] for key in sorted(keys) if key in state.pools]
    return {pool.key: standing_of(pool) for pool in pools if not state.at_rest(pool)}


def _event_text(event: Event) -> str:
    detail = f" of {event.command_id}" if isinstance(event, CallAnswered) else ""
    return type(event).__name__ + detail


def _field_differences(old: Command | None, new: Command | None) -> tuple[FieldDifference, ...]:
    """Field by field, of two commands of one kind."""
    if old is None or type(old) is not type(new):
        return ()
    recorded, recomputed = dict(flatten("", old)), dict(flatten("", new))
    names = [*recorded, *(name for name in recomputed if name not in recorded)]
    return tuple(
        FieldDifference(name, recorded.get(name, "-"), recomputed.get(name, "-"))
        for name in names
        if recorded.get(name) != recomputed.get(name)
    )


def flatten(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    """Each leaf of a command under its dotted name."""
    kind = type(value)
    if isinstance(value, dict):
        for key in sorted(value):
            yield from flatten(f"{prefix}.{key}", value[key])
    elif has(kind):
        for attribute in fields(kind):
            name = f"{prefix}.{attribute.name}" if prefix else attribute.name
            yield from flatten(name, getattr(value, attribute.name))
    else:
        yield prefix, str(value) if isinstance(value, PoolKey) else repr(value)
