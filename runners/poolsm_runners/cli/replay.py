"""``poolsm replay``."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm.replay import ReplayResult
from poolsm.replay import replay as replay_entries
from poolsm_runners.cli import exits
from poolsm_runners.cli.output import iso, json_option, log_option, note, print_json
from poolsm_runners.cli.sources import open_source
from poolsm_runners.engine import uncollected

PROGRESS_EVERY = 100_000  # entries


@click.command()
@log_option
@click.option("--words", is_flag=True, help="Differences in a reason's words count, too.")
@json_option
def replay(log: Path, words: bool, as_json: bool) -> int:
    """Decide a log anew, and name the first difference from what was recorded.

    Folds every event from the first one with this release's rules and compares the commands.
    A difference means that the log was edited, or that these rules decide otherwise than those
    of the run; it is named with the state before it. --log may also be an export.

    \b
    Examples:
      poolsm replay
      poolsm replay --log export.jsonl --json

    Exit code 0: no difference. 1: there is one.
    """
    source = open_source(log)
    last = source.last_position()

    def progress(count: int) -> None:
        note(f"replayed {count:,} of {last:,} events")

    with uncollected():
        result = replay_entries(
            source.read(), progress=progress, every=PROGRESS_EVERY, stop_at_reasons=words
        )
    if as_json:
        print_json(
            {
                "same": result.same,
                "events": result.events,
                "commands": result.commands,
                "events_by_kind": result.events_by_kind,
                "commands_by_kind": result.commands_by_kind,
                "rewordings": result.rewordings,
                "difference": result.difference,
            }
        )
    else:
        _tell(result, log)
    return exits.OK if result.same else exits.NO


def _tell(result: ReplayResult, log: Path) -> None:
    span = f"{iso(result.from_ms)} to {iso(result.to_ms)}"
    click.echo(f"{log}: {result.events:,} events, {result.commands:,} commands, {span}")
    for kind, count in result.commands_by_kind.items():
        click.echo(f"  {count:>8,} {kind}")
    if result.rewordings:
        click.echo(f"  {result.rewordings:,} reasons are worded differently today")
    if result.difference is None:
        click.echo("no difference: every command was decided again just so")
        return
    for line in result.difference.describe():
        click.echo(line)
