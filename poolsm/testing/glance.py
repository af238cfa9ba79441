"""Glance v2 as far as it is used: listing images, page by page, and reading one."""

from __future__ import annotations

from urllib.parse import urlencode

from poolsm.testing.replies import Json, Refused, SimReply, glance_error, json_reply
from poolsm.testing.server import iso
from poolsm.testing.world import Image, World

DEFAULT_LIMIT = 25  # Glance's limit_param_default
_SORT_KEYS = ("created_at", "updated_at", "name", "id", "status", "size")


def usable_by(image: Image, project: str) -> bool:
    """Whether a project may read and boot an image by its id."""
    return (
        image.project == project
        or image.visibility in ("public", "community")
        or (image.visibility == "shared" and project in image.members)
    )


def listed_for(image: Image, project: str) -> bool:
    """Whether a listing without filter shows it: own, public, accepted shared; no community."""
    if image.visibility == "community":
        return False
    return usable_by(image, project)


def refuse_image(status: int, message: str) -> Refused:
    """Glance's refusal, to be raised; the text is there for clients that accept JSON."""
    return Refused(glance_error(status, message), message)


def list_images(world: World, project: str, query: dict[str, str]) -> SimReply:
    """``GET /images``."""
    shown = [image for image in world.images.values() if listed_for(image, project)]
    shown = [image for image in shown if _matches(image, query)]
    key, reverse = _order(query)
    shown.sort(key=lambda image: (_sort_value(image, key), image.image_id), reverse=reverse)
    marker = query.get("marker")
    if marker:
        ids = [image.image_id for image in shown]
        if marker not in ids:
            raise refuse_image(400, f"No image found with ID {marker}")
        shown = shown[ids.index(marker) + 1 :]
    limit = min(_limit(query), world.config.max_limit)
    page = shown[:limit]
    body: Json = {
        "images": [view(image) for image in page],
        "first": _url({k: v for k, v in query.items() if k != "marker"}),
        "schema": "/v2/schemas/images",
    }
    if page and len(page) == limit:
        body["next"] = _url({**query, "marker": page[-1].image_id})
    return json_reply(200, body)


def show_image(world: World, project: str, image_id: str) -> SimReply:
    """``GET /images/{id}``: another's private image and an unknown id are the same answer."""
    image = world.images.get(image_id)
    if image is None or not usable_by(image, project):
        raise refuse_image(404, f"No image found with ID {image_id}")
    return json_reply(200, view(image))


def view(image: Image) -> Json:
    """An image as Glance shows it."""
    path = f"/v2/images/{image.image_id}"
    has_data = image.status != "queued"
    stores: Json = {"stores": "file"} if image.status == "active" else {}
    return stores | {
        "name": image.name,
        "disk_format": "raw",
        "container_format": "bare",
        "visibility": image.visibility,
        "size": image.size_bytes if has_data else None,
        "virtual_size": image.size_bytes if has_data else None,
        "status": image.status,
        "checksum": None,
        "protected": False,
        "min_ram": image.min_ram_mb,
        "min_disk": image.min_disk_gb,
        "owner": image.owner,
        "os_hidden": False,
        "os_hash_algo": None,
        "os_hash_value": None,
        "id": image.image_id,
        "created_at": iso(image.created_ms),
        "updated_at": iso(image.updated_ms),
        "tags": [],
        "self": path,
        "file": f"{path}/file",
        "schema": "/v2/schemas/image",
    }


def _matches(image: Image, query: dict[str, str]) -> bool:
    wanted = (
        ("name", image.name),
        ("status", image.status),
        ("owner", image.owner),
        ("visibility", image.visibility),
    )
    return all(query.get(name) in (None, value) for name, value in wanted)


def _order(query: dict[str, str]) -> tuple[str, bool]:
    """Sort key and whether it descends; ``sort=key:dir`` or ``sort_key`` and ``sort_dir``."""
    key, _, direction = query.get("sort", "").split(",")[0].partition(":")
    key = key or query.get("sort_key", "created_at")
    direction = direction or query.get("sort_dir", "desc")
    if key not in _SORT_KEYS:
        raise refuse_image(400, f"Invalid sort key: {key}")
    return key, direction == "desc"


def _sort_value(image: Image, key: str) -> str:
    values = {
        "created_at": f"{image.created_ms:020}",
        "updated_at": f"{image.updated_ms:020}",
        "name": image.name,
        "id": image.image_id,
        "status": image.status,
        "size": f"{image.size_bytes:020}",
    }
    return values[key]


def _limit(query: dict[str, str]) -> int:
    text = query.get("limit", str(DEFAULT_LIMIT))
    if not text.isdigit():
        raise refuse_image(400, "limit param must be an integer")
    return int(text)


def _url(query: dict[str, str]) -> str:
    return "/v2/images?" + urlencode(query) if query else "/v2/images"
