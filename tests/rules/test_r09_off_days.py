"""R9: off-days are a level, in the pool's zone; power is switched once a change of day."""

from __future__ import annotations

from datetime import timedelta

import pytest

from poolsm import PoolSpec, check_spec
from poolsm.calendar import parse_off_days
from poolsm.commands import CreateServer, StartServer, StopServer
from tests.rules.ingredients import gaps_s
from tests.unit.world import MONDAY, refusal

FRIDAY_EVENING = MONDAY + timedelta(days=4, hours=15)  # 23:00


def test_a_weekend_is_slept_through_by_assigned_ones_too(world):
    w = world(at=FRIDAY_EVENING)
    w.declare("tp", min_vm=2, off_days=("saturday", "sunday"))
    w.run(120)
    w.ask("r", "tp")
    w.run(3600 * 2)
    assert w.counts("tp") == {"SHUTOFF": 2}
    w.run(3600 * 48)
    assert w.counts("tp") == {"ACTIVE": 2}
    assert (len(w.issued(StopServer)), len(w.issued(StartServer))) == (2, 2)
    assert len(w.issued(CreateServer)) == 2


def test_a_pool_still_fills_on_its_off_day(world):
    w = world(at=MONDAY + timedelta(days=5))
    w.declare("tp", min_vm=2, off_days=("saturday",))
    w.run(120)
    assert w.counts("tp") == {"SHUTOFF": 2}


def test_a_stop_in_flight_is_not_repeated_for_60_s(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    w.answer(StopServer, {"http_status": 202}, times=3)  # accepted, and nothing happens
    w.change("tp", off_days=("monday",))
    w.run(700)
    assert len(w.issued(StopServer)) == 4
    assert all(gap >= 60 for gap in gaps_s(w, StopServer))
    assert w.counts("tp") == {"SHUTOFF": 1}


def test_what_nova_is_at_is_left_alone(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    w.servers("tp")[0].task_state = "image_snapshot"
    w.run(10)
    w.change("tp", off_days=("monday",))
    w.run(60)
    assert not w.issued(StopServer)
    w.servers("tp")[0].task_state = None
    w.run(30)
    assert w.counts("tp") == {"SHUTOFF": 1}


def test_a_failed_start_is_tried_again(world):
    w = world(at=MONDAY + timedelta(days=5))
    w.declare("tp", min_vm=1, off_days=("saturday",))
    w.run(120)
    w.answer(StartServer, refusal(409, "Instance is not ready"))
    w.change("tp", off_days=())
    w.run(300)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_without_zone_rules_nothing_is_switched(world):
    w = world()
    w.declare("tp", min_vm=1, off_days=("monday",), time_zone="Europe/Paris")
    w.run(300)
    assert w.counts("tp") == {"ACTIVE": 1}
    w.load_zone("Europe/Paris")
    w.run(30)
    assert w.counts("tp") == {"SHUTOFF": 1}


@pytest.mark.parametrize("days", [("sonntag",), ("Sunday",), ("sun",), ("",)])
def test_an_unknown_word_is_refused(days):
    (problem,) = check_spec(PoolSpec("tp", "p", 1, 1, "i", "f", off_days=days))
    assert problem.key == "off_days"


def test_days_are_put_in_calendar_order():
    assert parse_off_days(" sunday ,monday,, friday") == ("monday", "friday", "sunday")


def test_respecting_its_user_a_pool_still_wakes_what_the_schedule_put_to_sleep(world):
    w = world()
    w.declare("tp", min_vm=2, off_days=("tuesday",), respect_user_stop=True)
    w.run(60)
    w.servers("tp")[0].status = "SHUTOFF"  # on Monday, by its user
    w.run(86_400)
    assert w.counts("tp") == {"SHUTOFF": 2}
    w.run(86_400)
    assert w.counts("tp") == {"SHUTOFF": 1, "ACTIVE": 1}
    assert w.servers("tp")[0].status == "SHUTOFF"
    assert (len(w.issued(StopServer)), len(w.issued(StartServer))) == (1, 1)


def test_after_a_clock_step_nothing_is_stopped_before_two_fresh_listings(world):
    w = world()
    w.declare("tp", min_vm=1, off_days=("tuesday",))
    w.run(60)
    w.listings = "paused"
    w.run(8)
    w.step_clock(86_400)
    for _ in range(2):
        w.run(4)
        assert not w.issued(StopServer)
        w.listing(w.now_ms, *w.cloud.listed())
    w.run(4)
    assert len(w.issued(StopServer)) == 1
