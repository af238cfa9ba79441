"""``poolsm pools list | apply | remove``."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm.errors import PoolsmError
from poolsm.shapes import PoolView
from poolsm_runners.cli import exits
from poolsm_runners.cli.output import (
    json_option,
    log_option,
    note,
    plain,
    print_columns,
    print_json,
    warn,
)
from poolsm_runners.cli.sources import read_declarations
from poolsm_runners.cli.status import pool_state
from poolsm_runners.control_requests import Apply, Done, Remove, Request, Standing, Status
from poolsm_runners.session import perform

NO_RUNNER = "no runner runs: it is in the log, and done when one runs (`poolsm run`)"


@click.group()
def pools() -> None:
    """List, declare and remove pools.

    \b
    Examples:
      poolsm pools list
      poolsm pools apply pools.toml
      poolsm pools remove alice/intro-python
    """


@pools.command("list")
@log_option
@json_option
def list_pools(log: Path, as_json: bool) -> int:
    """Show what is declared, and where each pool comes from.

    \b
    Example:
      poolsm pools list --json | jq '.[].key'
    """
    standing, _ = perform(log, Status())
    assert isinstance(standing, Standing)
    found = standing.fleet.pools
    if as_json:
        print_json(found)
        return exits.OK
    head = ("POOL", "STATE", "MIN", "MAX", "IMAGE", "FLAVOR", "OFF-DAYS", "ORIGIN")
    print_columns(head, [_row(pool) for pool in found])
    return exits.OK


def _row(pool: PoolView) -> tuple[object, ...]:
    days = f"{','.join(pool.off_days)} ({pool.time_zone})" if pool.off_days else "-"
    image = pool.image_ref or "(by config)"
    ceiling = pool.max_vm or "-"
    where = pool.origin
    return (
        pool.key, pool_state(pool), pool.min_vm, ceiling, image, pool.flavor_ref, days, where,
    )  # fmt: skip


@pools.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@log_option
@json_option
def apply(files: tuple[Path, ...], log: Path, as_json: bool) -> int:
    """Declare the configs and pools of pool files: new ones, and changes.

    A running runner acts at once. A pool that is not in the files stays as it is; only `poolsm
    pools remove` removes one. A pool that is being removed is taken back. Makes the log if
    there is none.

    \b
    Example:
      poolsm pools apply pools.toml
    """
    _, found = read_declarations(files)
    answers: list[object] = []
    for file in found:
        for text in (*file.warnings, *file.notes):
            warn(text) if text in file.warnings else note(text)
        request = Apply(file.pools, file.configs)
        try:
            answers.append(plain(change(log, request, quiet=as_json, origin=file.origin)))
        except PoolsmError as error:
            error.args = (f"{file.path}: {error}",)
            raise
    if as_json:
        print_json(answers)
    return exits.OK


@pools.command()
@click.argument("pool")
@click.option("--include-assigned", is_flag=True, help="Delete VMs that are somebody's, too.")
@log_option
@json_option
def remove(pool: str, include_assigned: bool, log: Path, as_json: bool) -> int:
    """Drain a pool: delete all its VMs, make no new ones, then forget it.

    Refused while VMs are assigned, unless --include-assigned says that they are meant, too.
    A file that still declares the pool brings it back at the next `poolsm run` or `pools
    apply`: take it out there first.

    \b
    Example:
      poolsm pools remove alice/intro-python
    """
    answer = change(log, Remove(pool, include_assigned), quiet=as_json)
    if as_json:
        print_json(answer)
    return exits.OK


def change(log: Path, request: Request, *, quiet: bool = False, origin: str = "") -> Done:
    """Carry out a change and, unless ``quiet``, say what was done."""
    answer, by_runner = perform(log, request, origin=origin)
    assert isinstance(answer, Done)
    if not quiet:
        for line in answer.lines:
            click.echo(line)
    for text in answer.warnings:
        warn(text)
    if not by_runner:
        note(NO_RUNNER)
    return answer
