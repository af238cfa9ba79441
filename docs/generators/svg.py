"""State diagrams as SVG: states at given places, inputs as labels on the arrows between.

The pictures are files of their own, so that the pages show them without a network and without
a program that lays graphs out.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import hypot

from attrs import field, frozen

Place = tuple[float, float]
Edges = Mapping[tuple[str, str], tuple[str, ...]]

CELL = (250, 120)
MARGIN = 80
BOX_HEIGHT = 40
CHAR = 7.4
LINE = 15

_INK = 'fill="none" stroke="#4b6a88" stroke-width="1.4"'


@frozen
class Layout:
    """How a picture is laid out, by hand.

    Attributes:
        places: of the states, in cells, x then y.
        begin: states to which an arrow leads from outside.
        bends: how far an arrow leaves the straight line, to its left.
        frame: a group's name, and the states that are drawn inside it; the group's arrows
            leave from its right side.
    """

    places: Mapping[str, Place]
    begin: tuple[str, ...]
    bends: Mapping[tuple[str, str], float] = field(factory=dict)
    frame: tuple[str, tuple[str, ...]] = ("", ())


def draw(title: str, layout: Layout, edges: Edges) -> str:
    """One picture; every state of ``edges`` must have a place."""
    centre = {
        name: (MARGIN + 60 + x * CELL[0], MARGIN + y * CELL[1])
        for name, (x, y) in layout.places.items()
    }
    width = int(max(x for x, _ in centre.values()) + MARGIN + 80)
    height = int(max(y for _, y in centre.values()) + MARGIN)
    frame, right = _frame(layout, centre)
    arrows = []
    for (a, b), inputs in edges.items():
        bend = layout.bends.get((a, b), 34 if (b, a) in edges else 0)
        if a == b:
            arrows.append(_loop(centre[a], _box_width(a), inputs))
        elif a == layout.frame[0]:
            begin = (right, centre[b][1] + 10)
            arrows.append(_arrow((begin, (0, 0)), (centre[b], _size(b)), inputs, 0))
        else:
            arrows.append(_arrow((centre[a], _size(a)), (centre[b], _size(b)), inputs, bend))
    sources = {source for source, _ in edges} | set(layout.frame[1])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
            *frame,
            *(_start(centre[name], _box_width(name)) for name in layout.begin),
            *(path for path, _ in arrows),
            *(_box(name, at, end=name not in sources) for name, at in centre.items()),
            *(label for _, label in arrows),
            "</svg>\n",
        ]
    )


def _frame(layout: Layout, centre: Mapping[str, Place]) -> tuple[list[str], float]:
    name, members = layout.frame
    if not members:
        return [], 0
    left = min(centre[m][0] - _box_width(m) / 2 for m in members) - 62
    right = max(centre[m][0] + _box_width(m) / 2 for m in members) + 40
    top = min(centre[m][1] for m in members) - BOX_HEIGHT - 14
    bottom = max(centre[m][1] for m in members) + BOX_HEIGHT + 4
    box = (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" '
        f'height="{bottom - top:.0f}" rx="14" fill="#f7fafc" stroke="#9db3c8" '
        'stroke-dasharray="6 4"/>'
    )
    return [box, _text(name, (left + 30, bottom - 10), 12, "#6b8299")], right


def _text(text: str, at: Place, size: int, colour: str) -> str:
    return (
        f'<text x="{at[0]:.0f}" y="{at[1]:.0f}" font-family="sans-serif" font-size="{size}" '
        f'fill="{colour}" text-anchor="middle">{escape(text)}</text>'
    )


def _box_width(name: str) -> float:
    return max(90, len(name) * CHAR + 26)


def _size(name: str) -> tuple[float, float]:
    return _box_width(name) / 2 + 3, BOX_HEIGHT / 2 + 3


def _box(name: str, at: Place, *, end: bool) -> str:
    x, y = at
    wide = _box_width(name)
    colours = ("#f1f1f1", "#8a8a8a") if end else ("#eaf1f8", "#4b6a88")
    return (
        f'<rect x="{x - wide / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{wide:.0f}" '
        f'height="{BOX_HEIGHT}" rx="9" fill="{colours[0]}" stroke="{colours[1]}" '
        'stroke-width="1.4"/>' + _text(name, (x, y + 5), 14, "#1d2733")
    )


def _start(at: Place, wide: float) -> str:
    left = at[0] - wide / 2
    return (
        f'<circle cx="{left - 34:.0f}" cy="{at[1]:.0f}" r="6" fill="#1d2733"/>'
        f'<path d="M{left - 28:.0f} {at[1]:.0f}H{left - 2:.0f}" {_INK}/>'
        + _tip((left - 1, at[1]), (left - 28, at[1]))
    )


def _border(centre: Place, size: Place, towards: Place) -> Place:
    """Where a line from a box's centre leaves the box."""
    dx, dy = towards[0] - centre[0], towards[1] - centre[1]
    scale = min(
        size[0] / abs(dx) if dx else float("inf"), size[1] / abs(dy) if dy else float("inf")
    )
    return centre[0] + dx * scale, centre[1] + dy * scale


