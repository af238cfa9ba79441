"""Bytes of state a VM, by tracemalloc: what a fleet of 100,000 VMs keeps in memory.

Everything that the fold keeps counts: VMs, their last records, indices, pools. Every published
field (:class:`poolsm.views.VmView`) can be told from it; the script makes all views, too, and
checks that none has an empty field that it should know.

    python benchmarks/memory.py [--pools 1000] [--size 100] [--light] [--json]
"""

from __future__ import annotations

import gc
import tracemalloc

import measure
from attrs import asdict
from big_fleet import BigFleet

from poolsm.views import vm_views

BAR = 1000
# Known of every VM of this fleet; the other fields are of VMs in trouble or in work.
KNOWN = ("key", "name", "server_id", "pool", "state", "addresses", "power_cause", "image_id")
KNOWN += ("flavor_id", "created_ms", "since_ms", "age_ms")
SOMEBODYS = ("claimant", "attributed_by")


def measured(pools: int, size: int) -> tuple[float, list[tuple[str, float]]]:
    """Bytes a VM, and by the files that asked for them."""
    BigFleet(1, 1)  # what is made once
    gc.collect()
    tracemalloc.start()
    big = BigFleet(pools, size)
    while big.fleet.state.dirty or big.fleet.state.touched:
        assert not big.tick()
    fleet, big = big.fleet, None  # type: ignore[assignment]
    gc.collect()
    taken = tracemalloc.take_snapshot()
    tracemalloc.stop()
    count = len(fleet.state.vms)
    views = vm_views(fleet.state)
    assert len(views) == count == pools * size
    for view in views:
        fields = asdict(view, recurse=False)
        missing = [name for name in KNOWN + SOMEBODYS * view.attributed if not fields[name]]
        assert not missing, f"{view}: {missing}"
    by_file = [(stat.traceback[0].filename, stat.size) for stat in taken.statistics("filename")]
    rows = [("/".join(name.split("/")[-2:]), size / count) for name, size in by_file[:12]]
    return sum(size for _, size in by_file) / count, rows


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--pools", type=int, help="1,000; 100 if light")
    parser.add_argument("--size", type=int, default=100, help="VMs in each")
    options = parser.parse_args()
    pools = options.pools or (100 if options.light else 1000)
    size, rows = measured(pools, options.size)
    measure.finish(
        options,
        f"Memory of {pools * options.size:,} VMs in {pools:,} pools",
        {"asked for by": (("file", "bytes a VM"), rows)},
        [measure.Figure("state", size, BAR, 1.4 * BAR, less_is_better=True, unit="bytes a VM")],
    )


if __name__ == "__main__":
    main()
