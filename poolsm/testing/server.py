"""A simulated server: what never changes of it, and its faces over time.

A ``Face`` is what the API shows at one moment. It is never changed but replaced, so its JSON
is encoded once and old faces can be shown again (the fault ``stale``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec
from attrs import define, evolve, field, frozen

from poolsm.commands import COMMAND_ID, SERVERPOOL_ID
from poolsm.testing.config import FlavorConfig, stable_id
from poolsm.testing.replies import Json

GONE = "gone"  # no row any more: 404
DELETED = "deleted"

# Nova's status by vm_state and task_state (``nova/api/openstack/common.py``).
_STATUS = {
    "building": "BUILD",
    "active": "ACTIVE",
    "stopped": "SHUTOFF",
    "error": "ERROR",
    "deleted": "DELETED",
    "soft-delete": "SOFT_DELETED",
    "paused": "PAUSED",
    "suspended": "SUSPENDED",
    "rescued": "RESCUE",
    "resized": "VERIFY_RESIZE",
    "shelved": "SHELVED",
    "shelved_offloaded": "SHELVED_OFFLOADED",
}
_TASK_STATUS = {
    "rebuilding": "REBUILD",
    "rebuild_block_device_mapping": "REBUILD",
    "rebuild_spawning": "REBUILD",
    "rebooting": "REBOOT",
    "rebooting_hard": "HARD_REBOOT",
    "migrating": "MIGRATING",
    "resize_prep": "RESIZE",
    "resize_migrating": "RESIZE",
}
VM_STATES = {status: vm_state for vm_state, status in _STATUS.items()}
_TASKS = {status: task for task, status in reversed(_TASK_STATUS.items())}
_PROGRESS = ("ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING")
_POWER = {"active": 1, "stopped": 4, "paused": 3, "suspended": 4, "rescued": 1}
_ENCODER = msgspec.json.Encoder()


def states_of(status: str) -> tuple[str, str | None]:
    """vm_state and task_state that Nova shows as this status; unknown ones as UNKNOWN."""
    if status in _TASKS:
        return "active", _TASKS[status]
    return VM_STATES.get(status, "unknown"), None


def iso(at_ms: int) -> str:
    """Nova's timestamp: whole seconds, UTC."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@frozen
class Address:
    """One address of a server on one network."""

    network: str
    network_id: str
    ip: str
    mac: str
    version: int = 4


@frozen
class ServerFault:
    """Why a server is in ERROR."""

    code: int
    message: str
    created_ms: int


@frozen(eq=False)
class Face:
    """What the API shows of a server from ``since_ms`` on."""

    since_ms: int
    name: str
    vm_state: str
    task_state: str | None
    metadata: dict[str, str]
    image_id: str
    updated_ms: int
    addresses: tuple[Address, ...] = ()
    fault: ServerFault | None = None
    launched_ms: int | None = None
    host: str = ""
    hidden: bool = False
    locked: bool = False
    plugged: bool = False

    @property
    def status(self) -> str:
        """Nova's status."""
        task = self.task_state or ""
        if self.vm_state in ("active", "stopped", "error") and task in _TASK_STATUS:
            return _TASK_STATUS[task]
        return _STATUS.get(self.vm_state, "UNKNOWN")

    @property
    def visible(self) -> bool:
        """Whether the API knows the server at all."""
        return self.vm_state != GONE and not self.hidden


