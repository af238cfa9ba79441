"""``poolsm backup | restore`` and ``poolsm log check``: the log's life."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm_runners.cli import exits
from poolsm_runners.cli.output import iso, json_option, log_option, note, print_json
from poolsm_runners.cli.progress import progress_bar


@click.command()
@click.argument("dest", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--replace", is_flag=True, help="Take the place of a file that is there.")
@log_option
@json_option
def backup(dest: Path, replace: bool, log: Path, as_json: bool) -> int:
    """Copy the log to DEST, while a runner writes to it.

    The copy is one consistent moment, checked, and appears whole or not at all. Files of the
    log's archive are copied beside it. It holds the secrets, as the log does: it is made for
    its owner alone (mode 0600), keep it so.

    \b
    Example:
      poolsm backup /backup/poolsm-$(date +%F).db
    """
    from poolsm_runners.log.backup import backup as make_backup

    with progress_bar("copied", "bytes") as progress:
        found = make_backup(log, dest, replace=replace, progress=progress)
    if as_json:
        print_json(found)
    else:
        also = f", and {found.archive_files} files of its archive" if found.archive_files else ""
        click.echo(
            f"{found.path}: {found.size_bytes:,} bytes, up to position {found.position} "
            f"({iso(found.at_ms)}){also}; it holds secrets"
        )
    return exits.OK


@click.command()
@click.argument("copy", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--replace", is_flag=True, help="Put a log that is there aside.")
@log_option
@json_option
def restore(copy: Path, replace: bool, log: Path, as_json: bool) -> int:
    """Put the backup COPY where the log is to be. No runner may run.

    What the runner did after the backup is not in it. The next run observes the cloud first:
    servers that were created since are adopted, as somebody's until you release them; ids are
    never used twice. A log that was there is kept beside it.

    \b
    Example:
      systemctl stop poolsm && poolsm restore /backup/poolsm-2026-11-30.db --replace
    """
    from poolsm_runners.log.backup import restore as put_back

    with progress_bar("copied", "bytes") as progress:
        found, aside = put_back(copy, log, replace=replace, progress=progress)
    if as_json:
        print_json({"restored": found, "aside": str(aside) if aside else None})
        return exits.OK
    click.echo(f"{found.path}: is at position {found.position} ({iso(found.at_ms)}) again")
    if aside is not None:
        click.echo(f"{aside}: the log that was there")
    return exits.OK


@click.group()
def log() -> None:
    """Look after the log.

    \b
    Example:
      poolsm log check
    """


@log.command()
@log_option
@json_option
def check(log: Path, as_json: bool) -> int:
    """Read a whole log and its archive, and say everything that is wrong.

    Pages and indices; each event and command; the chain of seals, which finds what was edited
    or cut off; secrets against their digests; snapshots against the events. Changes nothing,
    and works while a runner runs.

    \b
    Example:
      poolsm log check --json

    Exit code 0: it is whole. 1: it is not.
    """
    from poolsm_runners.log.checking import check_log

    with progress_bar("checked", "events") as progress:
        found = check_log(log, progress)
    if as_json:
        print_json({"whole": not found.problems, "checked": found})
        return exits.NO if found.problems else exits.OK
    click.echo(
        f"{log}: {found.events:,} events ({found.archived:,} archived), {found.commands:,} "
        f"commands, {found.secrets} secrets, {found.snapshots} snapshots"
    )
    if found.unsealed:
        note(f"up to position {found.unsealed} an older release wrote it, without seals")
    for problem in found.problems:
        click.echo(f"  {problem}")
    click.echo(f"{len(found.problems)} problems" if found.problems else "whole")
    return exits.NO if found.problems else exits.OK
