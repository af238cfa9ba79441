"""The port between the loop and a cloud, and the one between the gateway and a transport.

``Cloud`` is what the loop knows. ``Gateway`` (in :mod:`.gateway`) implements it by speaking
Nova's, Glance's and Neutron's protocol over a ``Transport``: the SDK's sessions for a real
OpenStack, a function call for the embedded simulated one. Both run the same requests and
decode the same bytes, so a difference between the two is a difference of the clouds.
"""

from __future__ import annotations

from typing import Protocol

from attrs import field, frozen

from poolsm.commands import Command
from poolsm.records import FlavorRecord, ImageRecord, NetworkRecord, ServerRecord

VM = "vm"
INFRA = "infra"


@frozen
class Reply:
    """One whole HTTP answer. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class TransportError(Exception):
    """No whole answer came.

    ``kind`` is ``timeout`` (the deadline passed), ``not_sent`` (proven: no byte of the request
    left), ``connection`` (broken off, cut body), ``auth`` (credentials refused, or no such cloud;
    nothing was sent either), or ``other``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class ListingError(Exception):
    """A listing that did not complete: it proves nothing (R10)."""

    def __init__(
        self,
        message: str,
        *,
        http_status: int | None = None,
        transport_error: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.http_status = http_status
        self.transport_error = transport_error
        self.retry_after_s = retry_after_s


@frozen
class Answer:
    """The outcome of one command, raw: the fields of :class:`poolsm.events.CallAnswered`."""

    http_status: int | None = None
    transport_error: str | None = None
    error_kind: str = ""
    message: str = ""
    retry_after_s: int | None = None
    server_id: str | None = None
    server: ServerRecord | None = None
    unmet: str = ""


@frozen
class Projects:
    """The ids of the two projects; equal when one serves both purposes."""

    vm_project_id: str
    infra_project_id: str


class Transport(Protocol):
    """Carries one request to one service of one project."""

    async def projects(self) -> Projects:
        """Authenticate and say which projects these are; raises TransportError."""
        ...

    async def request(
        self,
        project: str,
        service: str,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        deadline_s: float,
        once: bool = False,
    ) -> Reply:
        """Send one request and return its answer, whatever its status.

        Args:
            project: ``VM`` or ``INFRA``.
            service: ``compute``, ``image`` or ``network``.
            method: ``GET``, ``POST`` ...
            path: below the service's versioned root, with its query (``/servers/detail?limit=9``).
            body: JSON, already encoded.
            deadline_s: seconds for the whole exchange, from the first byte to the last.
            once: never send it twice, not even after a 401 and a new token (R7).

        Raises:
            TransportError: no whole answer within the deadline.
        """
        ...

    async def close(self) -> None:
        """Give connections and threads back."""
        ...


class Cloud(Protocol):
    """What the loop asks of a cloud. Every call ends within its deadline."""

    async def projects(self) -> Projects:
        """Authenticate; raises ListingError with the reason when that is impossible."""
        ...

    async def list_servers(self) -> list[ServerRecord]:
        """All servers of the VM project, all pages; raises ListingError."""
        ...

    async def list_images(self, project: str) -> list[ImageRecord]:
        """All images that a project sees, all pages; raises ListingError."""
        ...

    async def list_flavors(self, project: str) -> list[FlavorRecord]:
        """All flavors that a project may use, all pages; raises ListingError."""
        ...

    async def list_networks(self, project: str) -> list[NetworkRecord]:
        """All networks that a project sees, all pages; raises ListingError."""
        ...

    async def execute(self, command: Command, user_data: str = "") -> Answer:
        """Carry out one command (any but FetchImage); never raises for what the cloud does.

        A command with an expectation reads the server first and does nothing if it is not met
        (:func:`poolsm.expect.verdict`). ``user_data`` is the encoded text of a create.
        """
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...


@frozen
class Deadlines:
    """Seconds that each class of call may take."""

    list_s: float = field(default=60.0)
    read_s: float = field(default=20.0)
    write_s: float = field(default=30.0)
    create_s: float = field(default=60.0)
