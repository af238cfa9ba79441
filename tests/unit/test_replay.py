"""Replay: the same log gives the same commands, and whatever was edited in it is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from scripted import BEGIN_MS, KEY, Script, school_day

from poolsm import Entry
from poolsm.commands import ClaimServer, CreateServer, DeleteServer
from poolsm.events import ListingCompleted, LogOpened, PoolDeclared, QuietPeriod, Ticked
from poolsm.replay import replay

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def log():
    return tuple(school_day().entries)


def find(log, kind):
    """Index of the first entry with a command, or an event, of this kind."""
    for index, entry in enumerate(log):
        if isinstance(entry.event, kind) or any(isinstance(c, kind) for c in entry.commands):
            return index
    raise AssertionError(kind)


def edit_command(log, kind, **changes):
    index = find(log, kind)
    entry = log[index]
    commands = tuple(
        attrs.evolve(c, **changes) if isinstance(c, kind) else c for c in entry.commands
    )
    return [*log[:index], attrs.evolve(entry, commands=commands), *log[index + 1 :]], index + 1


def edit_event(log, index, **changes):
    entry = log[index]
    return [
        *log[:index],
        attrs.evolve(entry, event=attrs.evolve(entry.event, **changes)),
        *log[index + 1 :],
    ]


def renumbered(entries):
    return [attrs.evolve(entry, position=n) for n, entry in enumerate(entries, 1)]


def test_a_log_replays_to_itself(log):
    result = replay(iter(log))
    assert result.same
    assert result.events == len(log)
    assert result.commands == sum(len(entry.commands) for entry in log)
    assert sum(result.events_by_kind.values()) == result.events
    assert result.commands_by_kind == {"CreateServer": 3, "ClaimServer": 1, "DeleteServer": 1}
    assert result.from_ms == BEGIN_MS
    assert result.to_ms == log[-1].event.at_ms
    assert result.fleet.position == len(log)


def test_an_empty_log_is_the_same():
    assert replay([]).same


def test_an_edited_field_of_a_command_is_named(log):
    edited, position = edit_command(log, CreateServer, flavor_id="f-2")
    found = replay(edited).difference
    assert (found.kind, found.position) == ("command", position)
    assert [(f.name, f.recorded, f.recomputed) for f in found.fields] == [
        ("flavor_id", "'f-2'", "'f-1'")
    ]
    assert found.before[0].key == KEY
    assert found.before[0].owned == 0
    text = "\n".join(found.describe())
    assert f"position {position}, 2026-01-05 08:00:03 UTC, Ticked" in text
    assert "flavor_id: 'f-2' recorded, 'f-1' recomputed" in text
    assert "before: pool prof/tp-1: capacity 0 of min 2" in text


def test_a_nested_field_is_named_by_its_path(log):
    expect = attrs.evolve(log[find(log, DeleteServer)].commands[0].expect, claimant="bob")
    edited, position = edit_command(log, DeleteServer, expect=expect)
    found = replay(edited).difference
    assert found.position == position
    assert [field.name for field in found.fields] == ["expect.claimant"]
    assert found.before[0].by_state == {"ACTIVE": 2}


def test_a_reworded_reason_is_told_apart_from_another_deed(log):
    reason = attrs.evolve(log[find(log, ClaimServer)].commands[0].reason, text="because")
    edited, position = edit_command(log, ClaimServer, reason=reason)
    result = replay(edited)
    assert result.difference.in_words_only
    assert result.difference.position == position
    assert [field.name for field in result.difference.fields] == ["reason.text"]
    passed = replay(edited, stop_at_reasons=False)
    assert passed.same
    assert passed.rewordings == 1


def test_another_deed_weighs_more_than_a_reworded_reason_of_the_same_event(log):
    index = find(log, DeleteServer)
    delete, create = log[index].commands
    reworded = attrs.evolve(delete, reason=attrs.evolve(delete.reason, text="because"))
    commands = (reworded, attrs.evolve(create, image_id="i-2"))
    edited = [*log[:index], attrs.evolve(log[index], commands=commands), *log[index + 1 :]]
    for stop in (True, False):
        found = replay(edited, stop_at_reasons=stop).difference
        assert (found.kind, found.recorded.image_id) == ("command", "i-2")


def test_a_command_less_is_named_as_that_one(log):
    index = find(log, DeleteServer)
    delete, create = log[index].commands
    edited = [*log[:index], attrs.evolve(log[index], commands=(create,)), *log[index + 1 :]]
    found = replay(edited).difference
    assert (found.recorded, found.recomputed) == (None, delete)
    assert f"DeleteServer {delete.command_id} is decided now but not recorded" in found.text


def test_a_command_more_is_named_as_that_one(log):
    index = find(log, Ticked) + 3
    assert not log[index].commands
    extra = log[find(log, ClaimServer)].commands
    edited = [*log[:index], attrs.evolve(log[index], commands=extra), *log[index + 1 :]]
    found = replay(edited).difference
    assert (found.recorded, found.recomputed) == (extra[0], None)
    assert "recorded but not decided now" in found.text


def test_commands_in_another_order_are_a_difference(log):
    index = find(log, CreateServer)
    swapped = attrs.evolve(log[index], commands=log[index].commands[::-1])
    found = replay([*log[:index], swapped, *log[index + 1 :]]).difference
    assert (found.kind, found.position) == ("command", index + 1)


def test_an_edited_event_is_found_where_it_first_matters(log):
    index = find(log, PoolDeclared)
    edited = edit_event(log, index, spec=attrs.evolve(log[index].event.spec, min_vm=3))
    found = replay(edited).difference
    assert found.position == find(log, CreateServer) + 1
    assert found.before[0].min_vm == 3


def test_every_dropped_entry_is_named(log):
    for index in range(len(log) - 1):
        found = replay([*log[:index], *log[index + 1 :]]).difference
        assert (found.kind, found.position) == ("position", index + 1)
        assert f"{index + 2}, {index + 1} was expected" in found.text


def test_every_swap_is_named(log):
    for index in range(len(log) - 1):
        edited = [*log[:index], log[index + 1], log[index], *log[index + 2 :]]
        assert replay(edited).difference.position == index + 1


def test_a_dropped_entry_is_found_behind_new_numbers(log):
    """Command ids follow from positions, so what comes later no longer fits."""
    index = find(log, LogOpened) + 3
    found = replay(renumbered([*log[:index], *log[index + 1 :]])).difference
    assert found.kind == "command"
    assert found.position == find(log, CreateServer)


def test_a_dropped_quiet_period_leaves_a_listing_too_old_to_act_on(log):
    index = find(log, QuietPeriod)
    found = replay(renumbered([*log[:index], *log[index + 1 :]])).difference
    assert found.position == find(log, ClaimServer)
    assert found.recomputed is None


def test_an_event_that_nobody_would_have_stored_is_a_difference(log):
    index = find(log, QuietPeriod)
    at_ms = log[index - 1].event.at_ms + 2000
    edited = renumbered([*log[:index], Entry(0, Ticked(at_ms=at_ms)), *log[index:]])
    found = replay(edited).difference
    assert (found.kind, found.position) == ("quiet", index + 1)


def test_a_log_that_does_not_begin_is_a_difference(log):
    found = replay(renumbered(log[1:])).difference
    assert (found.kind, found.position) == ("beginning", 1)
    again = replay(renumbered([*log[:5], log[0], *log[5:]])).difference
    assert (again.kind, again.position) == ("beginning", 6)


def test_an_event_that_cannot_be_folded_is_named(log):
    index = find(log, ListingCompleted)
    edited = edit_event(log, index, started_ms=None)
    found = replay(edited).difference
    assert (found.kind, found.position) == ("failed", index + 1)
    assert "TypeError" in found.text


def test_progress_is_told(log):
    told = []
    replay(log, progress=told.append, every=10)
    assert told == list(range(10, len(log) + 1, 10))


SEEDED = """
import hashlib
from scripted import KEY, school_day
from poolsm import codec
from poolsm.explain import explain_pool, explain_vm
from poolsm.replay import replay
from poolsm.views import fleet_view, vm_views

script = school_day()
result = replay(script.entries)
assert result.same
parts = [codec.encode(c) for e in script.entries for c in e.commands]
parts += [codec.encode(fleet_view(result.fleet.state)), codec.encode(vm_views(result.fleet.state))]
parts += [codec.encode(explain_vm(script.entries, "s-1"))]
parts += [codec.encode(explain_vm(script.entries, "req"))]
parts += [codec.encode(explain_pool(script.entries, KEY))]
print(hashlib.sha256(b"|".join(parts)).hexdigest())
"""


def test_the_same_in_every_hash_seed():
    digests = set()
    for seed in ("0", "1", "20260105"):
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "unit")])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        done = subprocess.run(
            [sys.executable, "-c", SEEDED],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_a_difference_of_many_pools_names_the_one_it_is_about():
    script = Script().open()
    script.declare()
    other = attrs.evolve(script.fleet.state.pools[KEY].spec, serverpool_id="tp-2")
    script.put(PoolDeclared, spec=other, origin="file")
    script.round()
    edited, _ = edit_command(tuple(script.entries), CreateServer, key_name="mine")
    found = replay(edited).difference
    assert [standing.key for standing in found.before] == [found.recorded.pool]
