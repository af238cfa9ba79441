"""The user-data that pool files lead to: its size, and what an operator should know (R14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from poolsm.spec import SYSTEM_USER_ID, Problem
from poolsm.userdata import (
    BAKED_CONFIG_PREFIX,
    UserDataParts,
    check_user_data,
    user_data_warnings,
)
from poolsm_runners.environment import Environment
from poolsm_runners.operations import ConfigDeclaration, PoolDeclaration


def check_user_data_of(
    pools: Mapping[str, PoolDeclaration],
    configs: Sequence[ConfigDeclaration],
    environment: Environment,
    problems: list[Problem],
) -> list[str]:
    """Render each pool's user-data; add what Nova would refuse to ``problems``.

    Returns warnings, each once. A config that is in none of the files may be in the log, so its
    absence is only a warning.
    """
    warnings: list[str] = []
    for where, pool in pools.items():
        parts = parts_declared(pool, configs, environment)
        if isinstance(parts, str):
            problems.append(Problem(where, str(pool.spec.key), "user-data", parts))
            continue
        problems += [
            Problem(where, str(pool.spec.key), *_halves(text))
            for text in check_user_data(str(pool.spec.key), parts)
        ]
        found = [_about(pool, text) for text in user_data_warnings(parts)]
        if _lacks_config(pool, configs):
            found.append(
                f"config {pool.spec.config_id!r} of pool {pool.spec.key} is in none of these "
                "files; if the log has none either, the pool's VMs get no config data"
            )
        warnings += [text for text in found if text not in warnings]
    return warnings


def parts_declared(
    pool: PoolDeclaration, configs: Sequence[ConfigDeclaration], environment: Environment
) -> UserDataParts | str:
    """What a declared pool's user-data is made of, or why it cannot be made."""
    data = pool.config_data
    if data is None:
        named = [config for config in configs if config.name == pool.spec.config_id]
        # max() keeps the first of equals; the newest declaration wins, so from the end
        best = max(reversed(named), key=lambda c: c.user_id == SYSTEM_USER_ID, default=None)
        data = best.data if best else ""
    try:
        return UserDataParts(
            config_id=pool.spec.config_id,
            config_data=data,
            admin_public_key=environment.admin_key or "",
            packages=pool.spec.packages,
            registrar=environment.registrar,
        )
    except ValueError as error:
        return str(error)


def _lacks_config(pool: PoolDeclaration, configs: Sequence[ConfigDeclaration]) -> bool:
    name = pool.spec.config_id
    if not name or name.startswith(BAKED_CONFIG_PREFIX) or pool.config_data is not None:
        return False
    return all(config.name != name for config in configs)


def _about(pool: PoolDeclaration, text: str) -> str:
    """A warning with its subject: nothing, the config, or the pool."""
    if text.startswith("no admin_public_key"):
        return f"{text}; set SSH_PUBLIC_KEY_PATH"
    if text.startswith("config ") and pool.config_data is None:
        return text
    return f"pool {pool.spec.key}: {text}"


def _halves(text: str) -> tuple[str, str]:
    message, _, remedy = text.partition("; ")
    return message.partition(": ")[2] or message, remedy
