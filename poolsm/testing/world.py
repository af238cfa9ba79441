"""The state of a simulated cloud: its servers, images and usage, and what is due when."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from ipaddress import IPv4Network, ip_network
from random import Random
from uuid import UUID

from attrs import Factory, define, evolve, field

from poolsm.testing.config import (
    PROJECTS,
    CloudConfig,
    FlavorConfig,
    ImageConfig,
    NetworkConfig,
    Quotas,
    Spread,
    image_id_of,
    network_id_of,
)
from poolsm.testing.faults import FaultBook, Subject
from poolsm.testing.server import GONE, Address, SimServer

EPOCH_MS = 1_767_225_600_000  # 2026-01-01: when the images that come with the cloud were made


@define(eq=False)
class Image:
    """One image: its record and what changes of it."""

    image_id: str
    name: str
    project: str
    owner: str
    status: str
    visibility: str
    min_ram_mb: int
    min_disk_gb: int
    size_bytes: int
    created_ms: int
    updated_ms: int
    members: set[str]


@define(eq=False)
class Network:
    """One network and the addresses that are free on it."""

    network_id: str
    config: NetworkConfig
    subnet: IPv4Network
    next_host: int = 10
    returned: list[int] = field(factory=list)

    def take(self) -> str | None:
        """A free address, the one that is free the longest last; None if there is none."""
        if self.next_host < self.subnet.num_addresses - 1:
            self.next_host += 1
            return str(self.subnet[self.next_host - 1])
        return str(self.subnet[self.returned.pop(0)]) if self.returned else None

    def give_back(self, ip: str) -> None:
        """The address of a server that is gone."""
        self.returned.append(int(IPv4Network(ip).network_address) - int(self.subnet[0]))


@define(eq=False)
class Usage:
    """What a project's servers use of its quotas."""

    instances: int = 0
    cores: int = 0
    ram_mb: int = 0
    ports: int = 0

    def add(self, server: SimServer, sign: int) -> None:
        """Count a server in (1) or out (-1)."""
        self.instances += sign
        self.cores += sign * server.flavor.vcpus
        self.ram_mb += sign * server.flavor.ram_mb
        self.ports += sign * len(server.networks)


@define(frozen=True, order=True)
class Step:
    """Something that happens by itself at a time; void if its server has another plan then."""

    at_ms: int
    number: int
    action: str = field(order=False)
    server_id: str = field(default="", order=False)
    plan: int = field(default=0, order=False)
    argument: str = field(default="", order=False)


