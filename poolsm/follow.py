"""Following one VM through a log, and telling what changes about it."""

from __future__ import annotations

from attrs import evolve, frozen

from poolsm.commands import Command, CreateServer
from poolsm.entries import Entry
from poolsm.events import (
    AssignmentRequested,
    AttributionDeclared,
    CallAnswered,
    CommandsDispatched,
    Event,
    FleetPaused,
    FleetResumed,
    LossConfirmed,
    PoolAcknowledged,
    PoolDeclared,
    PoolPaused,
    PoolRemovalRequested,
    PoolResumed,
    RebuildRequested,
    ReleaseRequested,
    RunnerStarted,
    Ticked,
    VmHeld,
    VmUnheld,
)
from poolsm.fleet import Step
from poolsm.members import BY_USER, UNPROVEN, Attribution, Moved, Vm
from poolsm.shapes import PoolStanding
from poolsm.spec import PoolKey, PoolSpec
from poolsm.state import State
from poolsm.story import ANOMALY, ANSWER, COMMAND, CONDITION, EVENT, TRANSITION, Line, format_span
from poolsm.subjects import Subject
from poolsm.views import pools_of, standing_of
from poolsm.vm import DELETED
from poolsm.wording import (
    answer_text,
    decision_text,
    event_text,
    move_text,
    noun,
    reason_text,
    spec_text,
    standing_text,
)


@frozen
class Seen:
    """What was known of a VM before an event."""

    pool: PoolKey
    state: str
    name: str
    server_id: str
    attribution: Attribution | None
    condemned: str
    power_cause: str
    absences: int
    addresses: tuple[str, ...]
    claiming: bool
    dispute: str
    op: str


def _seen(state: State, vm: Vm) -> Seen:
    return Seen(
        vm.pool,
        vm.state,
        vm.name,
        vm.server_id,
        vm.attribution,
        vm.condemned,
        vm.power_cause,
        vm.absences,
        vm.record.addresses if vm.record else (),
        bool(vm.wanted),
        state.pools[vm.pool].disputed.get(vm.key, ""),
        vm.op,
    )


