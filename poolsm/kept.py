"""What the fold keeps of a server's record: all of it, and what others have too only once.

A large fleet's memory is strings, and most of them are the same: of the metadata of a pool's
VMs only the command id differs, and whose they are. A kept record equals the one that came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from poolsm.commands import CLAIMANT, COMMAND_ID, REQUEST_ID
from poolsm.members import Vm
from poolsm.records import ServerRecord
from poolsm.state import State

_OWN = (COMMAND_ID, CLAIMANT, REQUEST_ID)
_MOST = 4096  # shared values; if there are more, they are gathered anew


class Tags(Mapping[str, str]):
    """A server's metadata: a mapping that many servers share, and what is this one's alone."""

    __slots__ = ("_claimant", "_command_id", "_common", "_request_id")

    def __init__(
        self,
        common: dict[str, str],
        command_id: str | None = None,
        claimant: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """``common`` has none of the other three, each of which is None where it is absent."""
        self._common = common
        self._command_id = command_id
        self._claimant = claimant
        self._request_id = request_id

    def _own(self) -> dict[str, str]:
        values = (self._command_id, self._claimant, self._request_id)
        return {key: value for key, value in zip(_OWN, values, strict=True) if value is not None}

    def __getitem__(self, key: str) -> str:
        found = self._common.get(key)
        return self._own()[key] if found is None else found

    def __iter__(self) -> Iterator[str]:
        yield from self._common
        yield from self._own()

    def __len__(self) -> int:
        alone = (self._command_id, self._claimant, self._request_id)
        return len(self._common) + len(_OWN) - alone.count(None)

    def __eq__(self, other: object) -> bool:
        """Whether the other mapping has the same items; a listing compares every record so."""
        if not isinstance(other, Mapping):
            return NotImplemented
        if isinstance(other, Tags):
            return self._common == other._common and self._own() == other._own()
        get = other.get
        return (
            get(COMMAND_ID) == self._command_id
            and get(CLAIMANT) == self._claimant
            and get(REQUEST_ID) == self._request_id
            and len(other) == len(self)
            and self._common.items() <= other.items()
        )

    __hash__ = None  # type: ignore[assignment]


def keep(
    state: State, vm: Vm, record: ServerRecord, previous: ServerRecord | None = None
) -> ServerRecord:
    """The record of a VM, with each value that the VM or another record has already."""
    words = state.words
    if len(words) + len(state.commons) > _MOST + 8 * len(state.pools):
        words.clear()
        state.commons.clear()
    metadata = record.metadata
    if metadata is not None:
        kept = previous and previous.metadata
        # whoever reads a kept record only reads its metadata, as of any mapping
        tags = kept if kept == metadata else _tags(state, vm, metadata)
        metadata = cast("dict[str, str]", tags)
    status, task_state, image_id = record.status, record.task_state, record.image_id
    flavor_id, key_name = record.flavor_id, record.key_name
    return ServerRecord(
        vm.server_id,
        words.setdefault(status, status),
        vm.name if vm.name == record.name else record.name,
        task_state and words.setdefault(task_state, task_state),
        metadata,
        image_id and words.setdefault(image_id, image_id),
        flavor_id and words.setdefault(flavor_id, flavor_id),
        key_name and words.setdefault(key_name, key_name),
        record.addresses,
        record.created,
        record.fault,
        record.progress,
    )


def _tags(state: State, vm: Vm, metadata: Mapping[str, str]) -> Tags:
    common = dict(metadata)
    command_id = common.pop(COMMAND_ID, None)
    claimant = common.pop(CLAIMANT, None)
    request_id = common.pop(REQUEST_ID, None)
    held = vm.attribution
    if held is not None:
        claimant = held.claimant if held.claimant == claimant else claimant
        request_id = held.request_id if held.request_id == request_id else request_id
    return Tags(
        state.commons.setdefault(tuple(common.items()), common),
        vm.key if command_id == vm.key else command_id,
        claimant,
        request_id,
    )
