"""What only the cloud knows: the whole story of every server, and every call it got."""

from __future__ import annotations

from collections import Counter, deque

from attrs import define, field, frozen

from poolsm.testing.server import SimServer

JOURNAL_CALLS = 10_000


@frozen
class ServerStory:
    """All there is to know about one server ever created.

    Attributes:
        status: Nova's status; ``gone`` for one that answers 404.
        create_metadata: as sent with the create; ``metadata`` is what it is now.
        command_id: of the command that created it; empty if another one did.
        user_data: as sent, base64; None without one.
        deletes: DELETE calls that were accepted.
        deleted_by: ``api`` (somebody called DELETE) or ``cloud`` (taken away directly).
        history: (time, status, task state) of each state it was in.
    """

    server_id: str
    name: str
    project: str
    status: str
    task_state: str | None
    metadata: dict[str, str]
    create_metadata: dict[str, str]
    command_id: str
    image_id: str
    flavor_id: str
    networks: tuple[str, ...]
    addresses: tuple[str, ...]
    key_name: str | None
    user_data: str | None
    created_ms: int
    gone_ms: int | None
    deletes: int
    deleted_by: str
    foreign: bool
    hidden: bool
    history: tuple[tuple[int, str, str | None], ...]


@frozen
class CallRecord:
    """One request that the cloud got. ``status`` 0: it got no answer (hang, drop)."""

    at_ms: int
    project: str
    operation: str
    method: str
    path: str
    status: int


@define(eq=False)
class Ledger:
    """Every call: counted all, the last ones kept, all that change something kept."""

    calls: Counter[tuple[str, int]] = field(factory=Counter)
    recent: deque[CallRecord] = field(factory=lambda: deque(maxlen=JOURNAL_CALLS))
    writes: list[CallRecord] = field(factory=list)
    count: int = 0

    def note(self, record: CallRecord) -> None:
        """One more call."""
        self.count += 1
        self.calls[record.operation, record.status] += 1
        self.recent.append(record)
        if record.method != "GET" and record.operation != "auth":
            self.writes.append(record)


def story_of(server: SimServer) -> ServerStory:
    """A server's story so far."""
    face = server.face
    return ServerStory(
        server_id=server.server_id,
        name=face.name,
        project=server.project,
        status=server.status,
        task_state=face.task_state,
        metadata=dict(face.metadata),
        create_metadata=dict(server.create_metadata),
        command_id=server.command_id,
        image_id=face.image_id,
        flavor_id=server.flavor.flavor_id,
        networks=server.networks,
        addresses=tuple(f"{one.network}:{one.ip}" for one in face.addresses),
        key_name=server.key_name,
        user_data=server.user_data,
        created_ms=server.created_ms,
        gone_ms=server.gone_ms,
        deletes=server.deletes,
        deleted_by=server.deleted_by,
        foreign=server.foreign,
        hidden=face.hidden,
        history=tuple(server.history),
    )
