"""The table of faults in the docs, from what the tests measured.

POOLSM_FAULTS_OUT=faults.jsonl python -m pytest tests/chaos/test_faults_served.py
python -m tests.chaos.fault_report faults.jsonl     # prints the Markdown
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.chaos.fault_table import SCENARIOS

Row = dict[str, Any]
HEAD = (
    "fault", "created, deleted, touched", "calls", "at rest after, simulated", "on the lab",
    "conditions", "log lines", "metric that grew most",
)  # fmt: skip
_METRIC = re.compile(r"^poolsm_(\w+)\{(.*)\} *$")


def read(files: Iterable[str]) -> dict[str, dict[str, Row]]:
    """By fault and cloud; of several runs the last counts."""
    found: dict[str, dict[str, Row]] = {}
    for file in files:
        for line in Path(file).read_text().splitlines():
            row = json.loads(line)
            found.setdefault(row["fault"], {})[row["cloud"]] = row
    return found


def markdown(rows: dict[str, dict[str, Row]]) -> str:
    """One line for each fault, in the order of the table of scenarios."""
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|---:|---:|---:|---|---|---|"]
    for scenario in SCENARIOS:
        clouds = rows.get(scenario.name)
        if not clouds:
            continue
        first = clouds.get("simulated") or clouds["lab"]
        shown = [
            scenario.name,
            f"{first['created']}, {first['deleted']}, {first['touched']}",
            str(first["calls"]),
            _seconds(clouds.get("simulated")),
            _seconds(clouds.get("lab")),
            ", ".join(f"`{name}`" for name in sorted(first["conditions"])) or "none",
            ", ".join(f"`{name}` x{n}" for name, n in _most(first["log_lines"], 3)) or "none",
            ", ".join(f"`{_short(name)}` +{n}" for name, n in _most(first["metrics"], 1)) or "none",
        ]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _seconds(row: Row | None) -> str:
    return f"{row['recovered_s']:.1f} s" if row else ""


def _most(counts: dict[str, int], limit: int) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:limit]


def _short(metric: str) -> str:
    found = _METRIC.match(metric)
    if found is None:
        return metric
    labels = re.findall(r'(\w+)="([^"]*)"', found[2])
    return f"{found[1]} {' '.join(value for name, value in labels if name != 'service')}"


if __name__ == "__main__":
    sys.stdout.write(markdown(read(sys.argv[1:])))
