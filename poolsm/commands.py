"""Commands: what the core wants done (C2).

A rule returns drafts (no id yet); the fold gives each its id when it issues it, because the
id follows from the position of the event that caused it (C3). Each carries its reason with
the numbers in it.
"""

from __future__ import annotations

from typing import Self

from attrs import evolve, frozen

from poolsm.spec import PoolKey, SecretRef

# Metadata keys. The first seven are the replaced service's, the rest are ours.
USER_ID = "user_id"
SERVERPOOL_ID = "serverpool_id"
MIN_VM = "min_vm"
MAX_VM = "max_vm"
HOST = "host"
NETWORK_UUID = "network_uuid"
ATTRIBUTED = "reattrib"
CLAIMANT = "poolsm_claimant"
REQUEST_ID = "poolsm_request"
LOG_ID = "poolsm_log"
COMMAND_ID = "poolsm_command"

HOST_VALUE = "OpenStack"


@frozen
class Reason:
    """Why a command was issued.

    Attributes:
        rule: the rule's number and name (``R2 provision``).
        text: the rule's arithmetic (``missing = 5 - (3 + 1) = 1``).
    """

    rule: str
    text: str


@frozen
class Expectation:
    """What a server must still be, read again just before the call, or nothing is done (R8).

    Attributes:
        attributed: its metadata does not prove that it is free.
        claimant: whose it may be at most; empty for anybody's.
        unproven: its metadata says nothing at all of attribution (R11).
    """

    pool: PoolKey
    attributed: bool
    claimant: str = ""
    unproven: bool = False


@frozen
class UserDataRef:
    """Everything that determines a server's user-data, without a secret in it (C11, R14).

    The runner looks the secrets up by their digests and renders at dispatch; equal
    references render to equal text.
    """

    config_id: str = ""
    config_data: SecretRef | None = None
    admin_key: SecretRef | None = None
    registrar: SecretRef | None = None
    packages: tuple[str, ...] = ()


@frozen(kw_only=True)
class Command:
    """What all commands have."""

    command_id: str = ""
    reason: Reason

    def with_id(self, command_id: str) -> Self:
        """The command that a draft becomes when it is issued."""
        return evolve(self, command_id=command_id)


@frozen(kw_only=True)
class CreateServer(Command):
    """Build one server (R5). Posted at most once, ever (R7)."""

    pool: PoolKey
    name: str = ""
    image_id: str
    flavor_id: str
    networks: tuple[str, ...]
    key_name: str | None
    user_data: UserDataRef
    metadata: dict[str, str]

    def with_id(self, command_id: str) -> Self:
        """Name and metadata carry the id, so that the server can be found by it (C3)."""
        return evolve(
            self,
            command_id=command_id,
            name=f"{self.pool.serverpool_id}-{command_id}",
            metadata={**self.metadata, COMMAND_ID: command_id},
        )


@frozen(kw_only=True)
class ServerCommand(Command):
    """What all commands about one known server have."""

    server_id: str


@frozen(kw_only=True)
class DeleteServer(ServerCommand):
    """Delete one server by id, if it still is what ``expect`` says (R8)."""

    expect: Expectation


@frozen(kw_only=True)
class StopServer(ServerCommand):
    """Shut one server down; kept, not deleted (R9)."""


@frozen(kw_only=True)
class StartServer(ServerCommand):
    """Start one server (R9)."""


@frozen(kw_only=True)
class ClaimServer(ServerCommand):
    """Write membership and attribution in one metadata call, if ``expect`` holds (R4, R16)."""

    expect: Expectation
    metadata: dict[str, str]


@frozen(kw_only=True)
class RenameServer(ServerCommand):
    """Give a claimed server its pool's name (R4)."""

    name: str


@frozen(kw_only=True)
class RebuildServer(ServerCommand):
    """Rebuild one server in place from another image, when an operator asks."""

    image_id: str
    name: str


@frozen(kw_only=True)
class FindServer(ServerCommand):
    """Read one server by id: the proof that a missing one is gone (R7, R10)."""


@frozen(kw_only=True)
class FetchImage(Command):
    """List the images of both projects afresh, because a create was refused for one (R13)."""

    pool: PoolKey
    image_ref: str


COMMAND_TYPES: tuple[type[Command], ...] = (
    CreateServer,
    DeleteServer,
    StopServer,
    StartServer,
    ClaimServer,
    RenameServer,
    RebuildServer,
    FindServer,
    FetchImage,
)
