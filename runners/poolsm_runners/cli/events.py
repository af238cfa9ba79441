"""``poolsm events list | export | import | archive``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from poolsm.codec import encode
from poolsm.entries import Entry
from poolsm_runners.cli import exits
from poolsm_runners.cli.output import iso, json_option, log_option, note, print_json
from poolsm_runners.cli.progress import progress_bar
from poolsm_runners.cli.sources import open_source
from poolsm_runners.session import open_log

TEXT_LIMIT_CHARS = 160


@click.group()
def events() -> None:
    """List, export, import and archive the events of a log.

    \b
    Examples:
      poolsm events list --after 100 --kind CallAnswered
      poolsm events export --out monday.jsonl
      poolsm events import monday.jsonl --log copy.db
      poolsm events archive --before 30d
    """


@events.command("list")
@click.option("--after", default=0, show_default=True, help="Only positions beyond this one.")
@click.option("--limit", type=int, help="At most so many.")
@click.option("--kind", "kinds", multiple=True, help="Only this kind; may be given again.")
@log_option
@json_option
def list_events(
    after: int, limit: int | None, kinds: tuple[str, ...], log: Path, as_json: bool
) -> int:
    """Show events with the commands that they caused. --log may also be an export.

    \b
    Example:
      poolsm events list --kind PoolDeclared --kind CallAnswered
    """
    shown = 0
    for entry in open_source(log).read(after=after):
        if kinds and type(entry.event).__name__ not in kinds:
            continue
        if limit is not None and shown >= limit:
            break
        shown += 1
        click.echo(_json_line(entry) if as_json else _line(entry))
    return exits.OK


def _line(entry: Entry) -> str:
    event = entry.event
    text = encode(event).decode()
    if len(text) > TEXT_LIMIT_CHARS:
        text = text[: TEXT_LIMIT_CHARS - 3] + "..."
    lines = [f"{entry.position:>7}  {iso(event.at_ms)}  {type(event).__name__}  {text}"]
    lines += [
        f"{'':>9}-> {type(command).__name__} {command.command_id}: {command.reason.text}"
        for command in entry.commands
    ]
    return "\n".join(lines)


def _json_line(entry: Entry) -> str:
    return json.dumps(
        {
            "position": entry.position,
            "kind": type(entry.event).__name__,
            "event": json.loads(encode(entry.event)),
            "commands": [
                {"kind": type(command).__name__, **json.loads(encode(command))}
                for command in entry.commands
            ],
        }
    )


@events.command()
@click.option("--out", type=click.Path(path_type=Path), help="The file; stdout without it.")
@log_option
def export(out: Path | None, log: Path) -> int:
    """Write a log as JSON lines: every event and command, no secrets.

    \b
    Example:
      poolsm events export --out monday.jsonl
    """
    from poolsm_runners.log.jsonl import export_jsonl

    source = open_log(log)
    if out is None:
        count = export_jsonl(source, sys.stdout.buffer)
    else:
        with out.open("xb") as file:
            count = export_jsonl(source, file)
    note(f"exported {count:,} events")
    return exits.OK


@events.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@log_option
def import_events(file: Path, log: Path) -> int:
    """Make a new log (--log) of an export. Secrets are not in it: declare the pools again.

    \b
    Example:
      poolsm events import monday.jsonl --log copy.db
    """
    from poolsm_runners.log.jsonl import import_jsonl

    count = import_jsonl(file, log)
    note(f"imported {count:,} events into {log}")
    return exits.OK


@events.command("archive")
@click.option(
    "--before",
    required=True,
    help="A position, a time (2026-11-01T00:00:00Z), or an age (30d, 12h).",
)
@click.option("--dry-run", is_flag=True, help="Say what would be archived, and do nothing.")
@log_option
@json_option
def archive_events(before: str, dry_run: bool, log: Path, as_json: bool) -> int:
    """Move older events to compressed files, which replay and explain still read.

    They go to LOG.archive, beside the log; keep the two together. Each file is written and read
    back before its events leave the log. Works while a runner runs. Events that the newest
    snapshot does not cover stay: a start would have to read them from the archive.

    \b
    Example:
      poolsm events archive --before 30d
    """
    from poolsm_runners.archiving import archive_before, plan_archive

    reader = open_log(log)
    plan = plan_archive(reader, before)
    done = plan
    if not dry_run and plan.events:
        with progress_bar("archived", "events") as progress:
            done = archive_before(log, reader, plan, progress)
    if as_json:
        print_json({"dry_run": dry_run, "archive": done})
        return exits.OK
    verb = "would be archived" if dry_run else "archived"
    click.echo(f"{log}: {done.events:,} events {verb}, up to position {done.upto}")
    if done.held_back:
        note(done.held_back)
    return exits.OK
