"""``poolsm assign`` and ``poolsm release``."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import click

from poolsm_runners.cli import exits
from poolsm_runners.cli.output import json_option, log_option, note, print_json
from poolsm_runners.cli.pools import NO_RUNNER, change
from poolsm_runners.control_requests import Ask, Assign, Assigned, Release
from poolsm_runners.session import perform

DEFAULT_WAIT_S = 300.0
DAY_S = 86_400.0
POLL_S = 0.25
GRACE_S = 15.0  # for the runner to tell of the end of a request

OPEN = ("waiting", "claiming")


@click.command()
@click.argument("pool")
@click.option("--to", "claimant", required=True, help="Whose the VM becomes.")
@click.option(
    "--request-id", default="", help="Asked again with the same id, the answer is the same."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=1, max=30 * DAY_S),
    default=DEFAULT_WAIT_S,
    show_default=True,
    help="Seconds after which the request expires.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait here for the VM.")
@log_option
@json_option
def assign(
    pool: str,
    claimant: str,
    request_id: str,
    wait_s: float,
    no_wait: bool,
    log: Path,
    as_json: bool,
) -> int:
    """Give somebody a VM of a pool.

    Takes a ready one; else one is made, if the pool's maximum allows; else the request waits
    until its time is over. On an off-day it takes a stopped one and leaves it stopped. Prints
    the VM's name, server id and addresses.

    \b
    Examples:
      poolsm assign exam-room --to carol
      poolsm assign exam-room --to carol --request-id seat-7 --wait 60
      poolsm assign exam-room --to carol --json | jq -r .vm.server_id

    Exit code 0: granted. 1: refused or expired. 4: recorded, without a VM yet (--no-wait, or no
    runner runs).
    """
    request_id = request_id or str(uuid.uuid4())
    answer, by_runner = perform(log, Assign(pool, request_id, claimant, wait_s))
    assert isinstance(answer, Assigned)
    if by_runner and not no_wait:
        answer = _wait(log, answer, wait_s)
    if as_json:
        print_json(answer)
    else:
        _print(answer)
    if not by_runner and answer.assignment.state in OPEN:
        note(NO_RUNNER)
    return _exit_code(answer)


@click.command()
@click.argument("target")
@log_option
def release(target: str, log: Path) -> int:
    """Give a VM back, or withdraw a request.

    TARGET is a request id, a server id, or a VM's name. The VM is deleted, unless its pool has
    reuse = true: then it is free for the next one.

    \b
    Example:
      poolsm release seat-7
    """
    change(log, Release(target))
    return exits.OK


def _wait(log: Path, answer: Assigned, wait_s: float) -> Assigned:
    give_up = time.monotonic() + wait_s + GRACE_S
    said = ""
    while answer.assignment.state in OPEN and time.monotonic() < give_up:
        if answer.why and answer.why != said:
            said = answer.why
            note(
                f"request {answer.assignment.request_id} waits; "
                f"pool {answer.assignment.pool}: {said}"
            )
        time.sleep(POLL_S)
        found, _ = perform(log, Ask(answer.assignment.request_id))
        assert isinstance(found, Assigned)
        answer = found
    return answer


def _print(answer: Assigned) -> None:
    asked = answer.assignment
    line = f"request {asked.request_id}: {asked.state}"
    if asked.message:
        line += f": {asked.message}"
    click.echo(line)
    if answer.vm is not None:
        click.echo(f"  VM         {answer.vm.name}")
        click.echo(f"  server id  {answer.vm.server_id}")
        click.echo(f"  addresses  {', '.join(answer.vm.addresses) or '-'}")
        click.echo(f"  state      {answer.vm.state}")


def _exit_code(answer: Assigned) -> int:
    if answer.assignment.state == "granted":
        return exits.OK
    return exits.WAITING if answer.assignment.state in OPEN else exits.NO