class Follower:
    """Looks at the fold before and after each event, and tells what concerns its subject."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.lines: list[Line] = []
        self.ended = False
        self.last: Seen | None = None
        self._kinds: dict[str, str] = {}  # own commands by id
        self._asked_ms: dict[str, int] = {}  # creations: when they were decided
        self._before: dict[str, Seen] = {}
        self._standings: list[PoolStanding] = []
        self._specs: dict[PoolKey, PoolSpec] = {}
        self._requests: dict[str, str] = {}  # answers before the event
        self._answered: dict[str, str] = {}  # and at the end

    def tell(self, entry: Entry, kind: str, text: str, command: Command | None = None) -> None:
        """One more line."""
        rule = command.reason.rule if command else ""
        reason = reason_text(command) if command else ""
        command_id = command.command_id if command else ""
        position, at_ms = entry.position, entry.event.at_ms
        self.lines.append(Line(position, at_ms, kind, text, rule, reason, command_id))

    def vms(self, state: State) -> list[Vm]:
        """The subject's VMs that the fold holds now."""
        subject = self.subject
        keys = subject.keys | {state.by_server.get(key, key) for key in subject.servers}
        return [state.vms[key] for key in sorted(keys) if key in state.vms]

    def tells(self, command: Command) -> bool:
        """Whether a command is part of the story."""
        return self.subject.is_on(command)

    # --- before an event -------------------------------------------------------------------

    def before(self, state: State, entry: Entry) -> None:
        """Remember what the event may change."""
        self._before = {vm.key: _seen(state, vm) for vm in self.vms(state)}
        pools = {seen.pool for seen in self._before.values()}
        self._specs = {key: state.pools[key].spec for key in pools}
        about: dict[PoolKey, None] = {}
        for command in entry.commands:
            if self.tells(command):
                about.update(dict.fromkeys(pools_of(state, command)))
        self._standings = [standing_of(state.pools[key]) for key in about if key in state.pools]
        self._requests = self._answers(state)

    def _answers(self, state: State) -> dict[str, str]:
        found = {key: state.assignments.get(key) for key in sorted(self.subject.requests)}
        return {key: f"{a.state}: {a.message}" if a else "" for key, a in found.items()}

    # --- after it --------------------------------------------------------------------------

    def after(self, state: State, entry: Entry, step: Step) -> None:
        """Tell what it did."""
        self._tell_event(state, entry)
        self._tell_anomalies(entry, step)
        self._tell_changes(state, entry, step)
        self._answered = self._answers(state)
        for request_id, answer in self._answered.items():
            changed = answer != self._requests.get(request_id, answer)
            if changed and not answer.startswith(("waiting: ", "claiming: ")):
                self.tell(entry, TRANSITION, f"Request {request_id} is {answer}.")
        self._tell_commands(entry)

    def _tell_commands(self, entry: Entry) -> None:
        own = [command for command in entry.commands if self.tells(command)]
        if own:
            for standing in self._standings:
                self.tell(entry, CONDITION, standing_text(standing))
        for command in own:
            self._kinds[command.command_id] = type(command).__name__
            if isinstance(command, CreateServer):
                self._asked_ms[command.command_id] = entry.event.at_ms
            self.tell(entry, COMMAND, decision_text(command), command)

    def _tell_event(self, state: State, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, CommandsDispatched):
            for command_id in event.command_ids:
                if command_id in self._kinds:
                    self.tell(entry, EVENT, f"The {noun(self._kinds[command_id])} was sent.")
        elif isinstance(event, CallAnswered):
            if event.command_id in self._kinds:
                self.tell(entry, ANSWER, answer_text(self._kinds[event.command_id], event))
        elif isinstance(event, RunnerStarted):
            self._tell_restart(state, entry)
        elif isinstance(event, PoolDeclared):
            known = self._specs.get(event.spec.key)
            if known is not None and known != event.spec:
                text = f"{event_text(event)} It is to have {spec_text(event.spec)}."
                self.tell(entry, EVENT, text)
        elif self._concerns(event):
            self.tell(entry, EVENT, event_text(event))

    def _concerns(self, event: Event) -> bool:
        subject = self.subject
        names = {seen.name for seen in self._before.values()} | subject.servers | subject.keys
        match event:
            case AssignmentRequested():
                return event.request_id in subject.requests
            case ReleaseRequested():
                return event.target in names | subject.requests
            case RebuildRequested() | AttributionDeclared():
                return event.server_id in names
            case PoolRemovalRequested() | PoolAcknowledged() | PoolPaused() | PoolResumed():
                return event.pool in self._specs
            case VmHeld() | VmUnheld():
                return event.target in names
            case LossConfirmed() | FleetPaused() | FleetResumed():
                return bool(self._before)
            case _:
                return False

    def _tell_restart(self, state: State, entry: Entry) -> None:
        """A new runner does not know what became of the calls of the one before it."""
        for key, seen in self._before.items():
            kind = self._kinds.get(seen.op)
            if kind is None:
                continue
            vm = state.vms.get(key)
            waits = vm is not None and vm.op == seen.op
            text = f"A runner started while the {noun(kind)} was on its way"
            then = "its outcome is looked for in the cloud" if waits else "it is decided anew"
            self.tell(entry, EVENT, f"{text}; {then}.")

    def _tell_anomalies(self, entry: Entry, step: Step) -> None:
        subject = self.subject
        names = subject.keys | subject.servers | subject.requests | set(self._kinds)
        for anomaly in step.anomalies:
            if anomaly.subject in names:
                self.tell(entry, ANOMALY, f"Out of the ordinary ({anomaly.kind}): {anomaly.text}.")

    def _tell_changes(self, state: State, entry: Entry, step: Step) -> None:
        now = {vm.key: vm for vm in self.vms(state)}
        decided = any(self.tells(command) for command in entry.commands)
        for key in sorted(self._before.keys() | now.keys()):
            before, vm = self._before.get(key), now.get(key)
            moves = [move for move in step.moves if move.vm == key]
            if before is None and vm is not None and key not in self._asked_now(entry):
                self._tell_adoption(entry, vm)
                moves = []
            for move in moves:
                self._tell_move(entry, move, vm)
            if before is not None and vm is not None:
                self._tell_fields(entry, before, _seen(state, vm), decided=decided)
            elif before is not None and not any(move.dest == DELETED for move in moves):
                self.tell(entry, TRANSITION, "It is let go: it is not ours any more.")
            if vm is not None:
                self.last = _seen(state, vm)
                self._learn(vm)
            elif before is not None:
                self.last = self._gone(before, moves)

    def _asked_now(self, entry: Entry) -> set[str]:
        return {c.command_id for c in entry.commands if isinstance(c, CreateServer)}

    def _gone(self, before: Seen, moves: list[Moved]) -> Seen:
        state = moves[-1].dest if moves else "let go"
        return evolve(before, state=state)

    def _learn(self, vm: Vm) -> None:
        """Other names that the VM goes by from now on."""
        if vm.server_id:
            self.subject.servers.add(vm.server_id)
        if vm.attribution is not None and vm.attribution.request_id:
            self.subject.requests.add(vm.attribution.request_id)

    def _tell_adoption(self, entry: Entry, vm: Vm) -> None:
        held = vm.attribution
        whose = f", {holder_text(held)}" if held else ", free"
        text = f"Server {vm.server_id} was found in the cloud with the tags of pool {vm.pool}"
        self.tell(entry, TRANSITION, f"{text} and taken over: {vm.name}, {vm.state}{whose}.")

    def _tell_move(self, entry: Entry, move: Moved, vm: Vm | None) -> None:
        asked_ms = self._asked_ms.get(move.vm)
        since = ""
        if asked_ms is not None:
            since = f", {format_span(entry.event.at_ms - asked_ms)} after its creation was decided"
        fault = (vm.record.fault or "") if vm is not None and vm.record is not None else ""
        text = move_text(move.source, move.trigger, move.dest, fault=fault, since=since)
        if move.trigger == "creation_ended" and isinstance(entry.event, Ticked):
            text = f"No answer came, and no server appeared in the cloud. {text}"
        elif move.trigger == "creation_ended" and isinstance(entry.event, RunnerStarted):
            text = f"A new runner started before it was sent. {text}"
        self.tell(entry, TRANSITION, text)

    def _tell_fields(self, entry: Entry, old: Seen, new: Seen, *, decided: bool) -> None:
        """What changed beside its state; what a command of this moment says is not repeated."""

        def told(text: str) -> None:
            self.tell(entry, TRANSITION, text)

        if new.name != old.name and old.name:
            told(f"Its name is {new.name} now; before it was {old.name}.")
        if new.absences == 1 and old.absences == 0 and new.state == old.state:
            told("A complete listing lacks it; a second one has to say so, too.")
        if new.addresses != old.addresses and new.addresses:
            told(f"Its addresses: {', '.join(new.addresses)}.")
        if new.power_cause == BY_USER and (old.power_cause, old.state) != (BY_USER, new.state):
            told("We did not ask for that: its user did it.")
        if new.condemned and new.condemned != old.condemned:
            told(f"It is to be deleted: {new.condemned}.")
        elif old.condemned and not new.condemned:
            told("It is not to be deleted any more.")
        if new.dispute and new.dispute != old.dispute:
            told(f"Somebody changed its tags: {new.dispute}.")
        if decided:
            return
        if old.claiming and not new.claiming and new.attribution:
            told(f"The cloud shows the claim: {holder_text(new.attribution)}.")
        elif new.attribution != old.attribution:
            whose = holder_text(new.attribution) if new.attribution else "it is free"
            told(f"It has changed hands: {whose}.")
        if new.pool != old.pool:
            told(f"It belongs to pool {new.pool} now; before it was {old.pool}'s.")

    def summary(self) -> str:
        """What the subject is, in one line."""
        last = self.last
        if last is None:
            answers = "; ".join(f"request {key} {text}" for key, text in self._answered.items())
            return answers or "nothing came of it"
        server = f"server {last.server_id}" if last.server_id else "no server"
        return f"VM {last.name}, {server}, pool {last.pool}; at the end {last.state}"


def holder_text(held: Attribution) -> str:
    """Whose a VM is."""
    if held.by == UNPROVEN:
        return "nothing proves that it is free, so it counts as somebody's"
    request = f" (request {held.request_id})" if held.request_id else ""
    return f"it is {held.claimant}'s{request}"
