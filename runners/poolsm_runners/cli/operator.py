"""``poolsm pause | hold | acknowledge | reset ...``: an operator's word, which is the last one."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm_runners.cli import exits
from poolsm_runners.cli.output import log_option
from poolsm_runners.cli.pools import change
from poolsm_runners.control_requests import (
    Acknowledge,
    ConfirmLoss,
    Hold,
    Pause,
    Reset,
    Resume,
    Unhold,
)

why_option = click.option(
    "--reason", "why", default="", metavar="TEXT", help="For those who come after you."
)


@click.command()
@click.argument("pool", default="")
@why_option
@log_option
def pause(pool: str, why: str, log: Path) -> int:
    """Do nothing by itself, to POOL or, without a name, to any.

    Nothing is created, deleted, stopped, started, claimed or renamed, until `poolsm resume`.
    What was decided and not sent yet is not sent; answers to what was sent are heard. Servers
    are still listed. Requests for VMs wait; a removal waits, too. It outlives restarts.

    \b
    Examples:
      poolsm pause alice/intro-python --reason "host maintenance"
      poolsm pause
    """
    change(log, Pause(pool, why))
    return exits.OK


@click.command()
@click.argument("pool", default="")
@log_option
def resume(pool: str, log: Path) -> int:
    """Let the rules go on after a pause, of POOL or of the whole fleet.

    A pool that was paused by itself stays so when the fleet is resumed.

    \b
    Example:
      poolsm resume alice/intro-python
    """
    change(log, Resume(pool))
    return exits.OK


@click.command()
@click.argument("vm")
@why_option
@log_option
def hold(vm: str, why: str, log: Path) -> int:
    """Keep a VM as it is: a failed one, mostly, for somebody to look at.

    No rule deletes, stops, starts or hands it out. It still counts as owned, so it takes a
    place under the pool's maximum. VM is a server id, a name, or the id of a request.

    \b
    Example:
      poolsm hold intro-7f2c9a10-... --reason "does not boot since the new image"
    """
    change(log, Hold(vm, why))
    return exits.OK


@click.command()
@click.argument("vm")
@log_option
def unhold(vm: str, log: Path) -> int:
    """Let the rules apply to a held VM again: a failed one is deleted then.

    \b
    Example:
      poolsm unhold intro-7f2c9a10-...
    """
    change(log, Unhold(vm))
    return exits.OK


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
