"""Which image a pool's servers are made from (R13).

Image UUIDs belong to a project and change each time a snapshot is rebuilt, so what an
operator declared is a reference to be resolved again and again, in a fixed order, from
complete listings of both projects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from attrs import frozen

from poolsm.records import ImageRecord
from poolsm.spec import PoolSpec
from poolsm.state import State

VM_PROJECT = "vm"
INFRA_PROJECT = "infra"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NOT_FOUND = "image not found in student project"


@frozen
class Resolution:
    """The image found, or "" and why not; and every step that was tried."""

    image_id: str
    steps: tuple[str, ...]
    ambiguous: str = ""

    @property
    def text(self) -> str:
        """The steps in one line."""
        return "; ".join(self.steps)


def resolve_image(spec: PoolSpec, state: State) -> Resolution | None:
    """Resolve a pool's image in the order of R13; None until both projects were listed."""
    usable = state.images.get(VM_PROJECT)
    infra = state.images.get(INFRA_PROJECT)
    if infra is None and state.settings.infra_project_id in ("", state.settings.vm_project_id):
        infra = usable
    if usable is None or infra is None:
        return None
    steps: list[str] = []
    record = usable.get(spec.image_ref)
    if record is not None and record.status == "active":
        return Resolution(record.image_id, (f"{spec.image_ref} is an active image",))
    if record is not None:
        steps.append(f"{spec.image_ref} is {record.status}")
    elif _ID.fullmatch(spec.image_ref):
        steps.append(f"{spec.image_ref} is no image of the VM project")
    names: list[tuple[str, str]] = []
    known = infra.get(spec.image_ref) or record
    if known is not None and known.name:
        names.append((known.name, "its name in the infra project"))
    elif _ID.fullmatch(spec.image_ref):
        steps.append(f"{spec.image_ref} is no image of the infra project")
    if spec.config_id:
        names.append((spec.config_id, "the config_id"))
    if spec.image_ref:
        names.append((spec.image_ref, "the reference itself"))
    for name, what in names:
        found = _by_name(name, usable.values(), state)
        if found:
            newest = found[0]
            steps.append(f"{what} {name!r} is the name of {newest.image_id}")
            others = ", ".join(image.image_id for image in found[1:])
            ambiguous = f"{name!r} also names {others}; the newest was taken" if others else ""
            return Resolution(newest.image_id, tuple(steps), ambiguous)
        steps.append(f"{what} {name!r} names no active image of the VM project")
    return Resolution("", tuple(steps))


def _by_name(name: str, images: Iterable[ImageRecord], state: State) -> list[ImageRecord]:
    """Active images of one name, newest first, from the nearest circle of owners that has any.

    A community image is anybody's: taking it by name would let strangers choose what runs.
    """
    own = {state.settings.vm_project_id, state.settings.infra_project_id} - {""}
    found = [i for i in images if i.name == name and i.status == "active"]
    circles = (
        [i for i in found if i.owner in own],
        [i for i in found if i.visibility == "shared"],
        [i for i in found if i.visibility == "public"],
    )
    for circle in circles:
        if circle:
            return sorted(circle, key=lambda i: (i.created, i.image_id), reverse=True)
    return []