def _arrow(
    source: tuple[Place, Place], dest: tuple[Place, Place], inputs: tuple[str, ...], bend: float
) -> tuple[str, str]:
    """A curve between two boxes (centre, half size), and its label."""
    a, b = source[0], dest[0]
    length = hypot(b[0] - a[0], b[1] - a[1])
    nx, ny = (b[1] - a[1]) / length, -(b[0] - a[0]) / length
    middle = ((a[0] + b[0]) / 2 + nx * bend * 2, (a[1] + b[1]) / 2 + ny * bend * 2)
    start, end = _border(a, source[1], middle), _border(b, dest[1], middle)
    path = (
        f'<path d="M{start[0]:.0f} {start[1]:.0f}Q{middle[0]:.0f} {middle[1]:.0f} '
        f'{end[0]:.0f} {end[1]:.0f}" {_INK}/>' + _tip(end, middle)
    )
    top = (start[0] + 2 * middle[0] + end[0]) / 4, (start[1] + 2 * middle[1] + end[1]) / 4
    return path, _label(inputs, top)


def _tip(end: Place, before: Place) -> str:
    """The point of an arrow that comes from ``before``."""
    length = hypot(end[0] - before[0], end[1] - before[1])
    ux, uy = (end[0] - before[0]) / length, (end[1] - before[1]) / length
    corners = [(end[0] - 11 * ux + side * uy, end[1] - 11 * uy - side * ux) for side in (4.5, -4.5)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (end, *corners))
    return f'<polygon points="{points}" fill="#4b6a88"/>'


def _loop(at: Place, wide: float, inputs: tuple[str, ...]) -> tuple[str, str]:
    """An arrow from a box to itself, below it."""
    x, y = at[0] + wide / 4, at[1] + BOX_HEIGHT / 2 + 2
    path = (
        f'<path d="M{x - 16:.0f} {y:.0f}C{x - 22:.0f} {y + 30:.0f} {x + 22:.0f} {y + 30:.0f} '
        f'{x + 16:.0f} {y:.0f}" {_INK}/>' + _tip((x + 16, y), (x + 22, y + 30))
    )
    return path, _label(inputs, (x, y + 32 + LINE * (len(inputs) - 1) / 2))


def _label(inputs: tuple[str, ...], at: Place) -> str:
    first = at[1] + 4 - LINE * (len(inputs) - 1) / 2
    rows = []
    for n, text in enumerate(inputs):
        wide = len(text) * 6.4 + 6
        y = first + LINE * n
        rows.append(
            f'<rect x="{at[0] - wide / 2:.0f}" y="{y - 11:.0f}" width="{wide:.0f}" height="15" '
            'fill="#ffffff" fill-opacity="0.9"/>' + _text(text, (at[0], y), 12, "#34506b")
        )
    return "".join(rows)
