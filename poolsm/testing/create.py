"""``POST /servers``: every check that Nova makes, in Nova's order and words, then the boot.

The order is that of ``nova/api/openstack/compute/servers.py`` and ``nova/compute/api.py``:
the body's schema, flavor, image, metadata and image limits, key pair, networks and ports,
at last the quotas of instances, cores and memory.
"""

from __future__ import annotations

import re
from base64 import b64decode
from uuid import UUID

from poolsm.testing import lifecycle
from poolsm.testing.config import FlavorConfig
from poolsm.testing.glance import usable_by
from poolsm.testing.replies import Json, SimReply, json_reply, refuse
from poolsm.testing.server import Face, SimServer
from poolsm.testing.world import Image, World

NAME_LIMIT_CHARS = 255
USER_DATA_LIMIT_BYTES = 65_535  # encoded
_METADATA_KEY = re.compile(r"^[a-zA-Z0-9-_:. ]{1,255}$")
_ALLOWED = (
    "name",
    "imageRef",
    "flavorRef",
    "adminPass",
    "metadata",
    "networks",
    "OS-DCF:diskConfig",
    "accessIPv4",
    "accessIPv6",
    "availability_zone",
    "block_device_mapping",
    "block_device_mapping_v2",
    "config_drive",
    "key_name",
    "min_count",
    "max_count",
    "return_reservation_id",
    "security_groups",
    "user_data",
    "description",
    "tags",
    "trusted_image_certificates",
    "host",
    "hypervisor_hostname",
    "hostname",
)


def invalid(field: str, value: object, why: str, *, where: str = "field/attribute") -> Exception:
    """Nova's refusal of a body that its schema does not allow: it repeats the value."""
    text = f"Invalid input for {where} {field}. Value: {value}. {why}"
    return refuse(400, text)


def create(world: World, project: str, body: Json, now_ms: int) -> SimReply:
    """Check the body, make the server, answer 202."""
    wanted = checked_body(body)
    flavor = _flavor(world, str(wanted["flavorRef"]))
    image = _image(world, project, str(wanted.get("imageRef", "")))
    metadata = _metadata_of(wanted)
    check_metadata_count(world, project, len(metadata))
    check_image(image, flavor)
    key_name = wanted.get("key_name")
    if key_name is not None and key_name not in world.key_pairs[project]:
        raise refuse(400, "Invalid key_name provided.")
    _check_zone_and_groups(wanted)
    count = _count(wanted)
    networks = _networks(world, project, wanted["networks"], count)
    _check_quotas(world, project, flavor, count)
    servers = []
    for number in range(1, count + 1):
        name = f"{wanted['name']}-{number}" if count > 1 else str(wanted["name"])
        order = {**wanted, "name": name}
        server = _make(world, project, order, flavor, image, networks=networks, now_ms=now_ms)
        world.admit(server)
        lifecycle.begin_build(world, server, now_ms)
        servers.append(server)
    server = servers[0]
    answer: Json = {
        "id": server.server_id,
        "links": server.links(),
        "OS-DCF:diskConfig": "MANUAL",
        "security_groups": [{"name": "default"}],
        "adminPass": server.server_id[:12],
    }
    reply = json_reply(202, {"server": answer})
    reply.headers["location"] = f"{world.config.base_url}/compute/v2.1/servers/{server.server_id}"
    return reply


def checked_body(body: Json) -> Json:
    """The ``server`` object of a create that Nova's schema allows."""
    server = body.get("server")
    if not isinstance(server, dict):
        raise refuse(400, "'server' is a required property")
    for name in ("name", "flavorRef", "networks"):
        if name not in server:
            raise invalid("server", server, f"{name!r} is a required property")
    for name in server:
        if name not in _ALLOWED:
            why = f"Additional properties are not allowed ({name!r} was unexpected)"
            raise invalid("server", server, why)
    check_name(server["name"])
    if "imageRef" in server:
        _check_uuid("imageRef", server["imageRef"])
    if "metadata" in server:
        check_metadata(server["metadata"])
    if "user_data" in server:
        _check_user_data(server["user_data"])
    _check_networks_shape(server["networks"])
    return server


