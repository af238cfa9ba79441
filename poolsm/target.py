"""What a pool's next server is to be: its spec, resolved against the cloud's catalogs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

from poolsm.commands import UserDataRef
from poolsm.images import NOT_FOUND, resolve_image
from poolsm.members import Pool, Target
from poolsm.records import FlavorRecord, NetworkRecord
from poolsm.spec import SYSTEM_USER_ID, PoolSpec, SecretRef
from poolsm.state import State

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@frozen
class Unresolved:
    """Why there is no target: a machine-readable reason and a message with what was tried."""

    reason: str
    message: str


def resolve_target(pool: Pool, state: State) -> Target | Unresolved:
    """Resolve image, flavor, networks and user-data of a pool.

    What was found is kept until the pool's spec or anything that it refers to changes.
    """
    known = state.targets.get(pool.key)
    if known is not None and known[0] is pool.spec:
        return known[1]
    target = _resolve(pool.spec, state)
    if isinstance(target, Target):
        state.targets[pool.key] = (pool.spec, target)
    return target


def _resolve(spec: PoolSpec, state: State) -> Target | Unresolved:
    image = resolve_image(spec, state)
    if image is None or not {"flavors", "networks"} <= state.catalogs_listed:
        return Unresolved("CatalogsPending", "images, flavors and networks are not listed yet")
    if not image.image_id:
        return Unresolved("ImageNotFound", f"{NOT_FOUND}: {image.text}")
    flavor = _one("flavor", spec.flavor_ref, state.flavors)
    if isinstance(flavor, Unresolved):
        return flavor
    networks: list[str] = []
    for ref in spec.networks:
        network = _one("network", ref, state.networks, state.settings.vm_project_id)
        if isinstance(network, Unresolved):
            return network
        networks.append(network)
    return Target(
        image.image_id,
        flavor,
        tuple(networks),
        spec.key_name,
        user_data_of(spec, state),
        image.text,
        image.ambiguous,
    )


def _one(
    what: str,
    ref: str,
    catalog: Mapping[str, FlavorRecord] | Mapping[str, NetworkRecord],
    owner: str = "",
) -> str | Unresolved:
    """The id that a reference means: an id as it is, else the only one of that name.

    Both projects' networks are known; of one name, the VM project's own comes first.

    A UUID that is not listed may still be one that only the VM project sees: Nova decides.
    """
    if ref in catalog or _UUID.fullmatch(ref):
        return ref
    named = sorted(key for key, record in catalog.items() if record.name == ref)
    own = [key for key in named if owner and getattr(catalog[key], "owner", None) == owner]
    named = own or named
    if len(named) == 1:
        return named[0]
    if named:
        return Unresolved(
            f"{what.capitalize()}Ambiguous", f"{what} {ref!r} names {', '.join(named)}; give the id"
        )
    return Unresolved(
        f"{what.capitalize()}NotFound",
        f"{what} {ref!r} is neither an id nor a name among {len(catalog)} {what}s",
    )


def config_named(name: str, state: State) -> SecretRef | None:
    """The config of a name; of several the one of user ``system`` wins, then the newest (R14)."""
    found = [config for config in state.configs.values() if config.name == name]
    if not found:
        return None
    return max(found, key=lambda c: (c.user_id == SYSTEM_USER_ID, c.order)).data


def user_data_of(spec: PoolSpec, state: State) -> UserDataRef:
    """What determines the pool's user-data: rendered by the runner at dispatch (C11)."""
    data = spec.config_data
    if data is None and spec.config_id:
        data = config_named(spec.config_id, state)
    return UserDataRef(
        config_id=spec.config_id,
        config_data=data,
        admin_key=state.settings.admin_key,
        registrar=state.settings.registrar,
        packages=spec.packages,
    )
