"""The machine's clock is set while a runner runs (C12), and the runner is stopped in its tracks.

Deadlines move along with a step; what is destructive waits for two fresh listings; days follow
the new time at once.
"""

import signal
import time
from datetime import UTC, datetime, timedelta

import pytest

from poolsm.events import ClockStepped
from poolsm_runners.control_requests import Ask, Assign
from poolsm_runners.log import sqlite
from tests.chaos.served_churn import COMMON
from tests.integration.running import pool_file, until
from tests.machine.failing import Machine
from tests.machine.test_disk import town

pytestmark = pytest.mark.timeout(180)
DAY_MS = 86_400_000


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path, tmp_path / "nothing")


def steps(runner):
    log = sqlite.open_read_only(runner.log)
    return [entry.event.by_ms for entry in log.read() if isinstance(entry.event, ClockStepped)]


@pytest.mark.parametrize("by_ms", [3_600_000, -DAY_MS])
def test_a_step_moves_every_deadline_along(tmp_path, machine, by_ms):
    with town(tmp_path, tmp_path / "runner") as t:
        with machine.env():
            t.runner.start()
        t.runner.wait_listed()
        t.apply(2)
        until("two", lambda: t.full(2), 30)
        until("ready", lambda: t.runner.pool("p").ready == 2, 30)
        for number in range(3):  # two are granted, one waits: for a third VM
            t.runner.ask(Assign("p", f"r{number}", "ann", 120.0))
        machine.fail("clock", by_ms)
        until("the step is seen", lambda: steps(t.runner), 30)
        until("it is granted", lambda: granted(t.runner, 3), 40)
        (step,) = steps(t.runner)
        assert abs(step - by_ms) < 1000
        now_ms = t.runner.standing().fleet.now_ms
        assert abs(now_ms - (time.time() * 1000 + by_ms)) < 10_000, "it tells the new time"
        t.assert_whole(3)


def granted(runner, count):
    states = [runner.ask(Ask(f"r{number}")).assignment.state for number in range(count)]
    assert "expired" not in states
    return states == ["granted"] * count


def test_a_clock_that_is_nudged_is_followed_without_a_word(tmp_path, machine):
    with town(tmp_path, tmp_path / "runner") as t:
        with machine.env():
            t.runner.start()
        t.runner.wait_listed()
        t.apply(2)
        for nudge in range(0, 25_000, 2_500):
            machine.fail("clock", nudge * (-1) ** (nudge // 2500))
            time.sleep(0.3)
        machine.mend("clock")
        until("two", lambda: t.full(2), 30)
        assert not steps(t.runner)
        t.assert_whole(2)


def test_a_step_into_an_off_day_stops_after_two_listings_and_back_again(tmp_path, machine):
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%A").lower()
    pool = {"id": "p", "user": "u", "min_vm": 2, "max_vm": 4, "flavor": "m1.tiny", **COMMON}
    with town(tmp_path, tmp_path / "runner") as t:
        with machine.env():
            t.runner.start()
        t.runner.wait_listed()
        days = {"off_days": [tomorrow], "time_zone": "UTC"}
        t.runner.apply(pool_file(t.file, {**pool, **days}))
        until("two", lambda: t.full(2), 30)
        machine.fail("clock", DAY_MS)
        until("both sleep", lambda: statuses(t) == {"SHUTOFF"}, 40)
        machine.mend("clock")
        until("both wake", lambda: statuses(t) == {"ACTIVE"}, 40)
        assert len(steps(t.runner)) == 2
        assert len(t.cloud.creates()) == 2
        t.assert_whole(2)


def statuses(t):
    return {server.status for server in t.cloud.live("p")}


def test_a_runner_that_was_frozen_believes_nothing_old(tmp_path):
    """SIGSTOP for longer than a listing is believed: it looks before it acts."""
    with town(tmp_path, tmp_path / "runner") as t:
        t.runner.start()
        t.runner.wait_listed()
        t.apply(3)
        until("three", lambda: t.full(3), 30)
        until("seen", lambda: t.runner.pool("p").ready == 3, 30)
        process = t.runner._process
        process.send_signal(signal.SIGSTOP)
        time.sleep(35)  # a listing is believed for 30 s
        process.send_signal(signal.SIGCONT)
        t.apply(4)
        until("four", lambda: t.full(4), 30)
        t.assert_whole(4)
