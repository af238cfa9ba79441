"""Weekdays in a pool's own time zone, from recorded zone rules (R9).

The core reads no zone database: the runner loads a zone's offset transitions once and they
enter the log as an event, so that a replay on a machine with another tzdata decides the same.
"""

from __future__ import annotations

from bisect import bisect_right

from attrs import frozen

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_DAY_MS = 86_400_000
_EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday


@frozen
class ZoneRules:
    """A zone's UTC offsets over the coming years.

    Attributes:
        zone: IANA name.
        tzdata_version: of the database that they were read from.
        offsets: ``(from_ms, offset_s)`` in ascending order; each holds until the next.
    """

    zone: str
    tzdata_version: str
    offsets: tuple[tuple[int, int], ...]


def offset_ms(rules: ZoneRules, at_ms: int) -> int:
    """The zone's offset from UTC at an instant; before the first rule, the first offset."""
    index = bisect_right(rules.offsets, at_ms, key=lambda row: row[0]) - 1
    return rules.offsets[max(index, 0)][1] * 1000


def weekday(rules: ZoneRules, at_ms: int) -> str:
    """The English name of the local weekday at an instant."""
    days = (at_ms + offset_ms(rules, at_ms)) // _DAY_MS
    return WEEKDAYS[(days + _EPOCH_WEEKDAY) % 7]


def next_change_ms(rules: ZoneRules, at_ms: int) -> int:
    """The next instant at which the local weekday may differ: midnight or an offset change.

    A change of offset can move midnight (nights of 23 and 25 hours) or skip it; whoever
    evaluates again at the instant returned never misses a change of day.
    """
    offset = offset_ms(rules, at_ms)
    midnight = ((at_ms + offset) // _DAY_MS + 1) * _DAY_MS - offset
    index = bisect_right(rules.offsets, at_ms, key=lambda row: row[0])
    if index < len(rules.offsets):
        return min(midnight, rules.offsets[index][0])
    return midnight


def parse_off_days(csv: str) -> tuple[str, ...]:
    """A CSV of weekday names as :class:`poolsm.spec.PoolSpec` takes it, in calendar order.

    Unknown words are kept, at the end, for :func:`poolsm.spec.check_spec` to refuse.
    """
    words = [word.strip() for word in csv.split(",") if word.strip()]
    known = tuple(day for day in WEEKDAYS if day in words)
    return known + tuple(word for word in words if word not in WEEKDAYS)