@define(eq=False)
class SimServer:
    """One server ever created in the cloud.

    Attributes:
        ports: its addresses, which it shows once it is active.
        serial: its place in the order of creation.
        plan: number of what it is doing; steps of an older plan are void.
        user_data: as sent, base64, None without one.
        boot_ends: its boot will end by itself; a delete waits for that.
        stuck: the task state it shows will never end by itself.
        foreign: not made through the API (the direct manipulation ``add_foreign``).
        deletes: how many DELETE calls it was given.
        deleted_by: ``api`` or ``cloud`` once it is gone.
    """

    server_id: str
    project: str
    project_id: str
    user_id: str
    flavor: FlavorConfig
    networks: tuple[str, ...]
    key_name: str | None
    config_drive: bool
    user_data: str | None
    base_url: str
    created_ms: int
    serial: int
    create_metadata: dict[str, str]
    faces: list[Face]
    plan: int = 0
    delete_wanted: bool = False
    boot_ends: bool = False
    stuck: bool = False
    foreign: bool = False
    deletes: int = 0
    deleted_by: str = ""
    gone_ms: int | None = None
    ports: tuple[Address, ...] = ()
    history: list[tuple[int, str, str | None]] = field(factory=list)
    _encoded: tuple[Face, bytes] | None = None

    @property
    def face(self) -> Face:
        """What the API shows now."""
        return self.faces[-1]

    @property
    def status(self) -> str:
        """Nova's status now; ``gone`` for a server that answers 404."""
        return GONE if self.gone else self.face.status

    @property
    def gone(self) -> bool:
        """Whether it exists no more."""
        return self.face.vm_state == GONE

    @property
    def command_id(self) -> str:
        """The id of the command that created it; empty if another one did."""
        return self.create_metadata.get(COMMAND_ID, "")

    @property
    def pool(self) -> str:
        """The pool its metadata names now."""
        return self.face.metadata.get(SERVERPOOL_ID, "")

    @property
    def sort_key(self) -> tuple[int, int, str]:
        """Listings are ordered by the second of creation, then by row, newest first."""
        return (self.created_ms // 1000, self.serial, self.server_id)

    def change(self, at_ms: int, keep_ms: int, **changes: object) -> None:
        """Show another face from now on; faces that ended before ``keep_ms`` ago are dropped."""
        changes = {"updated_ms": at_ms, **changes, "since_ms": at_ms}
        # evolve() checks the names; their types are those of the callers' literals.
        face = evolve(self.face, **changes)  # type: ignore[arg-type]
        if (face.vm_state, face.task_state) != (self.face.vm_state, self.face.task_state):
            self.history.append((at_ms, face.status, face.task_state))
        self.faces.append(face)
        while len(self.faces) > 1 and self.faces[1].since_ms < at_ms - keep_ms:
            del self.faces[0]

    def face_at(self, at_ms: int) -> Face | None:
        """What the API showed at a time, None if nothing."""
        for face in reversed(self.faces):
            if face.since_ms <= at_ms:
                return face if face.visible else None
        return None

    def encoded(self) -> bytes:
        """JSON of the present face, from the cache if it has not changed."""
        face = self.faces[-1]
        if self._encoded is None or self._encoded[0] is not face:
            self._encoded = (face, _ENCODER.encode(self.view(face)))
        return self._encoded[1]

    def encoded_as(self, face: Face) -> bytes:
        """JSON of any face."""
        return self.encoded() if face is self.faces[-1] else _ENCODER.encode(self.view(face))

    def view(self, face: Face) -> Json:
        """A server as a project member sees it at microversion 2.69."""
        status = face.status
        view: Json = {
            "id": self.server_id,
            "name": face.name,
            "status": status,
            "tenant_id": self.project_id,
            "user_id": self.user_id,
            "metadata": face.metadata,
            "hostId": face.host,
            "image": {
                "id": face.image_id,
                "links": [{"rel": "bookmark", "href": f"{self._root}/images/{face.image_id}"}],
            },
            "flavor": self._flavor_view(),
            "created": iso(self.created_ms),
            "updated": iso(face.updated_ms),
            "addresses": addresses_view(face.addresses),
            "accessIPv4": "",
            "accessIPv6": "",
            "links": self.links(),
            "OS-DCF:diskConfig": "MANUAL",
        }
        if status in _PROGRESS:
            view["progress"] = 0
        if face.fault is not None and status in ("ERROR", "DELETED"):
            fault = face.fault
            view["fault"] = {
                "code": fault.code,
                "created": iso(fault.created_ms),
                "message": fault.message,
            }
        return view | self._extensions(face)

    def _extensions(self, face: Face) -> Json:
        launched = None if face.launched_ms is None else iso(face.launched_ms)[:-1] + ".000000"
        view: Json = {
            "OS-EXT-AZ:availability_zone": "nova" if face.host else "",
            "config_drive": "True" if self.config_drive else "",
            "key_name": self.key_name,
            "OS-SRV-USG:launched_at": launched,
            "OS-SRV-USG:terminated_at": None,
            "OS-EXT-STS:task_state": face.task_state,
            "OS-EXT-STS:vm_state": face.vm_state,
            "OS-EXT-STS:power_state": power_state(face),
            "os-extended-volumes:volumes_attached": [],
            "locked": face.locked,
            "description": None,
            "tags": [],
            "trusted_image_certificates": None,
        }
        if face.plugged:  # it has a port
            view["security_groups"] = [{"name": "default"}]
        return view

    def _flavor_view(self) -> Json:
        flavor = self.flavor
        return {
            "vcpus": flavor.vcpus,
            "ram": flavor.ram_mb,
            "disk": flavor.disk_gb,
            "ephemeral": 0,
            "swap": 0,
            "original_name": flavor.name,
            "extra_specs": {},
        }

    def down_view(self) -> Json:
        """The partial record of a server whose cell is down (microversion 2.69)."""
        return {
            "id": self.server_id,
            "status": "UNKNOWN",
            "tenant_id": self.project_id,
            "created": iso(self.created_ms),
            "links": self.links(),
        }

    def links(self) -> list[Json]:
        """Where it is."""
        return [
            {"rel": "self", "href": f"{self._root}/v2.1/servers/{self.server_id}"},
            {"rel": "bookmark", "href": f"{self._root}/servers/{self.server_id}"},
        ]

    @property
    def _root(self) -> str:
        return f"{self.base_url}/compute"


def power_state(face: Face) -> int:
    """Nova's number; a server that failed on its host may still run, one without never did."""
    if face.vm_state == "error":
        return 1 if face.host else 0
    return _POWER.get(face.vm_state, 0)


def addresses_view(addresses: tuple[Address, ...]) -> dict[str, list[Json]]:
    """Nova's mapping from network names to addresses."""
    view: dict[str, list[Json]] = {}
    for address in addresses:
        view.setdefault(address.network, []).append(
            {
                "version": address.version,
                "addr": address.ip,
                "OS-EXT-IPS:type": "fixed",
                "OS-EXT-IPS-MAC:mac_addr": address.mac,
            }
        )
    return view


def plain_addresses(addresses: tuple[Address, ...]) -> dict[str, list[Json]]:
    """The same without kind and MAC address, as a rename answers it."""
    short = ("version", "addr")
    return {
        network: [{key: one[key] for key in short} for one in entries]
        for network, entries in addresses_view(addresses).items()
    }


def host_id_of(server_id: str) -> str:
    """A hostId: 56 hex digits, one of four hosts."""
    host = int(server_id[-1], 16) % 4
    return (UUID(stable_id("host", str(host))).hex * 2)[:56]
