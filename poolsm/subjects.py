"""Who is meant: finding, in a whole log, the VM that a name or id once belonged to.

A VM goes by many names: the id of the command that created it, the server id that the cloud
gave it, one name or, after it was drawn from a warm pool, another, and the requests that it
was given to. The log is read from its begin, so one that is long deleted is found as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from attrs import Factory, define

from poolsm.commands import (
    COMMAND_ID,
    REQUEST_ID,
    ClaimServer,
    Command,
    CreateServer,
    RenameServer,
    ServerCommand,
)
from poolsm.entries import Entry
from poolsm.events import (
    AssignmentRequested,
    AttributionDeclared,
    CallAnswered,
    Event,
    ListingCompleted,
    PoolDeclared,
    ServerObserved,
)
from poolsm.records import ServerRecord
from poolsm.spec import PoolKey

_NEAR_MOST = 8


@define
class Subject:
    """Everything that one target goes by.

    Attributes:
        keys: ids of create commands, under which the fold holds what they made.
        servers: ids of servers, under which it holds those that it took over.
        requests: ids of requests that it was given to.
    """

    keys: set[str] = Factory(set)
    servers: set[str] = Factory(set)
    requests: set[str] = Factory(set)

    def __bool__(self) -> bool:
        """Whether anything was found."""
        return bool(self.keys or self.servers or self.requests)

    def is_on(self, command: Command) -> bool:
        """Whether a command is about it."""
        if isinstance(command, CreateServer):
            return command.command_id in self.keys
        return isinstance(command, ServerCommand) and command.server_id in self.servers


@define
class _Search:
    """One reading of the log for one target."""

    target: str
    subject: Subject = Factory(Subject)
    made: dict[str, str] = Factory(dict)  # server id -> id of its create command
    words: set[str] = Factory(set)  # everything that could have been meant

    def read(self, entry: Entry) -> None:
        for command in entry.commands:
            self._read_command(command)
        for record in records_of(entry.event):
            self._read_record(record)
        event = entry.event
        if isinstance(event, CallAnswered) and event.server_id:
            self._join(event.server_id, event.command_id)
        elif isinstance(event, AssignmentRequested):
            self.words.add(event.request_id)
            if event.request_id == self.target:
                self.subject.requests.add(self.target)
        elif isinstance(event, AttributionDeclared):
            self.words.add(event.server_id)
            if event.server_id == self.target:
                self._meet(event.server_id)

    def _read_command(self, command: Command) -> None:
        subject, target = self.subject, self.target
        self.words.add(command.command_id)
        if isinstance(command, CreateServer):
            self.words.add(command.name)
            if target in (command.command_id, command.name):
                subject.keys.add(command.command_id)
        elif isinstance(command, ServerCommand):
            if command.command_id == target:
                self._meet(command.server_id)
            if isinstance(command, RenameServer) and command.name == target:
                self._meet(command.server_id)
            if isinstance(command, ClaimServer):
                self._read_claim(command)

    def _read_claim(self, command: ClaimServer) -> None:
        request_id = command.metadata.get(REQUEST_ID, "")
        if request_id and request_id == self.target:
            self._meet(command.server_id)
        if request_id and command.server_id in self.subject.servers:
            self.subject.requests.add(request_id)

    def _read_record(self, record: ServerRecord) -> None:
        self.words.add(record.server_id)
        if record.name:
            self.words.add(record.name)
        command_id = (record.metadata or {}).get(COMMAND_ID, "")
        if command_id:
            self._join(record.server_id, command_id)
        if self.target in (record.server_id, record.name):
            self._meet(record.server_id)

    def _join(self, server_id: str, command_id: str) -> None:
        """A server and the command that made it."""
        self.words.add(server_id)
        self.made.setdefault(server_id, command_id)
        if command_id in self.subject.keys or server_id == self.target:
            self._meet(server_id)

    def _meet(self, server_id: str) -> None:
        self.subject.servers.add(server_id)
        if server_id in self.made:
            self.subject.keys.add(self.made[server_id])


def records_of(event: Event) -> tuple[ServerRecord, ...]:
    """The server records that an event carries."""
    if isinstance(event, ListingCompleted):
        return event.changed
    if isinstance(event, ServerObserved):
        return (event.server,)
    if isinstance(event, CallAnswered) and event.server is not None:
        return (event.server,)
    return ()


def find_subject(entries: Iterable[Entry], target: str) -> tuple[Subject, tuple[str, ...]]:
    """What a target goes by; if nothing does, the names and ids that are like it."""
    search = _Search(target)
    for entry in entries:
        search.read(entry)
    return search.subject, () if search.subject else near(target, search.words)


def find_command(entries: Iterable[Entry], command_id: str) -> tuple[Entry | None, tuple[str, ...]]:
    """The entry that holds a command; if none does, the command ids that are like it."""
    words: set[str] = set()
    for entry in entries:
        for command in entry.commands:
            if command.command_id == command_id:
                return entry, ()
            words.add(command.command_id)
    return None, near(command_id, words)


def find_pool(entries: Iterable[Entry], key: PoolKey) -> tuple[bool, tuple[str, ...]]:
    """Whether a pool was ever declared; if not, the pools that are like it."""
    words: set[str] = set()
    for entry in entries:
        if isinstance(entry.event, PoolDeclared):
            if entry.event.spec.key == key:
                return True, ()
            words.add(str(entry.event.spec.key))
    return False, near(str(key), words)


def near(target: str, words: set[str]) -> tuple[str, ...]:
    """Words that contain the target or begin like it, else words that look like it."""
    wanted, ordered = target.strip().lower(), sorted(words)
    if not wanted:
        return ()
    alike = [word for word in ordered if wanted in word.lower()]
    alike = alike or [word for word in ordered if word.lower() in wanted]
    return tuple((alike or get_close_matches(target, ordered, n=_NEAR_MOST))[:_NEAR_MOST])
