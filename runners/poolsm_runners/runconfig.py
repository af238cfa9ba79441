"""What one run is told: the whole outcome of the command line and the environment."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from poolsm_runners.environment import Environment
from poolsm_runners.operations import ConfigDeclaration, PoolDeclaration


@frozen
class Declared:
    """Pools and configs of one source; ``origin`` is what each pool is recorded with (C2).

    ``origin`` is ``file pools.toml``, ``environment`` ...
    """

    origin: str
    pools: tuple[PoolDeclaration, ...] = ()
    configs: tuple[ConfigDeclaration, ...] = ()


@frozen
class RunConfig:
    """One run of a runner.

    Attributes:
        log: the log's path; made if there is none.
        cloud: name in clouds.yaml of the project where VMs live; None for the embedded
            simulated cloud.
        infra_cloud: name of the project of images, flavors and networks; empty for the same.
        time_zone: IANA name, of pools that name none (R9).
        declared: what the pool files and the environment declare, checked, in the clear.
        dry_run: observe, say what would be done, do nothing.
        start_at_ms: simulated time at the start, ms since 1970 UTC; None for now.
        speed: how many simulated seconds pass in one (simulated cloud only).
        environment: the admin's key, the registrar.
        stop_after_s: real seconds after which the run ends by itself; None for never.
        json_logs: log lines as JSON instead of ``key=value``.
        metrics: ``host:port`` to serve metrics and health at; empty for nowhere.
        table: show the live table instead of log lines.
    """

    log: Path
    cloud: str | None = None
    infra_cloud: str = ""
    time_zone: str = "UTC"
    declared: tuple[Declared, ...] = ()
    dry_run: bool = False
    start_at_ms: int | None = None
    speed: float = 1.0
    environment: Environment = Environment()  # noqa: RUF009 - it is frozen
    stop_after_s: float | None = None
    json_logs: bool = False
    metrics: str = ""
    table: bool = False
