"""Transition tables as pictures, Mermaid text and Markdown tables.

All of it is read from the machines that ``transitions`` makes of the literal tables, so a row
that is changed in the code is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from generators.svg import Layout, draw
from poolsm import assignment, pool, vm
from poolsm.tables import Row, declare

HEAD = "<!-- Made by docs/generate.py; do not edit. -->\n\n"

OBSERVED = "observed"
LIVE = "live"
SEE = "see <its status>"
SEE_GONE = "see DELETED, SOFT_DELETED"


@frozen
class Drawing:
    """One machine and how it is drawn.

    Attributes:
        families: states and inputs that the picture shows as one.
    """

    name: str
    title: str
    module: str
    states: tuple[str, ...]
    rows: Sequence[Row]
    layout: Layout
    families: Mapping[str, str] = field(factory=dict)


DRAWINGS = (
    Drawing(
        "vm",
        "A VM",
        "poolsm/vm.py",
        vm.STATES,
        vm.TRANSITIONS,
        Layout(
            {
                vm.PENDING: (0, 0.2),
                OBSERVED: (0, 1.7),
                vm.MISSING: (1.25, 0.95),
                vm.DELETING: (2.9, 1.5),
                vm.DELETED: (2.9, 0.2),
            },
            (vm.PENDING, OBSERVED),
            {(vm.PENDING, vm.DELETED): 22},
            (LIVE, (vm.PENDING, OBSERVED, vm.MISSING)),
        ),
        {
            **dict.fromkeys(vm.OBSERVED, OBSERVED),
            **{f"see_{status}": SEE for status in vm.OBSERVED},
            **{f"see_{status}": SEE_GONE for status in vm.GONE_STATUSES},
        },
    ),
    Drawing(
        "pool",
        "A pool",
        "poolsm/pool.py",
        (pool.POOL_ACTIVE, pool.DRAINING, pool.REMOVED),
        pool.POOL_TRANSITIONS,
        Layout(
            {pool.POOL_ACTIVE: (0, 0), pool.DRAINING: (1, 0), pool.REMOVED: (2, 0)},
            (pool.POOL_ACTIVE,),
        ),
    ),
    Drawing(
        "breaker",
        "A pool's breaker",
        "poolsm/pool.py",
        (pool.CLOSED, pool.OPEN, pool.HALF_OPEN),
        pool.BREAKER_TRANSITIONS,
        Layout(
            {pool.CLOSED: (0, 0.5), pool.OPEN: (1.2, 0.5), pool.HALF_OPEN: (2.4, 0.5)},
            (pool.CLOSED,),
            {(pool.HALF_OPEN, pool.CLOSED): -80},
        ),
    ),
    Drawing(
        "assignment",
        "A request for a VM",
        "poolsm/assignment.py",
        (
            assignment.WAITING,
            assignment.CLAIMING,
            assignment.GRANTED,
            assignment.REFUSED,
            assignment.EXPIRED,
            assignment.RELEASED,
            assignment.LOST,
        ),
        assignment.ASSIGNMENT_TRANSITIONS,
        Layout(
            {
                assignment.WAITING: (0, 0),
                assignment.CLAIMING: (1, 0),
                assignment.GRANTED: (2, 0),
                assignment.REFUSED: (-0.1, 1),
                assignment.EXPIRED: (0.6, 1),
                assignment.RELEASED: (1.4, 1),
                assignment.LOST: (2.1, 1),
            },
            (assignment.WAITING,),
        ),
    ),
)


def triples(drawing: Drawing) -> list[tuple[str, str, str]]:
    """``(from, input, to)`` of every row, as ``transitions`` holds them."""
    machine = declare(drawing.name, drawing.states, drawing.rows)
    return [
        (source, trigger, str(found.dest))
        for trigger, event in machine.events.items()
        for source in drawing.states
        for found in event.transitions.get(source, [])
    ]


def collapsed(drawing: Drawing) -> dict[tuple[str, str], tuple[str, ...]]:
    """Inputs by (from, to), with families as one; raises if a family is not alike inside."""
    families = drawing.families
    found: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for source, trigger, dest in triples(drawing):
        key = (families.get(source, source), families.get(trigger, trigger))
        found.setdefault((*key, families.get(dest, dest)), set()).add((source, trigger))
    edges: dict[tuple[str, str], tuple[str, ...]] = {}
    group, inside = drawing.layout.frame
    for (source, trigger, dest), members in found.items():
        sources = [s for s in drawing.states if families.get(s, s) == source]
        triggers = {row[0] for row in drawing.rows if families.get(row[0], row[0]) == trigger}
        if len(members) != len(sources) * len(triggers):
            raise SystemExit(f"{drawing.name}: {source} is no family for {trigger}")
        together = dest not in inside and all((s, trigger, dest) in found for s in inside)
        # one arrow for the whole group, where all of it has one
        edge = (group, dest) if source in inside and together else (source, dest)
        if trigger not in edges.get(edge, ()):
            edges[edge] = (*edges.get(edge, ()), trigger)
    return edges


def mermaid(drawing: Drawing) -> str:
    """The same as the picture, as text."""
    lines = ["stateDiagram-v2", "    direction LR"]
    group, inside = drawing.layout.frame
    arrows = {
        (source, dest): f"{source} --> {dest}: {', '.join(inputs)}"
        for (source, dest), inputs in collapsed(drawing).items()
    }
    within = [text for (a, b), text in arrows.items() if a in inside and b in inside]
    if inside:
        lines += [f"    state {group} {{", *(f"        {text}" for text in within), "    }"]
    lines += [f"    [*] --> {state}" for state in drawing.layout.begin]
    lines += [f"    {text}" for text in arrows.values() if text not in within]
    return "\n".join(lines)


def table(drawing: Drawing) -> str:
    """The literal table, one line a row."""
    lines = ["| input | from | to |", "|---|---|---|"]
    for trigger, sources, dest in drawing.rows:
        shown = _shown(sources)
        lines.append(f"| `{trigger}` | {shown} | `{dest}` |")
    return "\n".join(lines)


def _shown(sources: tuple[str, ...]) -> str:
    for name, states in (
        ("every live state, or `deleting`", (*vm.LIVE, vm.DELETING)),
        ("every live state", vm.LIVE),
        ("`pending` or observed", (vm.PENDING, *vm.OBSERVED)),
    ):
        if sources == states:
            return name
    return ", ".join(f"`{state}`" for state in sources)


def _section(drawing: Drawing) -> str:
    parts = [
        f"## {drawing.title}",
        f"![{drawing.title}: states and inputs]({drawing.name}.svg)",
    ]
    if drawing.families:
        alone = ", ".join(f"`{state}`" for state in vm.LEFT_ALONE)
        parts.append(
            f"`{OBSERVED}` stands for {len(vm.OBSERVED)} states, each named as Nova names its "
            f"status: `BUILD`, `ACTIVE`, `SHUTOFF`, `ERROR`, and those that are capacity but are "
            f"left alone ({alone}). A status that Nova may invent later is `UNKNOWN`. *Live* "
            f"states are `{vm.PENDING}`, the observed ones and `{vm.MISSING}`."
        )
    parts += [
        f"The table, from `{drawing.module}`:",
        table(drawing),
        "<details markdown>\n<summary>The picture as Mermaid text</summary>",
        f"```mermaid\n{mermaid(drawing)}\n```",
        "</details>",
    ]
    return "\n\n".join(parts)


def pages() -> dict[str, str]:
    """The page of states, and its pictures."""
    intro = (
        "# States\n\nFour small machines. Each is one literal table in the code; pictures and "
        "tables here are made from it. An input that has no row leaves the state as it is."
    )
    found = {
        f"{drawing.name}.svg": draw(drawing.title, drawing.layout, collapsed(drawing))
        for drawing in DRAWINGS
    }
    found["states.md"] = HEAD + "\n\n".join([intro, *map(_section, DRAWINGS)]) + "\n"
    return found
