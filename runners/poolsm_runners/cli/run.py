"""``poolsm run``."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import click

from poolsm_runners.cli import exits
from poolsm_runners.cli.output import is_terminal, log_option, note, warn
from poolsm_runners.cli.sources import read_declarations
from poolsm_runners.environment import Environment
from poolsm_runners.poolfile import PoolFile
from poolsm_runners.runconfig import Declared, RunConfig

SIMULATED = "sim"


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@log_option
@click.option(
    "--cloud",
    envvar="OS_CLOUD",
    default=SIMULATED,
    help="Name in clouds.yaml, or `sim` for the embedded simulated cloud. "
    "[env: OS_CLOUD; default: sim]",
)
@click.option(
    "--infra-cloud",
    envvar="INFRA_OS_CLOUD",
    default="",
    help="Name of the project of images, flavors and networks. "
    "[env: INFRA_OS_CLOUD; default: the same project]",
)
@click.option(
    "--time-zone",
    envvar="TZ",
    default="UTC",
    help="IANA name, for the off-days of pools that name none. [env: TZ; default: UTC]",
)
@click.option("--dry-run", is_flag=True, help="Observe, say what would be done, do nothing.")
@click.option("--start-at", help="Simulated cloud: begin at this time (2026-06-05T23:30:00Z).")
@click.option("--speed", type=float, default=1.0, help="Simulated cloud: seconds in one second.")
@click.option("--for", "seconds", type=float, help="End after so many (real) seconds.")
@click.option(
    "--metrics",
    envvar="POOLSM_METRICS",
    default="",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz there (127.0.0.1:9464). "
    "[env: POOLSM_METRICS; default: nowhere]",
)
@click.option("--json", "json_logs", is_flag=True, help="Log lines as JSON.")
@click.option("--no-table", is_flag=True, help="Log lines on a terminal, too.")
def run(
    files: tuple[Path, ...],
    log: Path,
    cloud: str,
    infra_cloud: str,
    time_zone: str,
    dry_run: bool,
    start_at: str | None,
    speed: float,
    seconds: float | None,
    metrics: str,
    json_logs: bool,
    no_table: bool,
) -> int:
    """Keep the pools of FILES, and those declared before, until it is stopped.

    On a terminal it shows a live table, else it writes log lines. SIGTERM, SIGHUP and Ctrl-C
    end it within seconds; kill it in any other way and the next run goes on from the log. A pool
    that is in no file stays as it was declared. With --dry-run it says what it would do and ends.

    \b
    Examples:
      poolsm run pools.toml
      poolsm run pools.toml --speed 60 --start-at 2026-06-05T23:30:00Z
      OS_CLOUD=students INFRA_OS_CLOUD=infra poolsm run pools.toml --dry-run
    """
    simulated = cloud in {"", SIMULATED}
    if not simulated and (start_at is not None or speed != 1.0):
        raise click.UsageError("--start-at and --speed are for the simulated cloud (--cloud sim)")
    if speed <= 0:
        raise click.UsageError(f"--speed {speed:g}: must be above 0")
    environment, found = read_declarations(files)
    for file in found:
        for text in file.warnings:
            warn(text)
        for text in file.notes:
            note(f"{file.path}: {text}")
    table = is_terminal() and not (no_table or json_logs or dry_run)
    config = RunConfig(
        log=log,
        cloud=None if simulated else cloud,
        infra_cloud=infra_cloud,
        time_zone=_zone(time_zone),
        declared=_declared(found, environment),
        dry_run=dry_run,
        start_at_ms=None if start_at is None else _instant_ms(start_at),
        speed=speed,
        environment=environment,
        stop_after_s=seconds,
        json_logs=json_logs,
        metrics=_address(metrics.strip()),
        table=table,
    )
    if simulated:
        note("on the embedded SIMULATED cloud: no real server is touched (--cloud NAME, OS_CLOUD)")
    asyncio.run(_serve(config, cloud if not simulated else "the simulated cloud"))
    return exits.OK


def _address(text: str) -> str:
    """Where metrics are served; a text that is no address is an error of the command line."""
    from poolsm_runners.metrics.address import Address, AddressError

    try:
        return str(Address.parse(text)) if text else ""
    except AddressError as error:
        raise click.UsageError(str(error)) from None


def _zone(name: str) -> str:
    from poolsm_runners.zones import load_zone

    load_zone(name or "UTC")
    return name or "UTC"


def _instant_ms(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--start-at {text!r}: is no time; write it like 2026-06-05T23:30:00Z"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _declared(found: Sequence[PoolFile], environment: Environment) -> tuple[Declared, ...]:
    declared = [Declared(file.origin, file.pools, file.configs) for file in found]
    if environment.warm_pool is not None:
        declared.append(Declared("environment", (environment.warm_pool,)))
    return tuple(declared)


async def _serve(config: RunConfig, cloud: str) -> None:
    from poolsm_runners.dry import DryReport
    from poolsm_runners.logs import configure_logs, log_watcher
    from poolsm_runners.service import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and shells in scripts do
            loop.add_signal_handler(number, stop.set)
    configure_logs(as_json=config.json_logs)
    if config.dry_run:
        report = DryReport()
        await serve(config, stop=stop, watchers=[report.watcher])
        for line in report.lines():
            click.echo(line)
        return
    if not config.table:
        await serve(config, stop=stop, watchers=[log_watcher])
        return
    from poolsm_runners.table import LiveTable

    with LiveTable(cloud) if os.environ.get("TERM") != "dumb" else nullcontext() as table:
        await serve(config, stop=stop, watchers=[table.watcher] if table else [log_watcher])
