"""References of events, commands, pool specs, settings and records, from the attrs classes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from attrs import NOTHING, Attribute, fields

from generators.machines import HEAD
from poolsm import codec, commands, events, records, shapes, spec

_ROLE = re.compile(r":(?:class|meth|func|mod|attr):`([^`]+)`")


def markdown(text: str) -> str:
    """A docstring's reStructuredText as Markdown."""
    text = _ROLE.sub(lambda found: f"`{found[1].lstrip('~')}`", text)
    return text.replace("``", "`")


def parts_of(kind: type) -> tuple[str, dict[str, str]]:
    """A class's docstring: its text, and what it says about each field."""
    text = inspect.cleandoc(kind.__doc__ or "")
    before, _, after = text.partition("\nAttributes:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(after).splitlines():
        head = re.match(r"([a-z_][a-z_, ]*): (.*)", line)
        if head:
            names = head[1].split(", ")
            found.update(dict.fromkeys(names, head[2]))
        else:
            for name in names:
                found[name] += f" {line.strip()}"
    return before.strip(), found


def _default(attribute: Attribute[object]) -> str:
    if attribute.default is NOTHING:
        return ""
    return f"`{attribute.default!r}`"


def reference(kind: type, *, without: Iterable[str] = (), note: str = "") -> str:
    """One class: what it is, and its fields."""
    text, about = parts_of(kind)
    lines = [f"## {kind.__name__}", markdown(text)]
    if note:
        lines.append(note)
    rows = [
        f"| `{attribute.name}` | `{_type(attribute)}` | {_default(attribute)} "
        f"| {markdown(about.get(attribute.name, '')).replace('|', chr(92) + '|')} |"
        for attribute in fields(kind)
        if attribute.name not in without
    ]
    if rows:
        lines.append("\n".join(["| field | type | default | |", "|---|---|---|---|", *rows]))
    return "\n\n".join(lines)


def _type(attribute: Attribute[object]) -> str:
    found = attribute.type
    text = found if isinstance(found, str) else getattr(found, "__name__", str(found))
    return text.replace("|", "\\|")


def _events() -> str:
    intro = (
        "# Events\n\nObserved facts, the only inputs of the library (`poolsm/events.py`). Each "
        "has `at_ms`, the runner's clock in whole milliseconds since 1970 UTC: the only time "
        "there is. `started_ms` is when the request was sent that the event answers. In the log "
        "each is JSON of a *kind* (the class's name) and a *version*; older versions are read "
        "through upcasters (`poolsm/codec.py`)."
    )
    sections = [
        reference(kind, without=("at_ms",), note=f"Version {codec.EVENT_VERSIONS[kind.__name__]}.")
        for kind in events.EVENT_TYPES
    ]
    return "\n\n".join([intro, *sections])


def _commands() -> str:
    intro = (
        "# Commands\n\nWhat the library wants done (`poolsm/commands.py`). Each has a "
        "`command_id`, a UUID that follows from the log, the run and the position of the event "
        "that caused it, and a `reason`: the rule's name and its arithmetic."
    )
    base = ("command_id", "reason")
    sections = [
        reference(kind, without=base, note=f"Version {codec.COMMAND_VERSIONS[kind.__name__]}.")
        for kind in commands.COMMAND_TYPES
    ]
    parts = (commands.Reason, commands.Expectation, commands.UserDataRef)
    return "\n\n".join([intro, *sections, "# Parts of commands", *map(reference, parts)])


def _specs() -> str:
    intro = (
        "# Declarations, records and views\n\nWhat events carry (`poolsm/spec.py`, "
        "`poolsm/records.py`), and what is told about a fleet (`poolsm/shapes.py`; these are "
        "also the JSON of `poolsm status --json`)."
    )
    kinds = (
        spec.PoolSpec,
        spec.RunnerSettings,
        spec.SecretRef,
        records.ServerRecord,
        records.ImageRecord,
        records.FlavorRecord,
        records.NetworkRecord,
        shapes.FleetView,
        shapes.PoolView,
        shapes.VmView,
        shapes.AssignmentView,
        shapes.ConditionView,
        shapes.OpView,
        shapes.StrayView,
    )
    return "\n\n".join([intro, *map(reference, kinds)])


def pages() -> dict[str, str]:
    """The three pages."""
    return {
        "events.md": f"{HEAD}{_events()}\n",
        "commands.md": f"{HEAD}{_commands()}\n",
        "records.md": f"{HEAD}{_specs()}\n",
    }
