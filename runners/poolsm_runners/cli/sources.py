"""What commands read: the environment, pool files, logs and exports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from poolsm.entries import Entry
from poolsm.errors import PoolsmError
from poolsm_runners.environment import Environment, EnvironmentVariableError, read_environment
from poolsm_runners.log.port import LogSource
from poolsm_runners.poolfile import PoolFile, PoolFileError, read_pool_files
from poolsm_runners.session import open_log

_SQLITE_MAGIC = b"SQLite format 3\0"


class SourceError(PoolsmError):
    """What is declared cannot be used; one line for each problem."""


def read_declarations(files: Sequence[Path]) -> tuple[Environment, list[PoolFile]]:
    """The environment and the pool files; raises SourceError with the problems of both."""
    problems: list[str] = []
    environment, found = Environment(), list[PoolFile]()
    try:
        environment = read_environment(os.environ)
    except EnvironmentVariableError as error:
        problems.append(str(error))
    try:
        found = read_pool_files(files, environment)
    except PoolFileError as error:
        problems.append(str(error))
    warm = environment.warm_pool
    problems += [
        f"{file.path}: pool {pool.spec.key}: is declared by SERVER_IMAGE_REF and the "
        "other variables, too; unset them, or remove it from the file"
        for file in found
        for pool in file.pools
        if warm is not None and pool.spec.key == warm.spec.key
    ]
    if problems:
        raise SourceError("\n".join(problems))
    return environment, found


class Entries:
    """All entries of a source, read anew by each loop over them."""

    def __init__(self, source: LogSource) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Entry]:
        return self._source.read()


def open_source(path: Path) -> LogSource:
    """A log, or an export of one; raises LogOpenError or LogExchangeError."""
    try:
        with path.open("rb") as file:
            beginning = file.read(len(_SQLITE_MAGIC))
    except OSError:
        return open_log(path)  # says what is wrong
    if beginning == _SQLITE_MAGIC or not beginning.startswith(b"{"):
        return open_log(path)
    from poolsm_runners.log.jsonl import JsonlSource

    return JsonlSource(path)
