"""Servers that a simulated cloud begins with: those that a log remembers.

The embedded cloud lives in the runner's process and ends with it. A real one would still have
the servers, so the next run gives it back what the log last saw.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from ipaddress import IPv4Address

from poolsm.records import ServerRecord
from poolsm.testing.config import VM
from poolsm.testing.server import Address, Face, SimServer, host_id_of, states_of
from poolsm.testing.world import World


def take_up(world: World, records: Iterable[ServerRecord]) -> None:
    """Have these servers, as they were last seen; one that was booting or changing is done."""
    for record in records:
        _take_up(world, record)


def _take_up(world: World, record: ServerRecord) -> None:
    status = "ACTIVE" if record.status == "BUILD" else record.status
    vm_state, _ = states_of(status)
    made_ms = _made_ms(record, world.now_ms)
    flavors = [f for f in world.flavors.values() if record.flavor_id in (f.name, f.flavor_id)]
    server = SimServer(
        server_id=record.server_id,
        project=VM,
        project_id=world.config.project_id(VM),
        user_id=world.config.username,
        flavor=flavors[0] if flavors else next(iter(world.flavors.values())),
        networks=(),
        key_name=record.key_name,
        config_drive=True,
        user_data=None,
        base_url=world.config.base_url,
        created_ms=made_ms,
        serial=len(world.servers) + 1,
        create_metadata=dict(record.metadata or {}),
        faces=[],
        history=[(made_ms, status, None)],
    )
    server.ports = _addresses(world, record)
    server.faces.append(
        Face(
            since_ms=made_ms,
            name=record.name or "",
            vm_state=vm_state,
            task_state=None,
            metadata=dict(record.metadata or {}),
            image_id=record.image_id or "",
            updated_ms=made_ms,
            addresses=server.ports,
            launched_ms=made_ms,
            host=host_id_of(record.server_id),
            plugged=True,
        )
    )
    world.admit(server)


def _made_ms(record: ServerRecord, now_ms: int) -> int:
    if not record.created:
        return now_ms
    return int(datetime.fromisoformat(record.created).timestamp() * 1000)


def _addresses(world: World, record: ServerRecord) -> tuple[Address, ...]:
    found: list[Address] = []
    for text in record.addresses:
        name, _, ip = text.partition(":")
        for network_id, network in world.networks.items():
            if network.config.name == name:
                host = int(IPv4Address(ip)) - int(network.subnet[0])
                network.next_host = max(network.next_host, host + 1)  # not given out again
                found.append(Address(name, network_id, ip, "fa:16:3e:00:00:00"))
    return tuple(found)
