"""What people and services may ask for: checked against the state, then made into events.

The same functions serve a running runner (through its control socket) and the command line
when no runner holds the log. Each returns events to be recorded in order, or refuses with one
line that names the thing, the value and the remedy; a refused request leaves no trace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import evolve, frozen

from poolsm.assignment import OPEN_STATES
from poolsm.errors import PoolsmError
from poolsm.events import (
    AssignmentRequested,
    ConfigDeclared,
    Event,
    LossConfirmed,
    PoolAcknowledged,
    PoolDeclared,
    PoolRemovalRequested,
    PoolReset,
    ReleaseRequested,
)
from poolsm.members import Pool
from poolsm.requests import find_vm
from poolsm.spec import PoolKey, PoolSpec, SecretRef, check_spec
from poolsm.state import State
from poolsm.target import user_data_of
from poolsm.userdata import check_user_data
from poolsm_runners.secrets import parts_of
from poolsm_runners.zones import zone_rules

PutSecret = Callable[[str], Awaitable[SecretRef]]
GetSecret = Callable[[str], str]


class RefusedError(PoolsmError):
    """A request that cannot be carried out as it is; nothing was changed."""


@frozen
class ConfigDeclaration:
    """A named config as a file or call declares it, its data in the clear."""

    user_id: str
    name: str
    data: str


@frozen
class PoolDeclaration:
    """A pool as a file or call declares it; ``config_data`` in the clear, None if it has none."""

    spec: PoolSpec
    config_data: str | None = None


@frozen
class Desk:
    """Where requests are received: the state they are checked against, secrets, the time."""

    state: State
    now_ms: int
    put_secret: PutSecret
    get_secret: GetSecret
    origin: str


async def declare(
    desk: Desk, pools: list[PoolDeclaration], configs: list[ConfigDeclaration]
) -> list[Event]:
    """Declare configs and pools; what is declared already just so makes no event.

    Raises:
        RefusedError: naming every pool that cannot be declared, and why.
    """
    problems = [f"pool {p.spec.key}: {q}" for p in pools for q in check_spec(p.spec)]
    if problems:
        raise RefusedError("\n".join(problems))
    events: list[Event] = []
    zones = {p.spec.time_zone for p in pools if p.spec.time_zone} - set(desk.state.zones)
    events += [zone_rules(zone, desk.now_ms) for zone in sorted(zones)]
    clear: dict[str, str] = {}
    declared: dict[str, SecretRef] = {}
    for config in configs:
        ref = await desk.put_secret(config.data)
        clear[ref.digest] = config.data
        declared[config.name] = ref
        known = desk.state.configs.get(f"{config.user_id}/{config.name}")
        if known is None or known.data != ref:
            events.append(
                ConfigDeclared(
                    at_ms=desk.now_ms,
                    user_id=config.user_id,
                    name=config.name,
                    data=ref,
                    origin=desk.origin,
                )
            )
    for pool in pools:
        spec = pool.spec
        if pool.config_data is not None:
            ref = await desk.put_secret(pool.config_data)
            clear[ref.digest] = pool.config_data
            spec = evolve(spec, config_data=ref)
        _check_size(desk, spec, declared, clear)
        held = desk.state.pools.get(spec.key)
        if held is None or held.spec != spec or held.state != "active":
            events.append(PoolDeclared(at_ms=desk.now_ms, spec=spec, origin=desk.origin))
    return events


def _check_size(
    desk: Desk, spec: PoolSpec, declared: dict[str, SecretRef], clear: dict[str, str]
) -> None:
    """The encoded user-data must fit Nova's limit, before the pool is declared (R14)."""
    ref = user_data_of(spec, desk.state)
    if spec.config_data is None and spec.config_id in declared:
        ref = evolve(ref, config_data=declared[spec.config_id])

    def look_up(digest: str) -> str:
        return clear[digest] if digest in clear else desk.get_secret(digest)

    try:
        problems = check_user_data(str(spec.key), parts_of(ref, look_up))
    except ValueError as error:
        raise RefusedError(f"pool {spec.key}: {error}") from None
    if problems:
        raise RefusedError("\n".join(problems))


