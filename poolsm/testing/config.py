"""What a simulated cloud is made of: its projects' resources, quotas and speeds.

The defaults are a small site like the recorded OpenStack of the contract tests: the same
flavors, one shared network, the same image names in both projects. Ids that are left empty
follow from the name alone, so a test can know them beforehand (:func:`image_id_of`).
"""

from __future__ import annotations

from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec
from attrs import frozen

VM = "vm"
INFRA = "infra"
PROJECTS = (VM, INFRA)

_NAMESPACE = uuid5(NAMESPACE_URL, "poolsm:simulated-cloud")


def stable_id(kind: str, *names: str) -> str:
    """The UUID that follows from the name of a resource."""
    return str(uuid5(_NAMESPACE, "/".join((kind, *names))))


def project_id_of(project: str) -> str:
    """Default id of a project (``vm`` or ``infra``): 32 hex digits, as Keystone gives them."""
    return UUID(stable_id("project", project)).hex


def image_id_of(name: str, project: str = VM) -> str:
    """Default id of an image, by its name and the project that owns it."""
    return stable_id("image", project, name)


def network_id_of(name: str) -> str:
    """Default id of a network, by its name."""
    return stable_id("network", name)


@frozen
class Spread:
    """A random duration: even between the two ends, and with probability ``tail`` up to
    ``tail_ms`` longer, as the slow boots of a loaded host are.
    """

    low_ms: int
    high_ms: int
    tail: float = 0.0
    tail_ms: int = 0


@frozen
class FlavorConfig:
    """One flavor. ``impossible``: no host has room, the server ends in ERROR."""

    flavor_id: str
    name: str
    ram_mb: int
    vcpus: int
    disk_gb: int
    impossible: bool = False


@frozen
class ImageConfig:
    """One image; ``members`` are the projects that have accepted it if it is shared.

    ``created_ms`` is milliseconds since 1970; 0 means the start of the cloud.
    """

    name: str
    project: str = VM
    image_id: str = ""
    status: str = "active"
    visibility: str = "private"
    min_ram_mb: int = 0
    min_disk_gb: int = 0
    size_bytes: int = 65_536
    members: tuple[str, ...] = ()
    created_ms: int = 0
    owner_id: str = ""


@frozen
class NetworkConfig:
    """One network with one subnet; servers get its addresses one after another.

    An empty ``cidr`` is a network without a subnet, on which no server can be made.
    """

    name: str
    cidr: str = "10.77.0.0/16"
    network_id: str = ""
    project: str = INFRA
    shared: bool = True
    status: str = "ACTIVE"


@frozen
class Quotas:
    """Limits of a project; -1 means none."""

    instances: int = 5_000
    cores: int = 20_000
    ram_mb: int = 50_000_000
    ports: int = 10_000
    metadata_items: int = 128


@frozen
class Speeds:
    """How long things take, as seen in a small real cloud (a boot of 2 to 6 s).

    A boot is its four phases one after another. ``no_host_ms`` is from the create to ERROR
    of a server that no host can take, ``deleted_ms`` how long a deleted server is still
    answered with status DELETED. ``list_us_per_server`` is added to the answer of a listing.
    """

    scheduling_ms: Spread = Spread(150, 400)
    building_ms: Spread = Spread(50, 150)
    networking_ms: Spread = Spread(200, 600)
    spawning_ms: Spread = Spread(1_500, 5_000)
    no_host_ms: Spread = Spread(300, 500)
    stop_ms: Spread = Spread(1_000, 3_000)
    start_ms: Spread = Spread(800, 2_500)
    rebuild_ms: Spread = Spread(2_000, 6_000)
    delete_ms: Spread = Spread(700, 2_500)
    deleted_ms: Spread = Spread(50, 300)
    answer_ms: Spread = Spread(10, 40)
    create_answer_ms: Spread = Spread(150, 450)
    list_us_per_server: int = 0


@frozen
class CloudConfig:
    """A whole simulated cloud.

    Attributes:
        base_url: what the links in answers begin with; a server of this cloud sets its own.
        max_microversion: the newest that Nova says it speaks; servers are shown as at 2.69.
        max_limit: most records on one page, as Nova's ``max_limit``.
        history_ms: how far back the fault ``stale`` can look.
        vm_quotas: of the project in which the pools' servers are.
        token_life_s: how long a token that the served cloud gives is good.
    """

    vm_project_id: str = project_id_of(VM)
    infra_project_id: str = project_id_of(INFRA)
    base_url: str = "http://127.0.0.1:9"
    region: str = "RegionOne"
    username: str = "sim"
    password: str = "sim"  # noqa: S105 - guards nothing: the served cloud is on 127.0.0.1
    flavors: tuple[FlavorConfig, ...] = (
        FlavorConfig("1", "m1.tiny", 512, 1, 1),
        FlavorConfig("2", "m1.small", 2048, 1, 20),
        FlavorConfig("3", "m1.medium", 4096, 2, 40),
        FlavorConfig("99", "m1.impossible", 900_000, 4, 10, impossible=True),
    )
    images: tuple[ImageConfig, ...] = (
        ImageConfig("worker-image", VM),
        ImageConfig("worker-image-old", VM),
        ImageConfig("desktop-image", VM),
        ImageConfig("worker-image", INFRA),
        ImageConfig("worker-image-old", INFRA),
        ImageConfig("desktop-image", INFRA),
    )
    networks: tuple[NetworkConfig, ...] = (NetworkConfig("lab-net"),)
    key_pairs: tuple[str, ...] = ("lab-key",)
    vm_quotas: Quotas = Quotas()
    infra_quotas: Quotas = Quotas()
    speeds: Speeds = Speeds()
    max_limit: int = 1000
    max_microversion: str = "2.104"
    history_ms: int = 120_000
    token_life_s: int = 3600

    def project_id(self, project: str) -> str:
        """The id of ``vm`` or ``infra``."""
        return self.vm_project_id if project == VM else self.infra_project_id

    def quotas(self, project: str) -> Quotas:
        """The limits of ``vm`` or ``infra`` at the start."""
        return self.vm_quotas if project == VM else self.infra_quotas


INSTANT = Spread(0, 0)
QUICK = Speeds(
    scheduling_ms=Spread(20, 40),
    building_ms=Spread(10, 20),
    networking_ms=Spread(20, 40),
    spawning_ms=Spread(100, 300),
    no_host_ms=Spread(50, 80),
    stop_ms=Spread(50, 150),
    start_ms=Spread(50, 150),
    rebuild_ms=Spread(100, 300),
    delete_ms=Spread(50, 150),
    deleted_ms=Spread(20, 40),
    answer_ms=INSTANT,
    create_answer_ms=INSTANT,
)


def read_config(data: bytes) -> CloudConfig:
    """A config from JSON; what it leaves out has its default.

    Raises:
        ValueError: the JSON does not fit, with the path of the field that does not.
    """
    try:
        return msgspec.json.decode(data, type=CloudConfig)
    except msgspec.MsgspecError as error:
        raise ValueError(f"simulated cloud: {error}") from None
