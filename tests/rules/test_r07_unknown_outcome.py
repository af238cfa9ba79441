"""R7: a create is posted at most once, ever."""

from __future__ import annotations

import pytest

from poolsm.commands import CreateServer

LOST = {"transport_error": "timeout"}


@pytest.mark.parametrize("answer", [
    LOST, {"http_status": 502}, {"http_status": 500}, {"http_status": 401},
    {"http_status": 202}, {"http_status": 404, "message": "<html>"},
])  # fmt: skip
def test_a_lost_answer_waits_the_settling_time_then_plans_anew(world, answer):
    w = world(settle_time_s=120)
    w.answer(CreateServer, answer)
    w.declare("tp", min_vm=1)
    w.run(110)
    assert len(w.issued(CreateServer)) == 1
    assert w.counts("tp") == {"pending": 1}
    w.run(60)
    first, second = w.issued(CreateServer)
    assert first.command_id != second.command_id
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_what_was_made_after_all_is_adopted_at_once(world):
    w = world()
    w.answer(CreateServer, LOST, done=True)
    w.declare("tp", min_vm=1)
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert w.cloud.made.total() == 1


def test_a_listing_that_began_before_the_end_of_the_wait_decides_nothing(world):
    w = world(settle_time_s=120)
    w.answer(CreateServer, LOST)
    w.declare("tp", min_vm=1)
    w.run(100)
    w.listings = "paused"
    w.run(25)
    assert w.counts("tp") == {"pending": 1}
    w.listings = "complete"
    w.run(10)
    assert len(w.issued(CreateServer)) >= 1


def test_one_that_turns_up_later_is_counted_and_too_many_are_surplus(world):
    w = world(settle_time_s=60)
    w.answer(CreateServer, LOST, done=True)
    w.declare("tp", min_vm=1, max_vm=1)
    w.run_until(lambda: bool(w.servers("tp")))
    late = w.servers("tp")[0]
    late.hidden = True
    w.run(150)
    assert w.cloud.made.total() == 2
    late.hidden = False
    w.run(120)
    assert len(w.servers("tp")) == 1
    assert w.counts("tp") == {"ACTIVE": 1}


def test_a_crash_after_the_dispatch_posts_nothing_again(world):
    w = world(settle_time_s=60)
    w.declare("tp", min_vm=2)
    w.run_until(lambda: len(w.times(CreateServer)) == 2)
    w.run(0.2)  # dispatched, not answered
    w.crash()
    w.run(300)
    assert max(w.cloud.made.values()) == 1
    assert w.counts("tp") == {"ACTIVE": 2}


def test_what_was_never_dispatched_ends_without_a_wait(world):
    w = world(settle_time_s=600)
    w.holding = True
    w.declare("tp", min_vm=2)
    w.run(20)
    w.holding = False
    w.crash()
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 2}


def test_a_crash_between_dispatch_and_answer_waits_the_settling_time_too(world):
    w = world(settle_time_s=120)
    w.answer(CreateServer, LOST, done=True, later_s=60)
    w.declare("tp", min_vm=1, max_vm=1)
    w.run_until(lambda: bool(w.issued(CreateServer)))
    w.run(1)
    w.crash()
    w.run(110)
    assert len(w.issued(CreateServer)) == 1
    assert w.pool("tp").owned == 1
    w.run(120)
    assert w.counts("tp") == {"ACTIVE": 1}