def check_name(name: object) -> None:
    """A server name: 1 to 255 printable characters, no blank at either end."""
    if not isinstance(name, str):
        raise invalid("name", name, f"{name!r} is not of type 'string'")
    if not name:
        raise invalid("name", name, f"{name!r} should be non-empty")
    if len(name) > NAME_LIMIT_CHARS:
        raise invalid("name", name, f"{name!r} is too long")
    if name != name.strip() or not name.isprintable():
        raise refuse(
            400,
            "An invalid 'name' value was provided. The name must be: printable characters. "
            "Can not start or end with whitespace.",
        )


def check_metadata(metadata: object) -> None:
    """Metadata: strings of at most 255 characters under plain keys."""
    if not isinstance(metadata, dict):
        raise invalid("metadata", metadata, f"{metadata!r} is not of type 'object'")
    for key, value in metadata.items():
        if not _METADATA_KEY.match(key):
            why = f"{key!r} does not match any of the regexes: {_METADATA_KEY.pattern!r}"
            raise invalid("metadata", metadata, why)
        if not isinstance(value, str):
            raise invalid(key, value, f"{value!r} is not of type 'string'")
        if len(value) > NAME_LIMIT_CHARS:
            raise invalid(key, value, f"{value!r} is too long")


def check_metadata_count(world: World, project: str, count: int) -> None:
    """A 403 that is no quota of servers and never succeeds."""
    limit = world.quotas[project].metadata_items
    if 0 <= limit < count:
        raise refuse(403, f"Maximum number of metadata items exceeds {limit}")


def check_image(image: Image, flavor: FlavorConfig) -> None:
    """Whether the flavor is big enough."""
    if image.min_ram_mb > flavor.ram_mb:
        raise refuse(400, "Flavor's memory is too small for requested image.")
    if image.min_disk_gb > flavor.disk_gb:
        gib = 1024**3
        raise refuse(
            400,
            f"Flavor's disk is too small for requested image. Flavor disk is "
            f"{flavor.disk_gb * gib} bytes, image is {image.size_bytes} bytes."
            if image.size_bytes > flavor.disk_gb * gib
            else "Flavor's disk is smaller than the minimum size specified in image metadata. "
            f"Flavor disk is {flavor.disk_gb * gib} bytes, minimum size is "
            f"{image.min_disk_gb * gib} bytes.",
        )


def find_image(world: World, project: str, image_id: str) -> Image | None:
    """The image, if the project may use it."""
    image = world.images.get(image_id)
    return image if image is not None and usable_by(image, project) else None


def _check_uuid(field: str, value: object) -> None:
    try:
        UUID(str(value))
    except ValueError:
        why = f"{value!r} is not valid under any of the given schemas"
        raise invalid(field, value, why) from None


def _check_user_data(value: object) -> None:
    if not isinstance(value, str):
        raise invalid("user_data", value, f"{value!r} is not of type 'string'")
    if len(value) > USER_DATA_LIMIT_BYTES:
        raise invalid("user_data", value, f"{value!r} is too long")
    if not _is_base64(value.encode()):
        raise invalid("user_data", value, f"{value!r} is not a 'base64'")


def _is_base64(encoded: bytes) -> bool:
    """As leniently as Nova: other characters are skipped, what is left must be whole."""
    try:
        b64decode(encoded)
    except ValueError:
        return False
    return True


def _check_networks_shape(networks: object) -> None:
    if networks in ("none", "auto"):
        return
    fits = isinstance(networks, list) and all(
        isinstance(item, dict) and _is_uuid(item.get("uuid", item.get("port"))) for item in networks
    )
    if not fits:
        why = f"{networks!r} is not valid under any of the given schemas"
        raise invalid("networks", networks, why)


def _is_uuid(value: object) -> bool:
    try:
        UUID(str(value))
    except ValueError:
        return False
    return True


