"""A story: what happened to one thing, line by line, as an operator reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from attrs import evolve, frozen

# kinds of lines
EVENT: Final = "event"  # somebody asked, or something happened around it
COMMAND: Final = "command"  # what was decided, by which rule and why
ANSWER: Final = "answer"  # what the cloud said to it
TRANSITION: Final = "transition"  # what the thing became
ANOMALY: Final = "anomaly"  # what did not fit
CONDITION: Final = "condition"  # how its pool stood

_PERIOD_MOST = 12  # lines of a block that is recognised when it repeats
_NUMBER = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")


@frozen
class Line:
    """One fact.

    Attributes:
        at_ms: wall clock.
        rule, reason: of a command: the rule that decided it, and its arithmetic.
        command_id: of a command or an answer.
        more: how many more times the same followed; ``until_ms`` is the last of them.
        block: how many lines, this one the last, these times repeated together.
    """

    position: int
    at_ms: int
    kind: str
    text: str
    rule: str = ""
    reason: str = ""
    command_id: str = ""
    more: int = 0
    until_ms: int = 0
    block: int = 1

    @property
    def sameness(self) -> tuple[str, str, str]:
        """Equal for lines that say the same with other numbers and ids."""
        return (self.kind, _NUMBER.sub("#", self.text), self.rule)

    def describe(self, offset_s: int = 0) -> tuple[str, ...]:
        """The fact with its time, and under it why."""
        lines = [f"{format_time(self.at_ms, offset_s)}  [{self.position}] {self.text}"]
        if self.rule:
            lines.append(f"    why: {self.reason} (rule {self.rule})")
        if self.more:
            what = "the same" if self.block == 1 else f"these {self.block} lines"
            until = format_time(self.until_ms, offset_s)
            lines.append(f"    ... {what} {self.more} more times, until {until}")
        return tuple(lines)


@frozen
class Story:
    """What is known about one target.

    Attributes:
        found: whether the log knows the target; if not, ``near`` names what is like it.
        lines: in the order of the log, repetitions collapsed.
        warnings: what limits the story (a log that this release decides differently).
    """

    target: str
    title: str
    found: bool
    lines: tuple[Line, ...] = ()
    near: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def describe(self, offset_s: int = 0) -> tuple[str, ...]:
        """Lines for an operator; times are UTC, or ``offset_s`` seconds east of it."""
        lines = [self.title]
        lines += [f"note: {warning}" for warning in self.warnings]
        for line in self.lines:
            lines += line.describe(offset_s)
        if self.near:
            lines.append("did you mean:")
            lines += [f"  {name}" for name in self.near]
        return tuple(lines)


def format_time(at_ms: int, offset_s: int = 0) -> str:
    """``2026-01-05 08:00:03 UTC``, or with the offset in place of UTC."""
    zone = timezone(timedelta(seconds=offset_s)) if offset_s else UTC
    when = datetime.fromtimestamp(at_ms // 1000, zone)
    return f"{when:%Y-%m-%d %H:%M:%S} {when:%z}" if offset_s else f"{when:%Y-%m-%d %H:%M:%S} UTC"


def format_span(span_ms: int) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``, ``5 d 2 h``."""
    seconds = max(span_ms, 0) // 1000
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    if hours < 48:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def collapse(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Tell what repeats itself once: a line that comes again, or a block of lines."""
    told: list[Line] = []
    keys = [line.sameness for line in lines]
    at = 0
    while at < len(lines):
        period, times = _repetition(keys, at)
        block = list(lines[at : at + period])
        if times > 1:
            last = lines[at + period * times - 1]
            block[-1] = evolve(block[-1], more=times - 1, until_ms=last.at_ms, block=period)
        told += block
        at += period * times
    return tuple(told)


def _repetition(keys: Sequence[tuple[str, str, str]], at: int) -> tuple[int, int]:
    """The block that begins here and repeats: its length, and how many times it stands."""
    for period in range(1, _PERIOD_MOST + 1):
        block = keys[at : at + period]
        times = 1
        while keys[at + period * times : at + period * (times + 1)] == block:
            times += 1
        if times >= 3:
            return period, times
    return 1, 1
