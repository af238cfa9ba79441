"""The gauges: what is true at the moment of a scrape, read from the fold in the loop's thread.

A scrape comes from another thread, and a dictionary must not be read while it changes. So the
loop itself reads what is asked for, a few pools at a time with other tasks in between, and
hands over plain numbers. If the loop hangs, the numbers of the last scrape are given again:
their age is a metric, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import CancelledError

from attrs import define, field, frozen

from poolsm.assignment import (
    CLAIMING,
    EXPIRED,
    GRANTED,
    LOST,
    REFUSED,
    RELEASED,
    WAITING,
)
from poolsm.conditions import PROVISIONED, concerns, fleet_conditions, pool_conditions
from poolsm.members import Pool
from poolsm.pool import CLOSED, HALF_OPEN, OPEN
from poolsm.state import State
from poolsm.vm import ACTIVE, BUILD, DELETING, ERROR, MISSING, PENDING, SHUTOFF
from poolsm.words import is_off_day, is_ready
from poolsm_runners.budget import Budget, Priority
from poolsm_runners.engine import Engine
from poolsm_runners.health.vitals import Vitals

USUAL_STATES = (PENDING, BUILD, ACTIVE, SHUTOFF, ERROR, MISSING, DELETING)
BREAKER_STATES = (CLOSED, OPEN, HALF_OPEN)
REQUEST_STATES = (WAITING, CLAIMING, GRANTED, REFUSED, EXPIRED, RELEASED, LOST)
VMS_AT_ONCE = 2_000  # looked at before other tasks get their turn; about 2 ms
ANSWER_WITHIN_S = 3.0
HANGING_S = 2.0  # four heartbeats

Sample = tuple[tuple[str, ...], float]


@define(eq=False)
class Survey:
    """Samples by metric: values of its labels, and the number."""

    samples: dict[str, list[Sample]] = field(factory=dict)

    def put(self, name: str, value: float, *labels: str) -> None:
        """Add one sample."""
        self.samples.setdefault(name, []).append((labels, value))


@frozen
class Subjects:
    """What is surveyed: the present epoch's engine and budget."""

    engine: Engine
    budget: Budget


async def survey(subjects: Subjects) -> Survey:
    """Everything that is read from the fold, in the loop."""
    found = Survey()
    state = subjects.engine.state
    _fleet(found, state)
    _project(found, subjects)
    waiting = Counter(
        state.assignments[key].pool
        for key in state.waiting
        if state.assignments[key].state == WAITING
    )
    left = VMS_AT_ONCE
    for key in sorted(state.pools):
        pool = state.pools.get(key)
        if pool is None:  # removed while others had their turn
            continue
        _pool(found, state, pool, waiting[key])
        left -= pool.owned + 10
        if left < 0:
            left = VMS_AT_ONCE
            await asyncio.sleep(0)
    return found


def _pool(found: Survey, state: State, pool: Pool, waiting: int) -> None:
    name, spec = str(pool.key), pool.spec
    vms = [state.vms[key] for keys in pool.members.values() for key in keys]
    active = (state.vms[key] for key in pool.members.get(ACTIVE, ()))
    warm = "true" if spec.warm else "false"
    found.put("poolsm_pool_info", 1, name, pool.state, warm)
    found.put("poolsm_pool_wanted", spec.min_vm, name)
    if spec.max_vm:
        found.put("poolsm_pool_max", spec.max_vm, name)
    found.put("poolsm_pool_owned", pool.owned, name)
    found.put("poolsm_pool_capacity", pool.capacity, name)
    found.put("poolsm_pool_ready", sum(is_ready(vm, pool) for vm in active), name)
    found.put("poolsm_pool_attributed", sum(vm.attribution is not None for vm in vms), name)
    found.put("poolsm_pool_pending_jobs", pool.pending_jobs, name)
    found.put("poolsm_pool_requests_waiting", waiting, name)
    found.put("poolsm_pool_commands_in_flight", len(pool.flying), name)
    found.put("poolsm_pool_failures", pool.failures, name)
    found.put("poolsm_pool_off_day", bool(is_off_day(pool, state)), name)
    for breaker in BREAKER_STATES:
        found.put("poolsm_pool_breaker", pool.breaker == breaker, name, breaker)
    counts = {vm_state: pool.count(vm_state) for vm_state in (*USUAL_STATES, *pool.members)}
    for vm_state, count in counts.items():
        if count or vm_state in USUAL_STATES:
            found.put("poolsm_pool_servers", count, name, vm_state)
    conditions = pool_conditions(state, pool)
    wrong = concerns(conditions)
    for condition in conditions:
        if condition.type == PROVISIONED or condition in wrong:
            found.put("poolsm_pool_condition", 1, name, condition.type, condition.reason)


