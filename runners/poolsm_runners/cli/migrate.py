"""``poolsm migrate``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from poolsm.spec import WARM_MATCHES
from poolsm_runners.cli import exits
from poolsm_runners.cli.output import (
    json_option,
    log_option,
    note,
    print_columns,
    print_json,
    warn,
)
from poolsm_runners.cli.pools import NO_RUNNER
from poolsm_runners.environment import read_environment
from poolsm_runners.migrate.mapping import Choices
from poolsm_runners.migrate.report import PoolReport, Report

WATCH_S = 6.0  # the replaced service writes its servers every 5 s
LINES_SHOWN = 20


@click.command()
@click.argument("database", type=click.Path(path_type=Path, dir_okay=False))
@log_option
@click.option(
    "--cloud",
    envvar="OS_CLOUD",
    default="",
    help="Name in clouds.yaml of the project where the VMs are. [env: OS_CLOUD]",
)
@click.option("--dry-run", is_flag=True, help="Read and compare, say what would be declared.")
@click.option(
    "--skip-invalid", is_flag=True, help="Leave out pools that cannot be declared as they are."
)
@click.option(
    "--key-name",
    envvar="API_KEYNAME",
    default="",
    help="Key pair of pools whose row names none. [env: API_KEYNAME]",
)
@click.option(
    "--warm-match",
    type=click.Choice(WARM_MATCHES),
    default="hardware",
    show_default=True,
    help="How pools draw from a warm pool; the replaced service looked at the hardware.",
)
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(min=0),
    default=WATCH_S,
    show_default=True,
    help="Seconds in which nobody may write DATABASE; 0: do not look who uses it.",
)
@json_option
def migrate(
    database: Path,
    log: Path,
    cloud: str,
    dry_run: bool,
    skip_invalid: bool,
    key_name: str,
    warm_match: str,
    watch_s: float,
    as_json: bool,
) -> int:
    """Take the pools of the replaced service over from its DATABASE, an SQLite file.

    Reads pools, configs and whose each VM is, holds that against the servers' metadata in the
    cloud, and declares all of it in the log, which is made if there is none. Neither DATABASE
    nor any server is touched. Where the two differ a VM counts as somebody's, and is named.
    What was declared since by a file, a person or a service stays as it is, so that the same
    migration may be made again. Refused while somebody still uses DATABASE.

    \b
    Examples:
      poolsm migrate openstack.db --cloud students --dry-run
      poolsm migrate openstack.db --cloud students
      poolsm run --cloud students --infra-cloud infra --dry-run

    Exit code 0: declared, or would be. 1: refused, nothing is declared.
    """
    from poolsm_runners.migrate.move import Order, move

    if cloud in {"", "sim"}:
        raise click.UsageError("--cloud: name the cloud that has the VMs, as clouds.yaml does")
    order = Order(
        database=database,
        log=log,
        cloud=cloud,
        environment=read_environment(os.environ),
        choices=Choices(key_name, warm_match),
        dry_run=dry_run,
        skip_invalid=skip_invalid,
        watch_s=watch_s,
    )
    report, by_runner = move(order, note)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if report.problems:
        return exits.NO
    if report.declared and not by_runner:
        note(NO_RUNNER)
    return exits.OK


def _print(report: Report) -> None:
    for text in report.warnings:
        warn(text)
    for text in report.notes[:LINES_SHOWN]:
        note(text)
    if len(report.notes) > LINES_SHOWN:
        note(f"... and {len(report.notes) - LINES_SHOWN} more of these; --json has them all")
    head = ("POOL", "MIN", "MAX", "VMS", "ATTRIBUTED", "FREE", "UNKNOWN", "DECLARED", "THEN")
    print_columns(head, [_pool_row(pool) for pool in report.pools])
    if report.configs:
        click.echo()
        print_columns(
            ("CONFIG", "BYTES", "DIGEST", "DECLARED"),
            [(c.name, c.size_bytes, c.digest[:12] or "-", c.outcome) for c in report.configs],
        )
    click.echo()
    click.echo(f"attributions: {report.attributions}")
    click.echo(f"servers of no pool: {report.others} (never touched)")
    for text in report.problems:
        click.echo(f"poolsm: error: {report.database}: {text}", err=True)
    if report.problems:
        click.echo(f"{len(report.problems)} problems: nothing is declared")
    elif report.dry_run:
        click.echo("dry run: nothing is declared")


def _pool_row(pool: PoolReport) -> tuple[object, ...]:
    least, most = (pool.spec.min_vm, pool.spec.max_vm or "-") if pool.spec else ("-", "-")
    words = [pool.outcome] + ["warm"] * bool(pool.spec and pool.spec.warm)
    return (
        pool.key, least, most, pool.vms, pool.attributed, pool.free, pool.unknown,
        ", ".join(words), pool.outlook or "-",
    )  # fmt: skip
