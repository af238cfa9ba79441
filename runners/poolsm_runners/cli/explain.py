"""``poolsm explain``."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm.explain import explain_command, explain_pool, explain_vm
from poolsm.spec import PoolKey
from poolsm.story import Story
from poolsm_runners.cli import exits
from poolsm_runners.cli.output import json_option, log_option, print_json
from poolsm_runners.cli.sources import Entries, open_source

KINDS = ("vm", "pool", "command")


@click.command()
@click.argument("target")
@click.option("--as", "kind", type=click.Choice(KINDS), help="What TARGET is, if it is unclear.")
@log_option
@json_option
def explain(target: str, kind: str | None, log: Path, as_json: bool) -> int:
    """Tell why a VM, pool or command is as it is: facts, rules and numbers, in order.

    TARGET is a VM (server id, name, request id; a deleted one, too), a pool (user/pool), or a
    command id. --log may also be an export. Times are UTC.

    \b
    Examples:
      poolsm explain alice/intro-python
      poolsm explain 0f4c0f8e-6f5c-4a0b-9f5e-2f1f7d1f7a55
      poolsm explain seat-7 --as vm --log export.jsonl
    """
    story = _story(target, kind, Entries(open_source(log)))
    if as_json:
        print_json(story)
    else:
        for line in story.describe():
            click.echo(line)
    return exits.OK if story.found else exits.NO


def _story(target: str, kind: str | None, entries: Entries) -> Story:
    """Of the kind that was said; else of the first kind that knows the target."""
    if kind == "pool" or (kind is None and "/" in target):
        return explain_pool(entries, _pool_key(target, entries))
    if kind == "vm":
        return explain_vm(entries, target)
    if kind == "command":
        return explain_command(entries, target)
    # A creation's command id is also its VM's key: the VM's story has the creation in it.
    story = explain_vm(entries, target)
    if story.found:
        return story
    by_command = explain_command(entries, target)
    if by_command.found:
        return by_command
    by_pool = explain_pool(entries, _pool_key(target, entries))
    return by_pool if by_pool.found else story


def _pool_key(target: str, entries: Entries) -> PoolKey:
    user_id, slash, serverpool_id = target.rpartition("/")
    if slash:
        return PoolKey(serverpool_id, user_id)
    from poolsm.events import PoolDeclared

    keys = {e.event.spec.key for e in entries if isinstance(e.event, PoolDeclared)}
    found = sorted(key for key in keys if key.serverpool_id == target)
    return found[0] if len(found) == 1 else PoolKey(target, "")