def _fleet(found: Survey, state: State) -> None:
    for condition in concerns(fleet_conditions(state)):
        found.put("poolsm_fleet_condition", 1, condition.type, condition.reason)
    found.put("poolsm_creations_in_flight", len(state.creations))
    found.put("poolsm_creations_limit", state.settings.creations_limit)
    found.put("poolsm_stray_servers", len(state.strays))
    found.put("poolsm_unreadable_servers", len(state.unreadable))
    found.put("poolsm_lost_servers", len(state.loss.lost) if state.loss else 0)
    for flavor_id, quota in state.quotas.items():
        flavor = state.flavors.get(flavor_id)
        left_s = 0 if quota.probe else _left_s(state, quota.until_ms)
        name = flavor.name if flavor else flavor_id
        found.put("poolsm_quota_pause_remaining_seconds", left_s, name)
    paused_s = _left_s(state, state.creation_pause_until_ms)
    found.put("poolsm_creation_pause_remaining_seconds", paused_s)
    requests = Counter(request.state for request in state.assignments.values())
    for request_state in REQUEST_STATES:
        found.put("poolsm_requests", requests[request_state], request_state)
    found.put("poolsm_listing_age_limit_seconds", state.settings.listing_age_limit_s)
    found.put("poolsm_log_position", state.position)


def _project(found: Survey, subjects: Subjects) -> None:
    """Commands and calls on their way."""
    state, usage = subjects.engine.state, subjects.budget.usage()
    for kind, count in Counter(op.kind for op in state.ops.values()).items():
        found.put("poolsm_commands_in_flight", count, kind)
    found.put("poolsm_commands_unknown", sum(op.unknown for op in state.ops.values()))
    for priority in Priority:
        name = priority.name.lower()
        found.put("poolsm_calls_in_flight", usage.in_flight.get(name, 0), name)
        found.put("poolsm_calls_waiting", usage.waiting.get(name, 0), name)
    found.put("poolsm_calls_pause_remaining_seconds", usage.reads_paused_s, "reads")
    found.put("poolsm_calls_pause_remaining_seconds", usage.writes_paused_s, "writes")


def _left_s(state: State, until_ms: int) -> float:
    return max(0, until_ms - state.now_ms) / 1000


class Surveyor:
    """Has the loop make a survey, from another thread, and remembers the last one.

    Args:
        loop: the run's.
        vitals: a loop that does not beat is not waited for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, vitals: Vitals) -> None:
        self.subjects: Subjects | None = None
        self._loop = loop
        self._vitals = vitals
        self._one_at_a_time = threading.Lock()
        self._last = Survey()

    def samples(self) -> dict[str, list[Sample]]:
        """Of now; of the last time if the loop does not answer within seconds."""
        with self._one_at_a_time:
            hangs = self._vitals.beat_age_s() > HANGING_S
            if self.subjects is not None and self._loop.is_running() and not hangs:
                task = asyncio.run_coroutine_threadsafe(survey(self.subjects), self._loop)
                try:
                    self._last = task.result(ANSWER_WITHIN_S)
                except (TimeoutError, CancelledError):  # it hangs, or the run ends just now
                    task.cancel()
            return self._last.samples
