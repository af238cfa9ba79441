"""What commands share: options, columns, JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import attrs
import click
import msgspec

from poolsm.spec import PoolKey

F = TypeVar("F", bound=Callable[..., object])


def log_option(command: F) -> F:
    """``--log``, of every command that reads or changes one."""
    option = click.option(
        "--log",
        type=click.Path(path_type=Path, dir_okay=False),
        default="poolsm.db",
        show_default=True,
        envvar="POOLSM_LOG",
        help="The log.",
    )
    return option(command)


def json_option(command: F) -> F:
    """``--json``, for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")(command)


def plain(value: object) -> object:
    """A view as plain values: pools as ``user/pool``, records as objects."""
    if isinstance(value, PoolKey | Path):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    kind = type(value)
    if attrs.has(kind):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(kind)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def print_json(value: object) -> None:
    """One JSON document, indented."""
    text = msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode()
    click.echo(text)


def print_columns(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Left-aligned columns; the last one may be as long as it likes."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(head) - 1)]
    for row in cells:
        fixed = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        click.echo("  ".join([*fixed, row[-1]]).rstrip())


def aside(text: str) -> None:
    """A line on stderr; what cannot be written there is no reason to end, or to fail in the end."""
    try:
        click.echo(text, err=True)
    except OSError:
        # Python would try to write the rest at its exit, and give another exit code for that
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the process


def note(text: str) -> None:
    """Something beside the answer, on stderr."""
    aside(f"poolsm: {text}")


def warn(text: str) -> None:
    """Something to look at, on stderr."""
    aside(f"poolsm: warning: {text}")


def iso(at_ms: int | None) -> str:
    """``2026-01-05T08:00:03Z``; a dash for never."""
    if not at_ms:
        return "-"
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_terminal() -> bool:
    """Whether somebody is watching stdout."""
    return sys.stdout.isatty()
