"""``poolsm acknowledge | reset | confirm-loss``: an operator's word on what poolsm cannot know."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm_runners.cli import exits
from poolsm_runners.cli.output import log_option
from poolsm_runners.cli.pools import change
from poolsm_runners.control_requests import Acknowledge, ConfirmLoss, Reset


@click.command()
@click.argument("pool")
@log_option
def acknowledge(pool: str, log: Path) -> int:
    """Say that a second manager or re-tagged servers were seen to.

    A pool with servers that somebody else made or re-tagged creates and deletes nothing, until
    you have found out who it is, have stopped it, and say so here. Servers that were re-tagged
    are then no longer counted as the pool's.

    \b
    Example:
      poolsm acknowledge alice/intro-python
    """
    change(log, Acknowledge(pool))
    return exits.OK


@click.command()
@click.argument("pool")
@log_option
def reset(pool: str, log: Path) -> int:
    """Have a pool try again now.

    Ends its backoff, closes its breaker, and tries a spec again that the cloud had refused:
    for when you have mended the cause.

    \b
    Example:
      poolsm reset alice/intro-python
    """
    change(log, Reset(pool))
    return exits.OK


@click.command("confirm-loss")
@log_option
def confirm_loss(log: Path) -> int:
    """Say that the servers that vanished at once are gone.

    When at least 5 servers and more than half of the fleet vanish between two listings,
    nothing is created or deleted any more: it may be the listing that is wrong. If you know
    that the servers are gone, say so here, and they are replaced.

    \b
    Example:
      poolsm status && poolsm confirm-loss
    """
    change(log, ConfirmLoss())
    return exits.OK
