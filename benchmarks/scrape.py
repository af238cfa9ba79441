"""What metrics cost: a scrape over a large fleet, and counting as events are folded.

1,000 pools of 100 VMs. A scrape reads the fold in the runner's loop, some pools at a time with
other tasks in between: its whole, and its longest stretch, are held against a tick that looks at
every pool. Making the text happens in a thread of its own. Counting is held against folding the
same events: churn of 1 %, listing by listing, each followed by its tick.

    python benchmarks/scrape.py [--pools 1000] [--size 100] [--light] [--json]
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from pathlib import Path
from statistics import median

import measure
from big_fleet import BigFleet
from prometheus_client import CollectorRegistry, generate_latest
from tick import churn

from poolsm import Step
from poolsm.events import Event
from poolsm.views import fleet_view
from poolsm_runners.budget import Budget
from poolsm_runners.clock import WallClock
from poolsm_runners.dry import DryLog
from poolsm_runners.engine import Engine
from poolsm_runners.health.vitals import Vitals
from poolsm_runners.metrics.collector import GaugeCollector
from poolsm_runners.metrics.instruments import Instruments
from poolsm_runners.metrics.survey import Subjects, Survey, Surveyor, survey

ROUNDS = 7
EVENTS = 2000


def stretches(subjects: Subjects) -> tuple[list[float], Survey]:
    """CPU seconds of a survey between one turn of other tasks and the next."""
    found, work = [], survey(subjects)
    while True:
        began = time.process_time()
        try:
            work.send(None)
        except StopIteration as end:
            found.append(time.process_time() - began)
            return found, end.value
        found.append(time.process_time() - began)


class Remembered(Surveyor):
    """A surveyor whose survey is made: what is timed then is the text."""

    def __init__(self, vitals: Vitals, made: Survey) -> None:
        super().__init__(asyncio.new_event_loop(), vitals)
        self._last = made
        self._loop.close()


def counted(instruments: Instruments) -> tuple[float, float, int]:
    """CPU seconds of folding, of counting what was folded, and how many events."""
    big = BigFleet(10, 10)
    engine = Engine(DryLog(None, b"key", big.now_ms), big.fleet)
    steps: list[tuple[Event, Step]] = []
    fold, folded = big.fleet.step, [0.0]

    def timed(event: Event) -> Step:
        began = time.process_time()
        step = fold(event)
        folded[0] += time.process_time() - began
        steps.append((event, step))
        return step

    keys = sorted(big.fleet.state.vms)
    big.fleet.step = timed  # type: ignore[method-assign]
    for _ in range(EVENTS // 2):
        churn(big, [keys[big.chance.randrange(len(keys))]])
        big.tick()
    watch = instruments.watcher(engine)
    began = time.process_time()
    for event, step in steps:
        instruments.timed(event, step, 0.0001, 0.0001)
        watch(event, step)
    return folded[0], time.process_time() - began, len(steps)


def measured(pools: int, size: int, log: Path) -> dict[str, float]:
    """Milliseconds, as medians; counting as a share of folding."""
    big = BigFleet(pools, size)
    while big.fleet.state.dirty:
        big.tick()
    gc.freeze()
    clock = WallClock()
    engine = Engine(DryLog(None, b"key", big.now_ms), big.fleet)
    subjects, vitals = Subjects(engine, Budget(clock)), Vitals(clock)
    registry = CollectorRegistry()
    instruments = Instruments(registry)
    times: dict[str, list[float]] = {}
    size_bytes = 0
    for n in range(ROUNDS):
        times.setdefault("what status reads", []).append(
            measure.cpu_s(lambda: fleet_view(big.fleet.state))
        )
        slices, made = stretches(subjects)
        times.setdefault("a scrape, in the loop", []).append(sum(slices))
        times.setdefault("its longest stretch", []).append(max(slices))
        if n == 0:
            registry.register(GaugeCollector(Remembered(vitals, made), vitals, instruments, log))
        began = time.process_time()
        size_bytes = len(generate_latest(registry))
        times.setdefault("its text, in a thread", []).append(time.process_time() - began)
    folded, counting, events = counted(instruments)
    return {
        **{name: median(values) * 1000 for name, values in times.items()},
        "folding an event": folded / events * 1000,
        "counting an event": counting / events * 1000,
        "size of the text, MB": size_bytes / 1e6,
    }


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--pools", type=int, help="1,000; 100 if light")
    parser.add_argument("--size", type=int, default=100, help="VMs in each")
    options = parser.parse_args()
    pools = options.pools or (100 if options.light else 1000)
    with tempfile.TemporaryDirectory() as folder:
        found = measured(pools, options.size, Path(folder) / "log.db")
    counting = found["counting an event"] / found["folding an event"]
    measure.finish(
        options,
        f"Metrics over {pools:,} pools and {pools * options.size:,} VMs",
        {"CPU time, median": (("what", "ms"), list(found.items()))},
        [
            measure.Figure(
                "a scrape in the loop / what status reads",
                found["a scrape, in the loop"] / found["what status reads"],
                1.0,
                2.0,
                less_is_better=True,
            ),
            measure.Figure(
                "its longest stretch, ms",
                found["its longest stretch"],
                10.0,
                50.0,
                less_is_better=True,
                unit="ms",
            ),
            measure.Figure("counting / folding", counting, 0.6, 1.5, less_is_better=True),
        ],
    )


if __name__ == "__main__":
    main()
