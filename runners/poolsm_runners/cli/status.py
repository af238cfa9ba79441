"""``poolsm status``."""

from __future__ import annotations

from pathlib import Path

import click

from poolsm.conditions import concerns
from poolsm.shapes import ConditionView, FleetView, PoolView, VmView, WordView
from poolsm.story import format_span
from poolsm_runners.cli import exits
from poolsm_runners.cli.output import iso, json_option, log_option, print_columns, print_json
from poolsm_runners.control_requests import Standing, Status
from poolsm_runners.operations import RefusedError
from poolsm_runners.session import perform, runner_runs

WORDS_SHOWN_MS = 86_400_000  # what operators did is shown for a day; of one POOL always


@click.command()
@click.argument("pool", required=False)
@click.option("--vms", is_flag=True, help="Each VM, too.")
@log_option
@json_option
def status(pool: str | None, vms: bool, log: Path, as_json: bool) -> int:
    """Show pools and VMs, and why each pool is where it is.

    A runner that runs is asked; without one, what the log says last is shown. With the name of
    a POOL (user/pool, or pool alone), only that one, with its VMs.

    \b
    Examples:
      poolsm status
      poolsm status intro-python
      poolsm status --json | jq '.fleet.pools[] | {key, capacity, reason}'
    """
    standing, _ = perform(log, Status(vms=vms or pool is not None))
    assert isinstance(standing, Standing)
    pools = [found for found in standing.fleet.pools if pool is None or _is_named(found, pool)]
    if not pools and pool is not None:
        known = ", ".join(str(found.key) for found in standing.fleet.pools) or "none is declared"
        raise RefusedError(f"there is no pool {pool!r}; known: {known}")
    keys = {found.key for found in pools}
    shown = [vm for vm in standing.vms if vm.pool in keys]
    if as_json:
        print_json(
            {
                "source": standing.source,
                "trouble": standing.trouble,
                "fleet": standing.fleet,
                "vms": shown,
            }
        )
        return exits.OK
    _print_head(standing, log)
    print_columns(
        ("POOL", "STATE", "VMS", "MIN", "MAX", "READY", "ASSIGNED", "WHY"),
        [_pool_row(found) for found in pools],
    )
    for found in pools:
        for condition in concerns(found.conditions):
            if condition.type not in {"Provisioned", "Suspended"}:
                click.echo(f"  {found.key}: {_said(condition)}")
        if pool is not None or _is_recent(found.last_word, standing.fleet):
            _print_word(f"{found.key}: ", found.last_word)
    if shown:
        click.echo()
        head = ("VM", "POOL", "STATE", "AGE", "WHOSE", "ADDRESS", "ID")
        print_columns(head, [_vm_row(vm) for vm in shown])
    _print_requests(standing.fleet)
    return exits.OK


def _is_named(pool: PoolView, name: str) -> bool:
    return name in {str(pool.key), pool.key.serverpool_id}


def _print_head(standing: Standing, log: Path) -> None:
    fleet = standing.fleet
    if standing.trouble:
        who = "this is from the log"
        click.echo(f"  {standing.trouble}")
    elif standing.source == "runner":
        who = "a runner runs"
    elif runner_runs(log):
        who = "a runner holds the log and does not listen yet; this is from the log"
    else:
        who = "no runner runs; this is what the log says last"
    age = format_span(fleet.listing_age_ms) if fleet.listing_age_ms is not None else "never"
    click.echo(
        f"{iso(fleet.now_ms)}  {who}; last complete listing: {age} old, log at {fleet.position}"
    )
    for condition in concerns(fleet.conditions):
        click.echo(f"  {_said(condition)}")
    if _is_recent(fleet.last_word, fleet):
        _print_word("", fleet.last_word)
    if fleet.strays:
        ids = ", ".join(stray.server_id for stray in fleet.strays[:3])
        click.echo(
            f"  {len(fleet.strays)} servers carry tags of pools that are not declared: {ids}"
        )
    click.echo()


def _is_recent(word: WordView | None, fleet: FleetView) -> bool:
    return word is not None and fleet.now_ms - (word.at_ms or 0) <= WORDS_SHOWN_MS


def _print_word(what: str, word: WordView | None) -> None:
    if word is not None:
        click.echo(f"  {what}{word.deed} by {word.origin} at {iso(word.at_ms)}")


def _said(condition: ConditionView) -> str:
    since = f" since {iso(condition.since_ms)}" if condition.since_ms else ""
    return f"{condition.type} ({condition.reason}){since}: {condition.message}"


def pool_state(pool: PoolView) -> str:
    """A pool's state in one word or two."""
    words = [pool.state if pool.state != "active" else ""]
    words += ["warm" if pool.warm else "", "off-day" if pool.off_day else ""]
    words += ["PAUSED" if pool.paused else ""]
    return " ".join(word for word in words if word) or "active"


def _pool_row(pool: PoolView) -> tuple[object, ...]:
    return (
        pool.key,
        pool_state(pool),
        f"{pool.capacity}/{pool.owned}" if pool.owned != pool.capacity else pool.capacity,
        pool.min_vm,
        pool.max_vm or "-",
        pool.ready,
        pool.attributed,
        f"{pool.reason}: {pool.message}",
    )


def vm_state(vm: VmView) -> str:
    """A VM's state with what is under way."""
    if vm.held:
        return f"{vm.state}, HELD {vm.held}"
    if vm.leaving or vm.condemned:
        return f"{vm.state}, to be deleted" if vm.state != "deleting" else vm.state
    if vm.op is not None and vm.state != "pending":
        return f"{vm.state}, {vm.op.kind}"
    return f"{vm.state} ({vm.task_state})" if vm.task_state else vm.state


def _vm_row(vm: VmView) -> tuple[object, ...]:
    whose = (vm.claimant or vm.attributed_by) if vm.attributed else "-"
    address = ", ".join(vm.addresses) or "-"
    return (
        vm.name,
        vm.pool,
        vm_state(vm),
        format_span(vm.age_ms),
        whose,
        address,
        vm.server_id or "-",
    )


def _print_requests(fleet: FleetView) -> None:
    rows = [
        (a.request_id, a.pool, a.claimant, a.state, a.name or "-", a.message or "-")
        for a in fleet.assignments
        if a.state in {"waiting", "claiming", "granted"}
    ]
    if rows:
        click.echo()
        print_columns(("REQUEST", "POOL", "CLAIMANT", "STATE", "VM", "MESSAGE"), rows)
