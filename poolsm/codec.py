"""Events, commands and state to JSON bytes and back, and old versions to today's (C10).

Every kind has a version. What an older release wrote is read through upcasters: small
functions from one version's JSON object to the next one's. An unknown kind, or a version
from the future, is an error: skipping it would make every later decision wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from poolsm.commands import COMMAND_TYPES, Command
from poolsm.errors import UnknownKindError, UnreadableRecordError
from poolsm.events import EVENT_TYPES, Event

T = TypeVar("T")
Json = dict[str, object]

EVENT_VERSIONS: dict[str, int] = {kind.__name__: 1 for kind in EVENT_TYPES}
EVENT_VERSIONS["RunnerStarted"] = 2
COMMAND_VERSIONS: dict[str, int] = {kind.__name__: 1 for kind in COMMAND_TYPES}

_ENCODER = msgspec.json.Encoder()
_ORDERED = msgspec.json.Encoder(order="deterministic", enc_hook=dict)  # dict: of other mappings
_JSON_DECODER = msgspec.json.Decoder(Json)
_MALFORMED = (msgspec.MsgspecError, RecursionError)
_EVENT_DECODERS = {kind.__name__: msgspec.json.Decoder(kind) for kind in EVENT_TYPES}
_COMMAND_DECODERS = {kind.__name__: msgspec.json.Decoder(kind) for kind in COMMAND_TYPES}


def _runner_started_1_to_2(old: Json) -> Json:
    """Version 1 (before the first release) had the settings beside the other fields."""
    own: Json = {key: old[key] for key in ("at_ms", "epoch", "version") if key in old}
    return {**own, "settings": {key: old[key] for key in old if key not in own}}


# (kind, version read): to the next version
UPCASTERS: dict[tuple[str, int], Callable[[Json], Json]] = {
    ("RunnerStarted", 1): _runner_started_1_to_2,
}


def encode(value: object) -> bytes:
    """JSON of one event, command or state."""
    return _ENCODER.encode(value)


def encode_ordered(value: object) -> bytes:
    """JSON with sets and keys in order: equal values give equal bytes in any hash seed."""
    return _ORDERED.encode(value)


def decode(data: bytes, kind: type[T]) -> T:
    """A value of one type from its JSON; for types that are not versioned by themselves."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise UnreadableRecordError(f"{kind.__name__}: {error}") from None


def decode_event(kind: str, version: int, data: bytes) -> Event:
    """One event as any release wrote it.

    Raises:
        UnknownKindError: a kind or version that this release does not know.
        UnreadableRecordError: the bytes are not that event.
    """
    newest = EVENT_VERSIONS.get(kind)
    if newest is None or not 0 < version <= newest:
        raise UnknownKindError("event", kind, version, newest)
    try:
        while version < newest:
            data = _ENCODER.encode(UPCASTERS[kind, version](_JSON_DECODER.decode(data)))
            version += 1
        return _EVENT_DECODERS[kind].decode(data)
    except _MALFORMED as error:
        raise UnreadableRecordError(f"event {kind} version {version}: {error}") from None


def decode_command(kind: str, version: int, data: bytes) -> Command:
    """One command as any release wrote it; raises like :func:`decode_event`."""
    newest = COMMAND_VERSIONS.get(kind)
    if newest is None or not 0 < version <= newest:
        raise UnknownKindError("command", kind, version, newest)
    try:
        return _COMMAND_DECODERS[kind].decode(data)
    except _MALFORMED as error:
        raise UnreadableRecordError(f"command {kind} version {version}: {error}") from None
