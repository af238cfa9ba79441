"""A log for a dry run: reads what is there, keeps what is new in memory, writes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from poolsm import Fleet, Step
from poolsm.commands import Command
from poolsm.entries import Entry
from poolsm.events import Event, LogOpened
from poolsm.spec import SecretRef
from poolsm.views import fleet_view
from poolsm_runners.engine import Engine, Watcher, open_fleet
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import (
    LogHeader,
    LogSource,
    SecretMissingError,
    Snapshot,
    StoredEntry,
)


class DryLog:
    """Implements :class:`poolsm_runners.log.port.Log` without a trace."""

    def __init__(self, source: LogSource | None, secret_key: bytes, now_ms: int) -> None:
        self._source = source
        self._secret_key = secret_key
        self._header = source.header if source else LogHeader(str(uuid.uuid4()), now_ms, 0)
        self._secrets: dict[str, str] = {}

    @property
    def header(self) -> LogHeader:
        """The real log's, or one made up."""
        return self._header

    def last_position(self) -> int:
        """Of the real log."""
        return self._source.last_position() if self._source else 0

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Entry]:
        """The real log's entries."""
        return self._source.read(after, upto) if self._source else iter(())

    def read_stored(self, after: int = 0, upto: int | None = None) -> Iterator[StoredEntry]:
        """The real log's entries, undecoded."""
        return self._source.read_stored(after, upto) if self._source else iter(())

    def load_snapshot(self, state_version: int, upto: int | None = None) -> Snapshot | None:
        """The real log's snapshot."""
        return self._source.load_snapshot(state_version, upto) if self._source else None

    def get_secret(self, digest: str) -> str:
        """A secret of this run, or the real log's."""
        if digest in self._secrets:
            return self._secrets[digest]
        if self._source is None:
            raise SecretMissingError(f"no secret of digest {digest[:12]} in this dry run")
        return self._source.get_secret(digest)

    async def append(self, entries: Sequence[Entry]) -> None:
        """Forget."""

    async def put_secret(self, text: str) -> SecretRef:
        """Keep in memory, under the reference that the real log would give it."""
        data = text.encode()
        digest = hmac.new(self._secret_key, data, hashlib.sha256).hexdigest()
        ref = SecretRef(digest, len(data))
        self._secrets[ref.digest] = text
        return ref

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Forget."""

    async def trim(self, upto: int) -> None:
        """Keep the real log as it is."""

    async def close(self) -> None:
        """Nothing to give up."""


async def open_dry(path: Path, now_ms: int) -> tuple[DryLog, Fleet]:
    """The log at ``path`` without a trace, or one made up where there is none.

    Raises:
        LogOpenError: there is something else.
    """
    exists = await asyncio.to_thread(os.path.lexists, path)
    source = sqlite.open_read_only(path) if exists else None
    key = source.secret_key() if source else secrets.token_bytes(32)
    log = DryLog(source, key, now_ms)
    fleet = open_fleet(log)
    if fleet.position == 0:
        opened = LogOpened(at_ms=now_ms, log_id=log.header.log_id)
        await Engine(log, fleet).record(opened)
    return log, fleet


class DryReport:
    """What a dry run would have done: commands in order, and each pool's standing."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._commands: list[Command] = []

    def watcher(self, engine: Engine) -> Watcher:
        """Collects the commands of the run."""
        self._engine = engine

        def watch(event: Event, step: Step) -> None:
            _ = event
            self._commands += step.commands

        return watch

    def lines(self) -> list[str]:
        """For an operator: what would be done, then why each pool is where it is."""
        lines = [_line(command) for command in self._commands]
        lines = lines or ["would do nothing"]
        if self._engine is not None:
            for pool in fleet_view(self._engine.state).pools:
                lines.append(f"pool {pool.key}: {pool.reason}: {pool.message}")
        return lines


def _line(command: Command) -> str:
    on = getattr(command, "name", "") or getattr(command, "server_id", "")
    reason = command.reason
    return f"would issue {type(command).__name__} {on}: {reason.text} ({reason.rule})"
