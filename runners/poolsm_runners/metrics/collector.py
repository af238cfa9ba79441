"""All gauges at a scrape: those of the fold through the loop, the rest as they are seen here."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import frozen
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from poolsm import STATE_VERSION, __version__
from poolsm_runners.health.checks import ready
from poolsm_runners.health.vitals import Phase, Vitals
from poolsm_runners.metrics.catalogue import GAUGE, METRICS
from poolsm_runners.metrics.instruments import Instruments
from poolsm_runners.metrics.survey import Survey, Surveyor


@frozen(eq=False)
class GaugeCollector(Collector):
    """Asks for every gauge anew at each scrape.

    Attributes:
        surveyor: reads the fold.
        vitals: read here, so that a loop that hangs is seen.
        instruments: for what the last listing was.
        log: the log's path, for its size.
    """

    surveyor: Surveyor
    vitals: Vitals
    instruments: Instruments
    log: Path

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Names alone; prometheus_client then refuses a name that is taken."""
        return [_family(name, ()) for name, metric in METRICS.items() if metric.kind == GAUGE]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every gauge of the catalogue, in its order."""
        samples = {**self.surveyor.samples(), **self._seen_here().samples}
        for name, metric in METRICS.items():
            if metric.kind == GAUGE:
                yield _family(name, samples.get(name, ()))

    def _seen_here(self) -> Survey:
        found, vitals = Survey(), self.vitals
        listing_age_s = vitals.listing_age_s()
        for check in ready(vitals).checks:
            found.put("poolsm_health_check", check.ok, check.name)
        for phase in Phase:
            found.put("poolsm_run_phase", vitals.phase is phase, phase)
        found.put("poolsm_loop_heartbeat_age_seconds", vitals.beat_age_s())
        found.put("poolsm_tick_age_seconds", vitals.tick_age_s())
        found.put(
            "poolsm_listing_age_seconds", math.inf if listing_age_s is None else listing_age_s
        )
        found.put("poolsm_listed_servers", self.instruments.listed_servers)
        found.put("poolsm_start_duration_seconds", vitals.start_s)
        found.put("poolsm_start_position", vitals.start_position)
        found.put("poolsm_build_info", 1, __version__, str(STATE_VERSION))
        self._measure_log(found)
        return found

    def _measure_log(self, found: Survey) -> None:
        # By stat alone: closing a descriptor of the log would drop this process's locks on it.
        for label, suffix in (("db", ""), ("wal", "-wal")):
            try:
                size = self.log.with_name(self.log.name + suffix).stat().st_size
            except OSError:  # not made yet, or folded into the log
                size = 0
            found.put("poolsm_log_size_bytes", size, label)
        try:
            space = os.statvfs(self.log.parent)
        except OSError:
            return
        found.put("poolsm_log_filesystem_avail_bytes", space.f_bavail * space.f_frsize)


def _family(name: str, samples: Iterable[tuple[tuple[str, ...], float]]) -> GaugeMetricFamily:
    metric = METRICS[name]
    family = GaugeMetricFamily(name, metric.meaning, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
