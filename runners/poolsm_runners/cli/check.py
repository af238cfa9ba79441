"""``poolsm check``."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm_runners.cli import exits
from poolsm_runners.cli.output import json_option, print_json, warn
from poolsm_runners.cli.sources import SourceError, read_declarations
from poolsm_runners.poolfile import PoolFile


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def check(files: tuple[Path, ...], as_json: bool) -> int:
    """Check pool files: every error at once.

    Each error names file, key, value and remedy. Tables count from 1: pool[2] is the second
    [[pool]]. Off-days are shown in full, and what is accepted but should be looked at is a
    warning. The size of the user-data includes what the environment adds (SSH_PUBLIC_KEY_PATH,
    REGISTRAR_*). Nothing is asked of a cloud: whether an image exists, `poolsm run --dry-run`
    says.

    \b
    Example:
      poolsm check pools.toml
    """
    try:
        _, found = read_declarations(files)
    except SourceError as error:
        if as_json:
            print_json({"ok": False, "errors": str(error).splitlines(), "files": []})
            return exits.NO
        raise
    if as_json:
        print_json({"ok": True, "errors": [], "files": [_summary(file) for file in found]})
        return exits.OK
    for file in found:
        for text in file.warnings:
            warn(text)
        for text in file.notes:
            click.echo(f"{file.path}: {text}")
        click.echo(f"{file.path}: ok: {len(file.pools)} pools, {len(file.configs)} configs")
    return exits.OK


def _summary(file: PoolFile) -> dict[str, object]:
    return {
        "file": str(file.path),
        "pools": [pool.spec for pool in file.pools],
        "configs": [f"{config.user_id}/{config.name}" for config in file.configs],
        "warnings": file.warnings,
        "notes": file.notes,
    }
