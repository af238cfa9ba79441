"""What happens to a cloud behind its API's back: operators, other programs, broken hosts."""

from __future__ import annotations

import msgspec
from attrs import evolve, frozen

from poolsm.testing.config import VM, FlavorConfig, ImageConfig, Quotas
from poolsm.testing.server import Face, ServerFault, SimServer, host_id_of, states_of
from poolsm.testing.world import World, make_image


@frozen
class Deed:
    """A manipulation by name, as data."""

    action: str
    arguments: dict[str, object]


class Hands:
    """Direct manipulation. It happens at the time of the last request (or ``advance``)."""

    def __init__(self, world: World) -> None:
        self._world = world

    # --- servers ----------------------------------------------------------------------------

    def vanish(self, server_id: str) -> None:
        """The API knows the server no more, though it exists: 404, and in no listing."""
        self._change(server_id, hidden=True)

    def restore(self, server_id: str) -> None:
        """A server that vanished is there again."""
        self._change(server_id, hidden=False)

    def kill(self, server_id: str) -> None:
        """Somebody else deletes a server: it is gone at once."""
        self._world.expel(self._server(server_id), self._world.now_ms, "cloud")

    def set_status(
        self, server_id: str, status: str, task_state: str | None = None, fault_text: str = ""
    ) -> None:
        """Somebody else changes a server's status (``SHUTOFF``, ``PAUSED``, ``ERROR`` ...).

        ERROR without ``fault_text`` is an operator's reset-state. A status that Nova does not
        have is shown as UNKNOWN.
        """
        vm_state, task = states_of(status)
        server = self._server(server_id)
        server.plan += 1
        server.delete_wanted = server.stuck = False
        fault = ServerFault(500, fault_text, self._world.now_ms) if fault_text else None
        self._change(server_id, vm_state=vm_state, task_state=task_state or task, fault=fault)

    def set_metadata(self, server_id: str, metadata: dict[str, str]) -> None:
        """Somebody else replaces a server's metadata."""
        self._change(server_id, metadata=dict(metadata))

    def rename(self, server_id: str, name: str) -> None:
        """Somebody else renames a server."""
        self._change(server_id, name=name)

    def lock(self, server_id: str, *, locked: bool = True) -> None:
        """Somebody else locks a server: it can be neither stopped nor deleted."""
        self._change(server_id, locked=locked)

    def add_server(
        self,
        name: str,
        metadata: dict[str, str] | None = None,
        *,
        status: str = "ACTIVE",
        project: str = VM,
        flavor_id: str = "",
        image_id: str = "",
        age_ms: int = 0,
    ) -> str:
        """Somebody else's server, made ``age_ms`` ago without a network; returns its id."""
        world = self._world
        vm_state, task_state = states_of(status)
        made_ms = world.now_ms - age_ms
        server_id = world.new_id()
        face = Face(
            since_ms=made_ms,
            name=name,
            vm_state=vm_state,
            task_state=task_state,
            metadata=dict(metadata or {}),
            image_id=image_id or next(iter(world.images), ""),
            updated_ms=made_ms,
            launched_ms=made_ms,
            host=host_id_of(server_id),
        )
        server = SimServer(
            server_id=server_id,
            project=project,
            project_id=world.config.project_id(project),
            user_id=world.config.username,
            flavor=world.flavors.get(flavor_id) or next(iter(world.flavors.values())),
            networks=(),
            key_name=None,
            config_drive=False,
            user_data=None,
            base_url=world.config.base_url,
            created_ms=made_ms,
            serial=len(world.servers) + 1,
            create_metadata={},
            faces=[face],
            foreign=True,
            history=[(made_ms, face.status, task_state)],
        )
        world.admit(server)
        return server_id

    # --- the rest of the cloud --------------------------------------------------------------

    def set_quota(
        self,
        project: str = VM,
        *,
        instances: int | None = None,
        cores: int | None = None,
        ram_mb: int | None = None,
        ports: int | None = None,
        metadata_items: int | None = None,
    ) -> None:
        """Change some limits of a project; -1 is no limit."""
        old = self._world.quotas[project]
        self._world.quotas[project] = Quotas(
            instances=old.instances if instances is None else instances,
            cores=old.cores if cores is None else cores,
            ram_mb=old.ram_mb if ram_mb is None else ram_mb,
            ports=old.ports if ports is None else ports,
            metadata_items=old.metadata_items if metadata_items is None else metadata_items,
        )

    def add_image(self, image: ImageConfig) -> str:
        """A new image, made now unless it says when; a random id unless it has one."""
        world = self._world
        if not image.image_id:
            image = evolve(image, image_id=world.new_id())
        world.images[image.image_id] = make_image(image, world.config, world.now_ms)
        return image.image_id

    def remove_image(self, image_id: str) -> None:
        """An image is deleted; servers made of it stay."""
        del self._world.images[image_id]

    def set_image(
        self, image_id: str, *, status: str = "", visibility: str = "", name: str = ""
    ) -> None:
        """Change an image: deactivate it, share it, rename it."""
        image = self._world.images[image_id]
        image.status = status or image.status
        image.visibility = visibility or image.visibility
        image.name = name or image.name
        image.updated_ms = self._world.now_ms

    def accept_image(self, image_id: str, project: str) -> None:
        """A project accepts an image that is shared with it."""
        self._world.images[image_id].members.add(project)

    def add_flavor(self, flavor: FlavorConfig) -> None:
        """A new flavor, or another one under the same id."""
        self._world.flavors[flavor.flavor_id] = flavor

    def remove_flavor(self, flavor_id: str) -> None:
        """A flavor is deleted; servers of it stay."""
        del self._world.flavors[flavor_id]

    def add_key_pair(self, name: str, project: str = VM) -> None:
        """A new key pair."""
        self._world.key_pairs[project].add(name)

    def remove_key_pair(self, name: str, project: str = VM) -> None:
        """A key pair is deleted."""
        self._world.key_pairs[project].discard(name)

    # --- as data ----------------------------------------------------------------------------

    def schedule(self, at_ms: int, action: str, **arguments: object) -> None:
        """Have one of these methods called at a time; arguments must be JSON values."""
        _check_action(action)
        deed = msgspec.json.encode(Deed(action, arguments)).decode()
        self._world.schedule(at_ms, "hands", argument=deed)

    def carry_out(self, deed: str) -> object:
        """Call the method that a JSON text names: ``{"action": ..., "arguments": {...}}``.

        Raises:
            ValueError: there is no such method, or its arguments do not fit.
        """
        try:
            read = msgspec.json.decode(deed, type=Deed)
            return _call(self, read)
        except (msgspec.MsgspecError, TypeError, KeyError) as error:
            raise ValueError(f"simulated cloud: {type(error).__name__}: {error}") from None

    def _server(self, server_id: str) -> SimServer:
        return self._world.servers[server_id]

    def _change(self, server_id: str, **changes: object) -> None:
        self._world.change(self._server(server_id), self._world.now_ms, **changes)


DEEDS = (
    "vanish",
    "restore",
    "kill",
    "set_status",
    "set_metadata",
    "rename",
    "lock",
    "add_server",
    "set_quota",
    "add_image",
    "remove_image",
    "set_image",
    "accept_image",
    "add_flavor",
    "remove_flavor",
    "add_key_pair",
    "remove_key_pair",
)


def _check_action(action: str) -> None:
    if action not in DEEDS:
        raise ValueError(f"simulated cloud: action {action!r}: one of {', '.join(DEEDS)}")


def _call(hands: Hands, deed: Deed) -> object:
    _check_action(deed.action)
    arguments = dict(deed.arguments)
    if deed.action == "add_image":
        return hands.add_image(msgspec.convert(arguments, ImageConfig))
    if deed.action == "add_flavor":
        hands.add_flavor(msgspec.convert(arguments, FlavorConfig))
        return None
    result: object = getattr(hands, deed.action)(**arguments)
    return result