@define(eq=False)
class World:
    """Everything there is. Times are milliseconds since 1970 UTC.

    Several generators, so that neither a fault that is set nor how often somebody asks changes
    the ids or the boot times of the rest of a run with the same seed.
    """

    config: CloudConfig
    ids: Random
    pace: Random
    network: Random
    faults: FaultBook
    now_ms: int = 0
    servers: dict[str, SimServer] = field(factory=dict)
    live: dict[str, list[tuple[int, int, str]]] = Factory(lambda: {name: [] for name in PROJECTS})
    usage: dict[str, Usage] = Factory(lambda: {name: Usage() for name in PROJECTS})
    quotas: dict[str, Quotas] = field(factory=dict)
    key_pairs: dict[str, set[str]] = field(factory=dict)
    images: dict[str, Image] = field(factory=dict)
    networks: dict[str, Network] = field(factory=dict)
    flavors: dict[str, FlavorConfig] = field(factory=dict)
    due: list[Step] = field(factory=list)
    steps: int = 0

    def new_id(self) -> str:
        """A random UUID that no server has; servers taken up may have those of this seed."""
        while True:
            drawn = str(UUID(int=self.ids.getrandbits(128), version=4))
            if drawn not in self.servers:
                return drawn

    def lasts(self, spread: Spread) -> int:
        """A random duration in milliseconds."""
        return draw(self.pace, spread)

    def answers_in(self, spread: Spread) -> int:
        """A random time to an answer in milliseconds."""
        return draw(self.network, spread)

    def schedule(
        self, at_ms: int, action: str, server: SimServer | None = None, argument: str = ""
    ) -> None:
        """Have a step happen, within the server's present plan."""
        self.steps += 1
        server_id, plan = ("", 0) if server is None else (server.server_id, server.plan)
        heapq.heappush(self.due, Step(at_ms, self.steps, action, server_id, plan, argument))

    def change(self, server: SimServer, at_ms: int, **changes: object) -> None:
        """Show another face of a server from now on."""
        server.change(at_ms, self.config.history_ms, **changes)

    def admit(self, server: SimServer) -> None:
        """A new server is there."""
        self.servers[server.server_id] = server
        insort(self.live[server.project], server.sort_key)
        self.usage[server.project].add(server, 1)

    def expel(self, server: SimServer, at_ms: int, by: str) -> None:
        """A server is gone: 404 from now on."""
        if server.gone:
            return
        server.plan += 1
        self.unplug(server)
        self.change(server, at_ms, vm_state=GONE, task_state=None, hidden=False)
        server.gone_ms, server.deleted_by = at_ms, by
        keys = self.live[server.project]
        del keys[bisect_left(keys, server.sort_key)]
        self.usage[server.project].add(server, -1)

    def unplug(self, server: SimServer) -> None:
        """Give a server's addresses back."""
        for address in server.ports:
            network = self.networks.get(address.network_id)
            if network is not None:
                network.give_back(address.ip)
        server.ports = ()

    def addresses_for(self, server: SimServer) -> tuple[Address, ...] | str:
        """Addresses on the server's networks, or the name of the network that has none left."""
        taken: list[Address] = []
        for network_id in server.networks:
            network = self.networks.get(network_id)
            ip = None if network is None else network.take()
            if network is None or ip is None:
                for address in taken:
                    self.networks[address.network_id].give_back(address.ip)
                return network_id
            mac = self.ids.getrandbits(24).to_bytes(3, "big").hex(":")
            taken.append(Address(network.config.name, network_id, ip, f"fa:16:3e:{mac}"))
        return tuple(taken)


def draw(dice: Random, spread: Spread) -> int:
    """A random duration of a spread, in milliseconds."""
    low, high = spread.low_ms, spread.high_ms
    time_ms = low if high <= low else dice.randint(low, high)
    if spread.tail > 0 and dice.random() < spread.tail:
        time_ms += dice.randint(0, spread.tail_ms)
    return time_ms


def subject_of(server: SimServer) -> Subject:
    """A server as the faults know it."""
    return Subject(server.face.name, server.pool, server.server_id)


def make_image(config: ImageConfig, cloud: CloudConfig, now_ms: int) -> Image:
    """An image from its config."""
    created_ms = config.created_ms or now_ms
    return Image(
        image_id=config.image_id or image_id_of(config.name, config.project),
        name=config.name,
        project=config.project,
        owner=config.owner_id or cloud.project_id(config.project),
        status=config.status,
        visibility=config.visibility,
        min_ram_mb=config.min_ram_mb,
        min_disk_gb=config.min_disk_gb,
        size_bytes=config.size_bytes,
        created_ms=created_ms,
        updated_ms=created_ms,
        members=set(config.members),
    )


def make_network(config: NetworkConfig) -> Network:
    """A network from its config."""
    network_id = config.network_id or network_id_of(config.name)
    subnet = ip_network(config.cidr or "0.0.0.0/32")
    if not isinstance(subnet, IPv4Network):
        raise TypeError(f"network {config.name}: {config.cidr} is not IPv4")
    return Network(network_id, evolve(config, network_id=network_id), subnet)


def make_world(config: CloudConfig, seed: int) -> World:
    """An empty cloud with its images, flavors and networks."""
    world = World(
        config,
        ids=Random(f"{seed}/ids"),
        pace=Random(f"{seed}/pace"),
        network=Random(f"{seed}/network"),
        faults=FaultBook(Random(f"{seed}/faults")),
    )
    for name in PROJECTS:
        world.quotas[name] = config.quotas(name)
        world.key_pairs[name] = set(config.key_pairs)
    for image_config in config.images:
        image = make_image(image_config, config, EPOCH_MS)
        world.images[image.image_id] = image
    for network_config in config.networks:
        network = make_network(network_config)
        world.networks[network.network_id] = network
    world.flavors = {flavor.flavor_id: flavor for flavor in config.flavors}
    return world
