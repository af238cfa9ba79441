"""Questions to a log: what happened to this VM, this pool, this command, and why.

The log is folded from its begin, and what concerns the target is told in the order in which
it happened, with the rule and the numbers of each decision. Nothing is kept beside the log
for this: whatever was recorded can be asked about, the long deleted as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from poolsm.commands import Command, CreateServer, ServerCommand
from poolsm.entries import Entry
from poolsm.events import Ticked
from poolsm.fleet import Fleet, MisuseError, Step
from poolsm.follow import Follower
from poolsm.poolstory import PoolFollower
from poolsm.replay import FOLD_ERRORS
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.story import COMMAND, EVENT, Line, Story, collapse
from poolsm.subjects import Subject, find_command, find_pool, find_subject
from poolsm.views import pools_of
from poolsm.wording import decision_text, event_text, noun

_OTHER_DECISIONS = (
    "from position {} on this release decides differently than the log; "
    "what is told from there is less certain (a replay names the difference)"
)


def explain_vm(entries: Iterable[Entry], target: str) -> Story:
    """The life of one VM.

    Args:
        entries: a whole log; read twice, so an iterator is held in memory.
        target: a server id, the id of any command about it, a name, or a request id.
    """
    entries = _readable_twice(entries)
    subject, alike = find_subject(entries, target)
    if not subject:
        return _not_found(target, "no VM, command or request", alike)
    follower = Follower(subject)
    warnings = _fold(entries, follower)
    title = f"{target}: {follower.summary()}"
    return _told(target, title, follower, warnings)


def explain_pool(entries: Iterable[Entry], key: PoolKey) -> Story:
    """The life of one pool: what it was to be, where it stood and why, what was decided."""
    entries = _readable_twice(entries)
    found, alike = find_pool(entries, key)
    if not found:
        return _not_found(str(key), "no pool", alike)
    follower = PoolFollower(key)
    warnings = _fold(entries, follower)
    title = f"pool {key}: {follower.summary()}"
    return _told(str(key), title, follower, warnings)


def explain_command(entries: Iterable[Entry], command_id: str) -> Story:
    """One command: what caused it, how its pool stood, what became of it."""
    entries = _readable_twice(entries)
    entry, alike = find_command(entries, command_id)
    if entry is None:
        return _not_found(command_id, "no command", alike)
    command = next(found for found in entry.commands if found.command_id == command_id)
    follower = _CommandFollower(command, entry.position)
    warnings = _fold(entries, follower)
    what = f"{noun(type(command).__name__)} {command_id}"
    return _told(command_id, f"{what}: {follower.summary()}", follower, warnings)


def _readable_twice(entries: Iterable[Entry]) -> Iterable[Entry]:
    return tuple(entries) if iter(entries) is entries else entries


def _not_found(target: str, what: str, alike: tuple[str, ...]) -> Story:
    title = f"{target}: the log knows {what} by that"
    return Story(target, title, found=False, near=alike)


def _told(
    target: str, title: str, follower: Follower | PoolFollower, warnings: tuple[str, ...]
) -> Story:
    lines = collapse(follower.lines)
    return Story(target, title, found=True, lines=lines, warnings=warnings)


def _fold(entries: Iterable[Entry], follower: Follower | PoolFollower) -> tuple[str, ...]:
    """Fold the log and let the follower look before and after each event."""
    fleet = Fleet()
    warnings: list[str] = []
    for entry in entries:
        follower.before(fleet.state, entry)
        try:
            step = fleet.step(entry.event)
        except (MisuseError, *FOLD_ERRORS) as error:
            warnings.append(f"the log cannot be followed past position {entry.position}: {error}")
            break
        if step.commands != entry.commands and not warnings:
            warnings.append(_OTHER_DECISIONS.format(entry.position))
        follower.after(fleet.state, entry, step)
        if follower.ended:
            break
    return tuple(warnings)


class _CommandFollower(Follower):
    """Follows one command: its cause, and its VM until something else is decided on it."""

    def __init__(self, command: Command, position: int) -> None:
        super().__init__(Subject())
        self._command, self._position = command, position
        self._due: frozenset[PoolKey] = frozenset()
        self._causes: dict[PoolKey, Line] = {}

    def tells(self, command: Command) -> bool:
        """Only the command itself is told with its reasons."""
        return command.command_id == self._command.command_id

    def before(self, state: State, entry: Entry) -> None:
        """Tell the cause when the command's event has come."""
        if entry.position < self._position:
            self._due = frozenset(state.dirty)
        elif entry.position == self._position:
            self._tell_cause(state, entry)
            self._meet(state)
        else:
            self._watch_end(entry)
        super().before(state, entry)

    def after(self, state: State, entry: Entry, step: Step) -> None:
        """Tell what became of it; until then note what made the rules look at which pool."""
        if self.ended:
            return
        if entry.position >= self._position:
            super().after(state, entry, step)
        elif isinstance(entry.event, Ticked):
            self._causes = {}
        else:
            line = Line(entry.position, entry.event.at_ms, EVENT, event_text(entry.event))
            self._causes.update(dict.fromkeys(state.dirty - self._due, line))

    def _meet(self, state: State) -> None:
        command = self._command
        if isinstance(command, CreateServer):
            self.subject.keys.add(command.command_id)
        elif isinstance(command, ServerCommand):
            self.subject.servers.add(command.server_id)
            vm = state.vms.get(state.by_server.get(command.server_id, ""))
            if vm is not None:
                self.subject.keys.add(vm.key)

    def _tell_cause(self, state: State, entry: Entry) -> None:
        pools = [key for key in pools_of(state, self._command) if key in state.pools]
        causes = [self._causes[key] for key in pools if key in self._causes]
        self.lines += sorted(set(causes), key=lambda line: line.position)
        if not isinstance(entry.event, Ticked):
            self.tell(entry, EVENT, event_text(entry.event))
        elif not any(key in state.dirty for key in pools):
            self.tell(entry, EVENT, "The rules looked at the pool, because a wait was over.")

    def _watch_end(self, entry: Entry) -> None:
        for command in entry.commands:
            if self.subject.is_on(command) and not self.ended:
                text = f"What was decided next on this VM: {decision_text(command)}"
                self.tell(entry, COMMAND, text, command)
                self.ended = True