def _metadata_of(wanted: Json) -> dict[str, str]:
    metadata = wanted.get("metadata")
    return {str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {}


def _flavor(world: World, flavor_id: str) -> FlavorConfig:
    flavor = world.flavors.get(flavor_id)
    if flavor is None:
        raise refuse(400, f"Flavor {flavor_id} could not be found.")
    return flavor


def _image(world: World, project: str, image_id: str) -> Image:
    if not image_id:
        raise refuse(400, "Invalid imageRef provided.")
    image = find_image(world, project, image_id)
    if image is None:
        raise refuse(400, "Can not find requested image")
    if image.status != "active":
        raise refuse(400, f"Image {image_id} is not active.")
    return image


def _count(wanted: Json) -> int:
    """How many servers one request asks for."""
    value = wanted.get("max_count", wanted.get("min_count", 1))
    if not str(value).isdigit() or int(str(value)) < 1:
        raise invalid("max_count", value, f"{value!r} is less than the minimum of 1")
    return int(str(value))


def _check_zone_and_groups(wanted: Json) -> None:
    if wanted.get("availability_zone", "nova") != "nova":
        raise refuse(400, "The requested availability zone is not available")
    groups = wanted.get("security_groups", [])
    for group in groups if isinstance(groups, list) else []:
        name = group.get("name") if isinstance(group, dict) else group
        if name != "default":
            raise refuse(400, f"Unable to find security_group with name or id '{name}'")


def _networks(world: World, project: str, wanted: object, count: int) -> tuple[str, ...]:
    """The networks' ids, each of which needs a port."""
    if wanted == "none" or not isinstance(wanted, list | str):
        return ()
    if isinstance(wanted, str):  # auto
        ids = list(world.networks)[:1]
    else:
        ids = [str(item.get("uuid", "")) for item in wanted if isinstance(item, dict)]
    for network_id in ids:
        network = world.networks.get(network_id)
        if network is None or not (network.config.shared or network.config.project == project):
            raise refuse(400, f"Network {network_id} could not be found.")
        if not network.config.cidr:
            text = f"Network {network_id} requires a subnet in order to boot instances on."
            raise refuse(400, text)
    limit = world.quotas[project].ports
    if ids and 0 <= limit < world.usage[project].ports + count * len(ids):
        raise refuse(403, "Maximum number of ports exceeded")
    return tuple(ids)


def _check_quotas(world: World, project: str, flavor: FlavorConfig, count: int) -> None:
    quotas, usage = world.quotas[project], world.usage[project]
    wanted = (
        ("cores", count * flavor.vcpus, usage.cores, quotas.cores),
        ("instances", count, usage.instances, quotas.instances),
        ("ram", count * flavor.ram_mb, usage.ram_mb, quotas.ram_mb),
    )
    over = [row for row in wanted if 0 <= row[3] < row[2] + row[1]]
    if not over:
        return
    names = ", ".join(row[0] for row in over)
    requested, used, allowed = (", ".join(str(row[i]) for row in over) for i in (1, 2, 3))
    raise refuse(
        403,
        f"Quota exceeded for {names}: Requested {requested}, "
        f"but already used {used} of {allowed} {names}",
    )


def _make(
    world: World,
    project: str,
    wanted: Json,
    flavor: FlavorConfig,
    image: Image,
    *,
    networks: tuple[str, ...],
    now_ms: int,
) -> SimServer:
    metadata = _metadata_of(wanted)
    key_name, user_data = wanted.get("key_name"), wanted.get("user_data")
    face = Face(
        since_ms=now_ms,
        name=str(wanted["name"]),
        vm_state="building",
        task_state="scheduling",
        metadata=metadata,
        image_id=image.image_id,
        updated_ms=now_ms,
    )
    return SimServer(
        server_id=world.new_id(),
        project=project,
        project_id=world.config.project_id(project),
        user_id=world.config.username,
        flavor=flavor,
        networks=networks,
        key_name=None if key_name is None else str(key_name),
        config_drive=wanted.get("config_drive") in (True, "true", "True", "1"),
        user_data=None if user_data is None else str(user_data),
        base_url=world.config.base_url,
        created_ms=now_ms,
        serial=len(world.servers) + 1,
        create_metadata=metadata,
        faces=[face],
        history=[(now_ms, "BUILD", "scheduling")],
    )
