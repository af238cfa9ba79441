"""Zone rules for the core: UTC offsets of a zone over the coming years, as an event (C1, R9).

They are read from the ``tzdata`` distribution, not from the system's files, so that every
machine with the same distribution decides alike; its version is recorded.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import metadata, resources
from zoneinfo import ZoneInfo

from poolsm.calendar import ZoneRules
from poolsm.errors import PoolsmError
from poolsm.events import ZoneRulesLoaded

PAST_DAYS = 400
COMING_DAYS = 5 * 366
RENEW_BEFORE_DAYS = 366  # load again when less than this is left


class ZoneError(PoolsmError):
    """A time zone that does not exist."""


def load_zone(zone: str) -> ZoneInfo:
    """One zone of the tzdata distribution; raises ZoneError."""
    *folders, name = zone.split("/")
    try:
        package = ".".join(["tzdata", "zoneinfo", *folders])
        with resources.files(package).joinpath(name).open("rb") as file:
            return ZoneInfo.from_file(file, key=zone)
    except (ImportError, OSError, ValueError, TypeError):
        raise ZoneError(
            f"time zone {zone!r} does not exist; use an IANA name such as Europe/Paris"
        ) from None


def zone_rules(zone: str, now_ms: int) -> ZoneRulesLoaded:
    """The offsets of a zone from a year ago to five years from now; raises ZoneError."""
    info = load_zone(zone)
    start = datetime.fromtimestamp(now_ms // 1000, UTC) - timedelta(days=PAST_DAYS)
    offsets = [(_ms(start), _offset_s(info, start))]
    for day in range(PAST_DAYS + COMING_DAYS):
        low, high = start + timedelta(days=day), start + timedelta(days=day + 1)
        if _offset_s(info, low) != _offset_s(info, high):
            change = _change(info, low, high)
            offsets.append((_ms(change), _offset_s(info, change)))
    return ZoneRulesLoaded(
        at_ms=now_ms, zone=zone, tzdata_version=tzdata_version(), offsets=tuple(offsets)
    )


def needs_renewal(rules: ZoneRules, now_ms: int) -> bool:
    """Whether recorded rules are of another database, or end within a year."""
    if rules.tzdata_version != tzdata_version():
        return True
    coming = zone_rules(rules.zone, now_ms).offsets
    horizon_ms = now_ms + RENEW_BEFORE_DAYS * 86_400_000
    return any(row not in rules.offsets for row in coming[1:] if row[0] < horizon_ms)


def tzdata_version() -> str:
    """Version of the database that zones are read from."""
    return metadata.version("tzdata")


def _offset_s(info: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(info).utcoffset()
    return int(offset.total_seconds()) if offset else 0


def _change(info: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The first second of the new offset, by bisection."""
    old = _offset_s(info, low)
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if _offset_s(info, middle) == old:
            low = middle
        else:
            high = middle
    return high


def _ms(at: datetime) -> int:
    return int(at.timestamp()) * 1000
