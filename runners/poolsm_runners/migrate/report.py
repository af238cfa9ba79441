"""What a migration finds and does, as plain values: the same for a terminal and for scripts."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from poolsm.spec import PoolKey, PoolSpec
from poolsm.state import State
from poolsm.vm import ACTIVE, ERROR
from poolsm_runners.migrate.mapping import Mapping
from poolsm_runners.migrate.servers import ATTRIBUTED_TO, FREE, UNKNOWN, Comparison, Found


@frozen
class PoolReport:
    """One pool of the database, the log or the environment, and its VMs in the cloud.

    Attributes:
        vms: in the cloud, by what is known of them; ``unknown`` counts as attributed.
        outlook: what its numbers alone will lead to once poolsm runs; empty for nothing.
    """

    key: PoolKey
    spec: PoolSpec | None
    vms: int
    attributed: int
    free: int
    unknown: int
    outcome: str
    outlook: str


@frozen
class ConfigReport:
    """One config: never its content."""

    name: str
    size_bytes: int
    digest: str
    outcome: str


@frozen
class Report:
    """The whole of a migration, done or rehearsed."""

    database: str
    cloud: str
    log: str
    dry_run: bool
    declared: bool
    pools: tuple[PoolReport, ...]
    configs: tuple[ConfigReport, ...]
    servers: tuple[Found, ...]
    others: int
    strays: dict[PoolKey, int]
    gone: tuple[str, ...]
    attributions: str
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def pool_reports(
    keys: Sequence[PoolKey], state: State, compared: Comparison, lines: Sequence[str]
) -> tuple[PoolReport, ...]:
    """One for each pool; ``state`` is the one after the declarations."""
    return tuple(_pool(key, state, compared, lines) for key in keys)


def _pool(key: PoolKey, state: State, compared: Comparison, lines: Sequence[str]) -> PoolReport:
    mine = [server for server in compared.servers if server.pool == key]
    counts = {
        standing: sum(server.standing == standing for server in mine)
        for standing in (ATTRIBUTED_TO, FREE, UNKNOWN)
    }
    held = state.pools.get(key)
    spec = held.spec if held is not None else None
    return PoolReport(
        key,
        spec,
        len(mine),
        counts[ATTRIBUTED_TO],
        counts[FREE],
        counts[UNKNOWN],
        outcome_of(f"pool {key}", lines, "not in the database"),
        _outlook(spec, mine) if spec is not None else "",
    )


def _outlook(spec: PoolSpec, servers: list[Found]) -> str:
    """R2, R6 and R8 on these numbers; a warm pool's VMs may serve instead of new ones (R4)."""
    parts = []
    capacity = sum(server.status != ERROR for server in servers)
    failed = sum(s.standing == FREE and s.status == ERROR for s in servers)
    idle = sum(s.standing == FREE and s.status == ACTIVE for s in servers)
    if failed:
        parts.append(f"{failed} free ones in ERROR are deleted")
    if capacity < spec.min_vm:
        parts.append(f"{spec.min_vm - capacity} are created or drawn")
    elif idle and spec.max_vm and capacity > spec.max_vm and not spec.warm:
        parts.append(f"{min(idle, capacity - spec.max_vm)} of {idle} free ones are deleted")
    return ", ".join(parts)


def config_reports(
    found: Mapping, state: State, lines: Sequence[str], *, digests: bool
) -> tuple[ConfigReport, ...]:
    """One for each config; a digest says something only under the key of a log that exists."""
    rows = []
    for config in found.configs:
        name = f"{config.user_id}/{config.name}"
        held = state.configs.get(name)
        digest = held.data.digest if held is not None and digests else ""
        size_bytes = len(config.data.encode())
        rows.append(
            ConfigReport(name, size_bytes, digest, outcome_of(f"config {name}", lines, "-"))
        )
    return tuple(rows)


def key_warnings(state: State, compared: Comparison, keys: Sequence[PoolKey]) -> list[str]:
    """Pools whose next VMs would get another key pair than those that they have."""
    found = []
    for key in keys:
        held = state.pools.get(key)
        used = sorted({s.key_name for s in compared.servers if s.pool == key and s.key_name})
        if held is not None and used and (held.spec.key_name or "") not in used:
            mine = held.spec.key_name or "none"
            found.append(
                f"pool {key}: its VMs have key pair {', '.join(used)}, new ones would get {mine}; "
                "see --key-name"
            )
    return found


def outcome_of(what: str, lines: Sequence[str], default: str) -> str:
    """What became of a thing: ``declared`` of ``pool alice/x: declared``."""
    found = (line.removeprefix(f"{what}: ") for line in lines if line.startswith(f"{what}: "))
    return next(found, default)
