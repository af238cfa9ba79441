"""The command line's reference, from its click commands; exit codes, from their table."""

from __future__ import annotations

import inspect
import re
import textwrap

import click

from generators.machines import HEAD
from poolsm_runners.cli import exits, main


def _text(command: click.Command) -> str:
    """A command's help as Markdown: paragraphs, and its examples as they are."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    shown = []
    for part in parts:
        if "\b" in part:
            body = re.sub(r"^\s*Examples?:\n", "", part.replace("\b\n", ""))
            shown.append(f"```sh\n{textwrap.dedent(body)}\n```")
        else:
            shown.append(" ".join(part.split()).replace("[[", r"\[["))
    return "\n\n".join(shown)


def _options(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record:
            names, text = (part.replace("|", "\\|") for part in record)
            rows.append(f"| `{names}` | {' '.join(text.split())} |")
    return "\n".join(["| option | |", "|---|---|", *rows]) if rows else ""


def _usage(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    pieces = " ".join(command.collect_usage_pieces(context))
    return f"```text\n{path} {pieces}\n```"


def _walk(command: click.Command, path: str, level: int) -> list[str]:
    parts = [
        f"{'#' * level} {path}",
        _usage(command, path),
        _text(command),
        _options(command, path),
    ]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                parts += _walk(found, f"{path} {name}", level + 1)
    return [part for part in parts if part]


def pages() -> dict[str, str]:
    """Commands, and exit codes."""
    intro = (
        "# Command line\n\nErrors are one line each on stderr; `POOLSM_DEBUG=1` adds a "
        "traceback. `POOLSM_LOG` names the log where `--log` does not.\n\n## Exit codes"
    )
    codes = "\n".join(
        ["| code | |", "|---|---|", *(f"| {n} | {text} |" for n, text in exits.MEANINGS.items())]
    )
    text = "\n\n".join([intro, codes, *_walk(main, "poolsm", 2)])
    return {"cli.md": f"{HEAD}{text}\n"}
