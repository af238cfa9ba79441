"""``poolsm user-data``."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm.target import user_data_of
from poolsm.userdata import encode_user_data, render_user_data, user_data_warnings
from poolsm_runners.cli import exits
from poolsm_runners.cli.output import json_option, log_option, print_json, warn
from poolsm_runners.operations import pool_named
from poolsm_runners.secrets import parts_of
from poolsm_runners.session import opened_state


@click.command("user-data")
@click.argument("pool")
@log_option
@json_option
def user_data(pool: str, log: Path, as_json: bool) -> int:
    """Show what a pool's next VM gets at its first boot.

    This is the text itself, with the pool's secrets in it: mind who reads your screen and your
    pipes. The admin's key and the registrar are those of the last run.

    \b
    Example:
      poolsm user-data alice/intro-python
    """
    with opened_state(log) as (state, reader):
        spec = pool_named(state, pool).spec
        parts = parts_of(user_data_of(spec, state), reader.get_secret)
    text = render_user_data(parts)
    size = len(encode_user_data(text))
    warnings = user_data_warnings(parts)
    if as_json:
        print_json(
            {
                "pool": str(spec.key),
                "encoded_size_bytes": size,
                "warnings": warnings,
                "user_data": text,
            }
        )
        return exits.OK
    for warning in warnings:
        warn(warning)
    click.echo(text, nl=False)
    return exits.OK
