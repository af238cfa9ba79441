"""The table of metrics, from their catalogue."""

from __future__ import annotations

from generators.machines import HEAD
from poolsm_runners.metrics.catalogue import GROUPS, Metric

INTRO = (
    "# Metrics reference\n\nWhat `/metrics` shows, beside `process_*` and `python_*` of the "
    "Prometheus client library. A histogram `x` has the series `x_bucket`, `x_sum` and "
    "`x_count`. A metric without a unit is a number of things."
)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.unit} | {metric.meaning} |"


def pages() -> dict[str, str]:
    """One table for each group."""
    parts = [INTRO]
    for group, metrics in GROUPS.items():
        head = "| name | type | labels | unit | meaning |\n|---|---|---|---|---|"
        parts.append("\n".join([f"## {group}\n", head, *map(_row, metrics)]))
    return {"metrics.md": HEAD + "\n\n".join(parts) + "\n"}
