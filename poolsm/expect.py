"""Compare-and-act: may a command still be carried out on the server as it is now (R8)?"""

from __future__ import annotations

from poolsm.commands import (
    ATTRIBUTED,
    CLAIMANT,
    SERVERPOOL_ID,
    USER_ID,
    ClaimServer,
    Command,
    DeleteServer,
    Expectation,
)
from poolsm.records import ServerRecord

GO = ""
ALREADY = "already"


def expectation_of(command: Command) -> Expectation | None:
    """What a command expects, None if it needs no reading before it acts."""
    if isinstance(command, DeleteServer | ClaimServer):
        return command.expect
    return None


def verdict(command: Command, record: ServerRecord) -> str:
    """``GO``, ``ALREADY`` (nothing left to do), or how the server is not what was expected."""
    expect = expectation_of(command)
    if expect is None:
        return GO
    metadata = record.metadata
    if metadata is None:
        return "the server's metadata cannot be read"
    if isinstance(command, ClaimServer) and command.metadata.items() <= metadata.items():
        return ALREADY
    found = (metadata.get(SERVERPOOL_ID, ""), metadata.get(USER_ID, ""))
    if found != tuple(expect.pool):
        return f"expected pool {expect.pool}, found {found[1]}/{found[0]}"
    attributed = metadata.get(ATTRIBUTED, "true") != "false"
    if attributed != expect.attributed:
        return (
            f"expected reattrib={str(expect.attributed).lower()}, found {metadata.get(ATTRIBUTED)}"
        )
    if expect.unproven and ATTRIBUTED in metadata:
        return f"expected no reattrib, found {metadata[ATTRIBUTED]}"
    if expect.claimant and metadata.get(CLAIMANT, "") not in ("", expect.claimant):
        return f"expected claimant {expect.claimant!r}, found {metadata.get(CLAIMANT)!r}"
    return GO
