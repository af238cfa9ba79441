"""How the benchmarks measure: CPU time, both sides in turn in one run, ratios held to bars.

Absolute figures are a machine's, at that moment; a ratio to a peer that was measured in the same
run is worth comparing. So a script times all contenders round by round, takes the best round of
each (what disturbs a run only ever adds to it), and reports figures with their bars.

``--light`` is for CI: less work, and each ratio is held to a limit that only a gross regression
misses. A script ends with 1 if a limit, or without ``--light`` a bar, is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import asdict, frozen


@frozen
class Figure:
    """One result that is held to a bar.

    Attributes:
        name: what was measured, and against what.
        value: the ratio, or the number of ``unit``.
        bar: what the value must reach; what it must not exceed, if ``less_is_better``.
        gross: the same under ``--light``, where noise and little work are allowed for.
        unit: empty for a ratio.
    """

    name: str
    value: float
    bar: float
    gross: float
    less_is_better: bool = False
    unit: str = ""

    def holds(self, *, light: bool) -> bool:
        """Whether the value is on the right side of its bar."""
        limit = self.gross if light else self.bar
        return self.value <= limit if self.less_is_better else self.value >= limit


def parser(about: str | None) -> argparse.ArgumentParser:
    """Options that every script has; ``about`` is its docstring."""
    found = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    found.add_argument("--json", action="store_true", help="print JSON instead of tables")
    found.add_argument("--light", action="store_true", help="less work, only gross limits: for CI")
    return found


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of one call, all threads of this process together."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def best_of(rounds: int, contenders: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """CPU seconds of each contender's best round; all of them take their turn in each round."""
    found = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, work in contenders.items():
            found[name] = min(found[name], cpu_s(work))
    return found


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = f"{names[0].partition(':')[2].strip()}, {len(names)} cores" if names else cpu
    return {
        "cpu": cpu,
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
    }


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table, so that a figure can go into the docs as it is; numbers to the right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    right = [all(isinstance(row[n], int | float) for row in rows) for n in range(len(heads))]
    widths = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * (width - to_right) + ":" * to_right
        for width, to_right in zip(widths, right, strict=True)
    ]
    return "\n".join(line(cells) for cells in (heads, rule, *texts))


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def finish(
    options: argparse.Namespace,
    title: str,
    details: Mapping[str, tuple[Sequence[str], Sequence[Sequence[object]]]],
    figures: Sequence[Figure],
) -> None:
    """Print everything and end the script: 1 if a bar (a gross limit, if light) is missed.

    ``details`` are further tables by their title: heads and rows.
    """
    held = {figure.name: figure.holds(light=options.light) for figure in figures}
    if options.json:
        result = {
            "title": title,
            "machine": machine(),
            "light": options.light,
            "details": {
                name: [dict(zip(heads, row, strict=True)) for row in rows]
                for name, (heads, rows) in details.items()
            },
            "figures": [{**asdict(figure), "holds": held[figure.name]} for figure in figures],
        }
        print(json.dumps(result, indent=2))
    else:
        print(f"# {title}\n\n{', '.join(machine().values())}")
        for name, (heads, rows) in details.items():
            print(f"\n{name}:\n\n{table(heads, rows)}")
        if figures:
            print(f"\n{_verdict(figures, held, light=options.light)}")
        print()
    sys.exit(0 if all(held.values()) else 1)


def _verdict(figures: Sequence[Figure], held: Mapping[str, bool], *, light: bool) -> str:
    rows = []
    for figure in figures:
        limit = figure.gross if light else figure.bar
        sign = "<=" if figure.less_is_better else ">="
        value = f"{_text(figure.value)} {figure.unit}".strip()
        verdict = "holds" if held[figure.name] else "MISSED"
        rows.append((figure.name, value, f"{sign} {_text(limit)}", verdict))
    return table(("figure", "measured", "gross limit" if light else "bar", ""), rows)
