"""Older events as compressed files beside the log, which are read as one with it.

    fleet.db.archive/events-000000000001-000000020000.jsonl.zst

Each file holds one range of positions: a head that says what follows, then a line for each
event with its commands. Its name appears only when it is whole, durable and read back; it is
never changed afterwards. The log's header says up to which position the archive counts; a file
beyond it (its range was not removed from the log yet) is ignored. So a crash at any point loses
nothing and doubles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
import zstandard
from attrs import frozen

from poolsm_runners.log.durable import sync, writing
from poolsm_runners.log.port import LogDamagedError, StoredCommand, StoredEntry

FORMAT = "poolsm-archive"
FORMAT_VERSION = 1
EVENTS_PER_FILE = 20_000  # a file is read whole
LEVEL = 9  # of zstd; beyond it, minutes more buy a few percent

_NAME = re.compile(r"events-(\d{12})-(\d{12})\.jsonl\.zst")


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    log_id: str
    first: int
    last: int
    sha256: str  # of the lines that follow
    seal: str  # of the log at ``last``, in hex; empty where the log had none


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    kind: str
    version: int
    command: msgspec.Raw


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    position: int
    at_ms: int
    kind: str
    version: int
    event: msgspec.Raw
    commands: list[_Command] = []


_ENCODER = msgspec.json.Encoder()
_LINES = msgspec.json.Decoder(_Line)
_HEADS = msgspec.json.Decoder(_Head)


@frozen
class ArchiveFile:
    """One file, and the positions that its name gives."""

    path: Path
    first: int
    last: int


def folder_of(log_path: Path) -> Path:
    """Where the archive of a log is."""
    return log_path.with_name(log_path.name + ".archive")


def files_of(log_path: Path) -> list[ArchiveFile]:
    """The archive's files by position; of two that begin alike, the longer one first.

    Foreign names are left alone.
    """
    found: list[ArchiveFile] = []
    with suppress(FileNotFoundError):
        for path in folder_of(log_path).iterdir():
            match = _NAME.fullmatch(path.name)
            if match:
                found.append(ArchiveFile(path, int(match[1]), int(match[2])))
    return sorted(found, key=lambda file: (file.first, -file.last))


def covering(log_path: Path, archived: int, after: int = 0) -> list[ArchiveFile]:
    """The files that hold every position with ``after < position <= archived``.

    The last of them may reach further. Raises LogDamagedError naming the position that is missing.
    """
    chosen: list[ArchiveFile] = []
    needed = 1
    for file in files_of(log_path):
        if file.first == needed <= archived:
            needed = file.last + 1
            if file.last > after:
                chosen.append(file)
    if needed <= archived:
        raise LogDamagedError(
            f"{folder_of(log_path)}: the file that begins with position {needed} is missing; "
            "put it back, or restore a backup together with its archive"
        )
    return chosen


def write(log_path: Path, log_id: str, seal: bytes, entries: Iterable[StoredEntry]) -> ArchiveFile:
    """Write one range of entries, and read it back; the file is durable then.

    Raises OSError: it could not be written, and nothing is left of it.
    """
    lines, first, last = [], 0, 0
    for entry in entries:
        first = first or entry.position
        last = entry.position
        lines.append(_encoded(entry))
    folder = folder_of(log_path)
    folder.mkdir(mode=0o700, exist_ok=True)
    file = ArchiveFile(folder / f"events-{first:012d}-{last:012d}.jsonl.zst", first, last)
    body = b"".join(lines)
    head = _Head(FORMAT, FORMAT_VERSION, log_id, first, last, sha256(body).hexdigest(), seal.hex())
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    with writing(file.path) as draft:
        draft.write(compressor.compress(_ENCODER.encode(head) + b"\n" + body))
    _whole(file, log_id)
    sync(folder)
    return file


def read(file: ArchiveFile, log_id: str, after: int = 0) -> Iterator[StoredEntry]:
    """The entries of one file beyond a position; it is checked before the first is given.

    Raises LogDamagedError.
    """
    _, body = _whole(file, log_id)
    for position, line in enumerate(body.splitlines(), file.first):
        if position > after:
            yield _decoded(line, file, position)


def verify(file: ArchiveFile, log_id: str) -> None:
    """Raise LogDamagedError for a file that is not what was archived."""
    _whole(file, log_id)


def seal_of(file: ArchiveFile, log_id: str) -> bytes:
    """The log's seal at the file's last position; raises LogDamagedError."""
    return bytes.fromhex(_whole(file, log_id)[0].seal)


def _whole(file: ArchiveFile, log_id: str) -> tuple[_Head, bytes]:
    try:
        text = zstandard.ZstdDecompressor().decompress(file.path.read_bytes())
        first, _, body = text.partition(b"\n")
        head = _HEADS.decode(first)
    except (OSError, zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise _damaged(file, str(error)) from None
    if (head.format, head.version) != (FORMAT, FORMAT_VERSION):
        raise _damaged(file, f"is {head.format!r} version {head.version}, not of this release")
    if head.log_id != log_id:
        raise _damaged(file, f"is of log {head.log_id}, this one is {log_id}")
    count = file.last - file.first + 1
    same = (head.first, head.last) == (file.first, file.last) and body.count(b"\n") == count
    if not same or sha256(body).hexdigest() != head.sha256:
        raise _damaged(file, "is not what was archived")
    return head, body


def _damaged(file: ArchiveFile, what: str) -> LogDamagedError:
    return LogDamagedError(f"{file.path}: {what}; put a good copy of this file back")


def _encoded(entry: StoredEntry) -> bytes:
    commands = [
        _Command(c.command_id, c.kind, c.version, msgspec.Raw(c.payload)) for c in entry.commands
    ]
    event = msgspec.Raw(entry.payload)
    line = _Line(entry.position, entry.at_ms, entry.kind, entry.version, event, commands)
    return _ENCODER.encode(line) + b"\n"


def _decoded(line: bytes, file: ArchiveFile, position: int) -> StoredEntry:
    try:
        found = _LINES.decode(line)
    except msgspec.MsgspecError as error:
        raise _damaged(file, f"position {position}: {error}") from None
    if found.position != position:
        raise _damaged(file, f"has position {found.position} where {position} belongs")
    return StoredEntry(
        found.position,
        found.at_ms,
        found.kind,
        found.version,
        bytes(found.event),
        tuple(StoredCommand(c.id, c.kind, c.version, bytes(c.command)) for c in found.commands),
    )
