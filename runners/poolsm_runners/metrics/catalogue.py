"""Every metric of ours, in one literal table: what is exposed, tested, documented and drawn.

Names follow Prometheus' conventions: prefix ``poolsm_``, base units (seconds, bytes) last,
``_total`` for what only grows. A metric without a unit counts what its name says.

Label values are bounded by what is declared or written in the code: pools, flavors of the
project, states, kinds. Never a server, a claimant, a request or a message.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

# from a commit on a fast disk to one on a busy one
_DISK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
# a call to an API, up to the longest deadline
_CALL = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# building a server, handing one out
_WAIT = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
# what the loop does between two awaits
_LOOP = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)


@frozen
class Metric:
    """One metric: its name as it is exposed, kind, labels, meaning; buckets of a histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """``seconds``, ``bytes``, or empty for a number of things."""
        name = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), "")


POOLS: Final = (
    Metric(
        "poolsm_pool_info",
        GAUGE,
        ("pool", "state", "warm"),
        "1 for each declared pool; state is active or draining",
    ),
    Metric("poolsm_pool_wanted", GAUGE, ("pool",), "Capacity that the pool is to have: its min_vm"),
    Metric(
        "poolsm_pool_max", GAUGE, ("pool",), "Ceiling of owned servers; absent where there is none"
    ),
    Metric(
        "poolsm_pool_owned",
        GAUGE,
        ("pool",),
        "Servers not proven gone, and those decided but not seen yet",
    ),
    Metric(
        "poolsm_pool_capacity",
        GAUGE,
        ("pool",),
        "Owned without those in ERROR, missing or being deleted",
    ),
    Metric("poolsm_pool_ready", GAUGE, ("pool",), "Servers that a request would get at once"),
    Metric("poolsm_pool_attributed", GAUGE, ("pool",), "Servers that are somebody's"),
    Metric(
        "poolsm_pool_servers",
        GAUGE,
        ("pool", "state"),
        "Owned servers by state; the usual states always, the others while there is one",
    ),
    Metric(
        "poolsm_pool_pending_jobs",
        GAUGE,
        ("pool",),
        "Creations and transfers not yet ACTIVE or failed",
    ),
    Metric("poolsm_pool_requests_waiting", GAUGE, ("pool",), "Open requests without a server"),
    Metric("poolsm_pool_commands_in_flight", GAUGE, ("pool",), "Servers with a command on its way"),
    Metric("poolsm_pool_failures", GAUGE, ("pool",), "Failed creations since the last ACTIVE"),
    Metric(
        "poolsm_pool_breaker",
        GAUGE,
        ("pool", "state"),
        "1 for the state that the pool's breaker is in: closed, open or half_open",
    ),
    Metric("poolsm_pool_off_day", GAUGE, ("pool",), "1 on one of the pool's off-days"),
    Metric(
        "poolsm_pool_condition",
        GAUGE,
        ("pool", "type", "reason"),
        "1 for Provisioned (why the pool is at n of m), and for each condition that is amiss",
    ),
)

FLEET: Final = (
    Metric(
        "poolsm_fleet_condition",
        GAUGE,
        ("type", "reason"),
        "1 for each condition of the whole fleet that is amiss",
    ),
    Metric("poolsm_creations_in_flight", GAUGE, (), "Servers on their way to ACTIVE"),
    Metric("poolsm_creations_limit", GAUGE, (), "How many may be on their way at once"),
    Metric("poolsm_stray_servers", GAUGE, (), "Servers with tags of pools that are not declared"),
    Metric("poolsm_unreadable_servers", GAUGE, (), "Servers shown without metadata"),
    Metric(
        "poolsm_lost_servers",
        GAUGE,
        (),
        "Servers that left the listing at once, while that is not understood",
    ),
    Metric(
        "poolsm_quota_pause_remaining_seconds",
        GAUGE,
        ("flavor",),
        "Until the next probe of a flavor that met a quota; 0 while a probe is on its way",
    ),
    Metric(
        "poolsm_creation_pause_remaining_seconds",
        GAUGE,
        (),
        "Until creation goes on, after the cloud said when to come back; 0 if it did not",
    ),
    Metric("poolsm_requests", GAUGE, ("state",), "Requests for a server that are still known"),
    Metric(
        "poolsm_request_wait_seconds",
        HISTOGRAM,
        ("outcome",),
        "From a request to its end: granted, refused or expired",
        _WAIT,
    ),
    Metric(
        "poolsm_server_boot_duration_seconds",
        HISTOGRAM,
        (),
        "From the decision to create a server to when it was seen ACTIVE",
        _WAIT,
    ),
    Metric(
        "poolsm_server_transitions_total",
        COUNTER,
        ("source", "dest"),
        "Changes of state of servers",
    ),
    Metric("poolsm_anomalies_total", COUNTER, ("kind",), "Facts that did not fit what was known"),
)