def remove_pool(desk: Desk, name: str, *, include_assigned: bool) -> list[Event]:
    """Drain a pool; refused while VMs are assigned unless that is said to be meant (R12)."""
    pool = pool_named(desk.state, name)
    assigned = [vm.name for vm in desk.state.all_vms(pool) if vm.attribution is not None]
    if assigned and not include_assigned:
        raise RefusedError(
            f"pool {pool.key}: {len(assigned)} VMs are assigned ({', '.join(assigned[:3])}); "
            "release them first, or remove with --include-assigned"
        )
    return [
        PoolRemovalRequested(
            at_ms=desk.now_ms,
            pool=pool.key,
            include_assigned=include_assigned,
            origin=desk.origin,
        )
    ]


def assign(
    desk: Desk, name: str, *, request_id: str, claimant: str, deadline_s: float
) -> list[Event]:
    """Ask for a VM; a request id that is known makes no second request (R16)."""
    if not request_id or not claimant:
        raise RefusedError("assign: request id and claimant must not be empty")
    known = desk.state.assignments.get(request_id)
    if known is not None:
        if known.claimant != claimant:
            raise RefusedError(
                f"request {request_id}: was asked for {known.claimant!r}; use another request id"
            )
        return []
    pool = pool_named(desk.state, name)
    return [
        AssignmentRequested(
            at_ms=desk.now_ms,
            request_id=request_id,
            pool=pool.key,
            claimant=claimant,
            deadline_ms=desk.now_ms + int(deadline_s * 1000),
            origin=desk.origin,
        )
    ]


def release(desk: Desk, target: str) -> list[Event]:
    """Give back the VM of a request id, server id or name (R16)."""
    assignment = desk.state.assignments.get(target)
    waiting = assignment is not None and assignment.state in OPEN_STATES
    vm = find_vm(desk.state, target)
    if not waiting and (vm is None or vm.attribution is None):
        state = f"it is {assignment.state}" if assignment else "no assigned VM is known by that"
        raise RefusedError(f"release {target}: {state}; see `poolsm status`")
    return [ReleaseRequested(at_ms=desk.now_ms, target=target, origin=desk.origin)]


def reset(desk: Desk, name: str) -> list[Event]:
    """Have a pool try again now: breaker, backoff, invalid spec (R6)."""
    pool = pool_named(desk.state, name)
    return [PoolReset(at_ms=desk.now_ms, pool=pool.key, origin=desk.origin)]


def acknowledge(desk: Desk, name: str) -> list[Event]:
    """A second manager or re-tagged servers were seen to (R11)."""
    pool = pool_named(desk.state, name)
    if not pool.second_manager and not pool.disputed:
        raise RefusedError(f"pool {pool.key}: has nothing to acknowledge")
    return [PoolAcknowledged(at_ms=desk.now_ms, pool=pool.key, origin=desk.origin)]


def confirm_loss(desk: Desk) -> list[Event]:
    """The servers that left the listing at once are gone (R10)."""
    if desk.state.loss is None:
        raise RefusedError("confirm-loss: no loss is suspected")
    return [LossConfirmed(at_ms=desk.now_ms, origin=desk.origin)]


def pool_named(state: State, name: str) -> Pool:
    """A pool by ``user/pool``, or by its serverpool id alone where only one has it."""
    user_id, slash, serverpool_id = name.rpartition("/")
    if slash:
        pool = state.pools.get(PoolKey(serverpool_id, user_id))
        found = [pool] if pool else []
    else:
        found = [pool for key, pool in sorted(state.pools.items()) if key.serverpool_id == name]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(str(pool.key) for pool in found)
        raise RefusedError(f"pool {name!r} is ambiguous; say one of {names}")
    known = ", ".join(str(key) for key in sorted(state.pools)) or "none is declared"
    raise RefusedError(f"there is no pool {name!r}; known: {known}")
