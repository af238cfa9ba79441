"""What a log may leave out, and where it may be cut (C9, C10)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poolsm import Fleet, Step
from poolsm.commands import CreateServer, DeleteServer
from poolsm.events import QuietPeriod, RunnerStopped, Ticked
from poolsm.snapshot import encode_state
from tests.unit.world import TIMEOUT, World, refusal

ACTIONS = (
    lambda w: w.run(1),
    lambda w: w.run(40),
    lambda w: w.run(900),
    lambda w: w.declare("tp", min_vm=3, max_vm=3),
    lambda w: w.declare("tp", min_vm=1, max_vm=2, off_days=("monday",)),
    lambda w: w.declare("warm", user_id="admin", min_vm=1, warm=True),
    lambda w: w.ask(f"r{w.fleet.position}", "tp"),
    lambda w: w.release(next(iter(w.fleet.state.assignments), "r")),
    lambda w: w.answer(CreateServer, TIMEOUT, done=True),
    lambda w: w.answer(CreateServer, refusal(500), times=3),
    lambda w: w.answer(DeleteServer, refusal(503, retry_after_s=9)),
    lambda w: setattr(w, "listings", "failing"),
    lambda w: setattr(w, "listings", "complete"),
    lambda w: [setattr(s, "unlisted", True) for s in w.cloud.servers.values()],
    lambda w: [setattr(s, "unlisted", False) for s in w.cloud.servers.values()],
    lambda w: w.step_clock(-300),
    lambda w: w.step_clock(90_000),
    lambda w: w.start_runner(),
)
STORY = (3, 1, 5, 2, 6, 1, 8, 4, 1, 10, 7, 1, 9, 3, 1, 13, 0, 14, 1, 15, 1, 11, 1, 12, 16, 1, 17, 2)


def told(actions) -> tuple[World, dict[int, bytes]]:
    """A world after these actions, and its live state after every stored event."""
    states: dict[int, bytes] = {}

    def keep(w: World, step: Step) -> None:
        if step.entries:
            states[step.entries[-1].position] = encode_state(w.fleet.state)

    w = World(after_step=keep)
    w.declare("tp", min_vm=2, max_vm=4)
    for action in actions:
        ACTIONS[action](w)
    w.feed(RunnerStopped(at_ms=w.now_ms, why="the end"))
    return w, states


def check_summaries(w: World, states: dict[int, bytes]) -> None:
    """The log, in which summaries stand for quiet events, folds to every state there was."""
    fleet = Fleet()
    for entry in w.entries:
        assert fleet.step(entry.event).entries == (entry,)
        if not isinstance(entry.event, QuietPeriod):
            assert encode_state(fleet.state) == states[entry.position], entry


@given(st.lists(st.integers(0, len(ACTIONS) - 1), max_size=15))
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_a_summary_is_worth_what_it_stands_for(actions):
    check_summaries(*told(actions))


def test_a_summary_is_worth_what_it_stands_for_in_a_long_story():
    w, states = told(STORY)
    check_summaries(w, states)
    kinds = Counter(type(entry.event) for entry in w.entries)
    assert kinds[QuietPeriod] > 20


def test_positions_have_no_gap_and_quiet_events_have_none():
    w, _ = told(STORY)
    assert [entry.position for entry in w.entries] == list(range(1, len(w.entries) + 1))
    for entry, after in zip(w.entries, w.entries[1:], strict=False):
        assert not (isinstance(entry.event, QuietPeriod) and isinstance(after.event, QuietPeriod))


def test_a_summary_says_what_it_stands_for():
    w = World()
    w.run(60)
    position = w.fleet.position
    w.run(100)
    assert w.fleet.position == position
    w.declare("tp")
    summary = w.entries[-2].event
    assert isinstance(summary, QuietPeriod)
    assert summary.ticks >= 50
    assert summary.listings >= 20
    assert w.now_ms - 2_000 <= summary.at_ms <= w.now_ms
    assert summary.at_ms - summary.from_ms >= 100_000
    assert w.now_ms - 6_000 <= summary.listing_started_ms <= w.now_ms


def test_snapshot_and_tail_equal_the_whole_at_every_cut():
    w, _states = told(STORY[:14])
    end = encode_state(w.fleet.state)
    whole = Fleet()
    for cut, entry in enumerate(w.entries):
        whole.step(entry.event)
        data = whole.snapshot()
        assert data is not None
        rest = Fleet.restore(data)
        assert rest.state == whole.state
        for later in w.entries[cut + 1 :]:
            assert rest.step(later.event).entries == (later,), f"cut after {entry.position}"
        assert encode_state(rest.state) == end, f"cut after {entry.position}"


def test_no_snapshot_while_quiet_events_wait_for_their_summary():
    w = World()
    w.run(60)
    assert w.fleet.snapshot() is None
    w.declare("tp")
    assert w.fleet.snapshot() is not None


@pytest.mark.parametrize("hours", [1, 24])
def test_a_quiet_fleet_s_log_does_not_grow_with_time(hours):
    w = World()
    w.declare("tp", min_vm=3)
    w.run(1200)
    position = w.fleet.position
    w.run(hours * 3600)
    assert w.fleet.position == position
    step = w.fleet.step(Ticked(at_ms=w.now_ms))
    assert step.entries == step.commands == ()
