"""Taking pools over from another service: declared once, and nothing undone that was said since."""

from __future__ import annotations

from attrs import frozen

from poolsm.events import AttributionDeclared, ConfigDeclared, Event, PoolDeclared
from poolsm.members import BY_ASSIGNMENT, BY_TRANSFER
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm_runners.operations import ConfigDeclaration, Desk, PoolDeclaration, declare

ORIGIN = "migration of "  # followed by the database's name


@frozen
class AttributionDeclaration:
    """Whose a server is, as the service before us says; ``claimant`` empty when it is free."""

    server_id: str
    attributed: bool
    claimant: str = ""


@frozen
class TakenOver:
    """What became of each thing: one line each, and the events that do it."""

    events: tuple[Event, ...]
    lines: tuple[str, ...]


async def take_over(
    desk: Desk,
    pools: list[PoolDeclaration],
    configs: list[ConfigDeclaration],
    attributions: list[AttributionDeclaration],
) -> TakenOver:
    """Declare what is not known yet, or known only from an earlier migration.

    A pool or config that a file, a person or a service declared since stays as it is, and a
    pool that was removed since stays removed. Attributions come first: no rule may see a pool
    whose VMs are not known to be somebody's.

    Raises:
        RefusedError: naming every pool that cannot be declared, and why.
    """
    state = desk.state
    kept = {p.spec.key: why for p in pools if (why := why_kept(state, p.spec.key))}
    mine = [pool for pool in pools if pool.spec.key not in kept]
    others = {c: why for c in configs if (why := _why_config_kept(state, c))}
    declared = await declare(desk, mine, [config for config in configs if config not in others])
    told = _attribute(desk, attributions)
    lines = [_config_line(config, others.get(config, ""), state, declared) for config in configs]
    lines += [_pool_line(p.spec.key, kept.get(p.spec.key, ""), state, declared) for p in pools]
    if attributions:
        lines.append(f"attributions: {len(told)} declared, {len(attributions) - len(told)} known")
    return TakenOver((*told, *declared), tuple(lines))


def why_kept(state: State, key: PoolKey) -> str:
    """Why a pool is not declared from a database, empty if it is."""
    pool = state.pools.get(key)
    if key in state.removed:
        return "it was removed since"
    if pool is None:
        return ""
    if pool.state != "active":
        return "it is being removed"
    return "" if pool.origin.startswith(ORIGIN) else f"declared by {pool.origin}"


def _why_config_kept(state: State, config: ConfigDeclaration) -> str:
    held = state.configs.get(f"{config.user_id}/{config.name}")
    if held is None or held.origin.startswith(ORIGIN):
        return ""
    return f"declared by {held.origin}"


def _attribute(desk: Desk, attributions: list[AttributionDeclaration]) -> list[Event]:
    state = desk.state
    found: list[Event] = []
    for said in attributions:
        known = state.declared.get(said.server_id)
        vm = state.vms.get(state.by_server.get(said.server_id, ""))
        held = vm.attribution if vm is not None else None
        newer = held is not None and held.by in (BY_ASSIGNMENT, BY_TRANSFER)
        same = known is not None and (known.attributed, known.claimant) == (
            said.attributed,
            said.claimant,
        )
        if not (newer or same or said.server_id in state.tombstones):
            found.append(
                AttributionDeclared(
                    at_ms=desk.now_ms,
                    server_id=said.server_id,
                    attributed=said.attributed,
                    claimant=said.claimant,
                    origin=desk.origin,
                )
            )
    return found


def _pool_line(key: PoolKey, kept: str, state: State, events: list[Event]) -> str:
    if kept:
        return f"pool {key}: kept as it is: {kept}"
    if not any(isinstance(event, PoolDeclared) and event.spec.key == key for event in events):
        return f"pool {key}: unchanged"
    return f"pool {key}: {'changed' if key in state.pools else 'declared'}"


def _config_line(config: ConfigDeclaration, kept: str, state: State, events: list[Event]) -> str:
    name = f"{config.user_id}/{config.name}"
    if kept:
        return f"config {name}: kept as it is: {kept}"
    written = any(
        isinstance(event, ConfigDeclared)
        and (event.user_id, event.name)
        == (
            config.user_id,
            config.name,
        )
        for event in events
    )
    if not written:
        return f"config {name}: unchanged"
    return f"config {name}: {'changed' if name in state.configs else 'declared'}"
