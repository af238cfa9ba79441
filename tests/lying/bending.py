"""What becomes of a listing's body: pure functions from JSON to JSON."""

import hashlib
from collections.abc import Callable
from random import Random
from typing import Any

Json = dict[str, Any]
Page = dict[str, Callable[[Json, Random], Json]]
COLLECTIONS = ("servers", "images", "flavors", "networks")


def collection_of(body: object) -> str:
    """The key under which a body lists something; empty if it does not."""
    if not isinstance(body, dict):
        return ""
    return next((key for key in COLLECTIONS if isinstance(body.get(key), list)), "")


def without_link(body: Json, _: Random) -> Json:
    """As if this were the last page."""
    return {key: value for key, value in body.items() if not _is_link(key)}


def emptied(body: Json, chance: Random) -> Json:
    """Nothing there."""
    return without_link(body, chance) | {collection_of(body): []}


def shortened(body: Json, chance: Random) -> Json:
    """The first half, as if it were all."""
    key = collection_of(body)
    return without_link(body, chance) | {key: body[key][: len(body[key]) // 2]}


def halved(body: Json, _: Random) -> Json:
    """Without every second one, the same ones each time."""
    key = collection_of(body)
    return body | {key: [one for one in body[key] if not is_of_lost_half(one["id"])]}


def is_of_lost_half(ident: str) -> bool:
    """Whether ``half_list`` leaves it out."""
    return hashlib.sha256(ident.encode()).digest()[0] % 2 == 1


def shuffled(body: Json, chance: Random) -> Json:
    """In another order."""
    key = collection_of(body)
    rows = list(body[key])
    chance.shuffle(rows)
    return body | {key: rows}


PAGES: Page = {
    "no_next_link": without_link,
    "empty_list": emptied,
    "short_list": shortened,
    "half_list": halved,
    "shuffle": shuffled,
}


def bent_record(kind: str, record: Json) -> list[Json]:
    """What a listing shows instead of one record."""
    match kind:
        case "omit":
            return []
        case "duplicate":
            return [record, record]
        case "blank_metadata":
            return [record | {"metadata": {}}]
        case "partial_record":
            kept = ("id", "created", "tenant_id", "links")
            return [{key: record[key] for key in kept if key in record} | {"status": "UNKNOWN"}]
        case "garbage":
            return [{"id": None, "status": 17}]
        case _:
            return [record]


def _is_link(key: str) -> bool:
    return key.endswith("_links") or key == "next"