COMMANDS: Final = (
    Metric("poolsm_commands_issued_total", COUNTER, ("command",), "Commands decided"),
    Metric(
        "poolsm_commands_answered_total",
        COUNTER,
        ("command", "outcome"),
        "Commands that ended, by what the answer means",
    ),
    Metric("poolsm_commands_in_flight", GAUGE, ("command",), "Commands decided and not ended"),
    Metric(
        "poolsm_commands_unknown", GAUGE, (), "Commands whose answer was lost and not settled yet"
    ),
    Metric(
        "poolsm_command_wait_seconds",
        HISTOGRAM,
        ("command",),
        "From the decision to the sending: the wait for a slot",
        _CALL,
    ),
    Metric(
        "poolsm_command_duration_seconds",
        HISTOGRAM,
        ("command",),
        "From the sending of a command to its answer",
        _CALL,
    ),
)

CLOUD: Final = (
    Metric(
        "poolsm_api_requests_total",
        COUNTER,
        ("service", "operation", "status"),
        "Requests to the cloud; status is HTTP's, or why there was no answer",
    ),
    Metric(
        "poolsm_api_request_duration_seconds",
        HISTOGRAM,
        ("service", "operation"),
        "Duration of requests to the cloud, answered or not",
        _CALL,
    ),
    Metric(
        "poolsm_calls_in_flight",
        GAUGE,
        ("priority",),
        "Calls that hold a slot: read, claim, write or create",
    ),
    Metric("poolsm_calls_waiting", GAUGE, ("priority",), "Calls that wait for a slot"),
    Metric(
        "poolsm_calls_pause_remaining_seconds",
        GAUGE,
        ("lane",),
        "Until calls go on, after the cloud said that it is busy: reads or writes",
    ),
    Metric(
        "poolsm_listings_total",
        COUNTER,
        ("what", "outcome"),
        "Listings of servers, images, flavors and networks: complete or failed",
    ),
    Metric(
        "poolsm_listing_duration_seconds",
        HISTOGRAM,
        ("what",),
        "Duration of complete listings",
        _CALL,
    ),
    Metric(
        "poolsm_listing_age_seconds",
        GAUGE,
        (),
        "Age of the last complete listing of servers; +Inf before the first",
    ),
    Metric(
        "poolsm_listing_age_limit_seconds",
        GAUGE,
        (),
        "Nothing is created, deleted or switched on a listing older than this",
    ),
    Metric("poolsm_listed_servers", GAUGE, (), "Servers of the project in the last listing"),
)

LOOP: Final = (
    Metric(
        "poolsm_health_check",
        GAUGE,
        ("check",),
        "1 while it holds: loop, tick, log, listed, fresh; see /readyz",
    ),
    Metric("poolsm_run_phase", GAUGE, ("phase",), "1 for what the run is about"),
    Metric("poolsm_loop_heartbeat_age_seconds", GAUGE, (), "Since the event loop was seen to run"),
    Metric("poolsm_loop_lag_seconds", HISTOGRAM, (), "How late the loop ran what was due", _LOOP),
    Metric("poolsm_loop_hangs_total", COUNTER, (), "Times that the loop or its ticks hung"),
    Metric("poolsm_tick_age_seconds", GAUGE, (), "Since the last tick"),
    Metric(
        "poolsm_tick_duration_seconds",
        HISTOGRAM,
        (),
        "A tick: the rules, and the log's answer",
        _LOOP,
    ),
    Metric("poolsm_events_total", COUNTER, ("event",), "Events, those that changed nothing too"),
    Metric("poolsm_event_fold_seconds_total", COUNTER, ("event",), "Time that folding events took"),
)

LOG: Final = (
    Metric("poolsm_log_position", GAUGE, (), "Position of the last event in the log"),
    Metric(
        "poolsm_log_size_bytes",
        GAUGE,
        ("file",),
        "Size of the log (db) and its write-ahead log (wal)",
    ),
    Metric("poolsm_log_filesystem_avail_bytes", GAUGE, (), "Free space where the log is"),
    Metric(
        "poolsm_log_append_duration_seconds",
        HISTOGRAM,
        (),
        "From an event to when it is durable with its commands",
        _DISK,
    ),
    Metric("poolsm_log_entries_total", COUNTER, (), "Events written by this run"),
    Metric("poolsm_log_failures_total", COUNTER, (), "Times that writing the log failed"),
    Metric(
        "poolsm_start_duration_seconds",
        GAUGE,
        (),
        "How long opening and reading the log took at the start",
    ),
    Metric("poolsm_start_position", GAUGE, (), "Position of its last event then"),
    Metric("poolsm_build_info", GAUGE, ("version", "state_version"), "1; which release this is"),
)

GROUPS: Final = {
    "Pools": POOLS,
    "The fleet": FLEET,
    "Commands": COMMANDS,
    "The cloud": CLOUD,
    "The loop": LOOP,
    "The log": LOG,
}
METRICS: Final = {metric.name: metric for group in GROUPS.values() for metric in group}
