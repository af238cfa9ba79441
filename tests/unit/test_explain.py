"""Explain: the life of a VM, a pool, a command, in sentences that stand by themselves."""

from __future__ import annotations

import attrs
import pytest
from scripted import EPOCH, KEY, Script, school_day

from poolsm import PoolKey
from poolsm.events import PoolRemovalRequested, RunnerStarted, ZoneRulesLoaded
from poolsm.explain import explain_command, explain_pool, explain_vm
from poolsm.story import Line, collapse, format_span, format_time

DAY_MS = 86_400_000


def text_of(story, **more):
    return "\n".join(story.describe(**more))


def in_order(text, *parts):
    at = 0
    for part in parts:
        assert part in text[at:], part
        at = text.index(part, at) + len(part)


@pytest.fixture(scope="module")
def log():
    return tuple(school_day().entries)


def test_a_deleted_vm_tells_its_life(log):
    story = explain_vm(log, "s-1")
    assert story.found
    in_order(
        text_of(story),
        "server s-1, pool prof/tp-1; at the end deleted",
        "2026-01-05 08:00:03 UTC  [9] Pool prof/tp-1 then had 0 usable VMs",
        "Decided to create it.",
        "missing = 2 - 0 = 2, room = 3 - 0 = 3",
        "(rule R2 provision)",
        "The cloud accepted the creation (202); its server id is s-1.",
        "08:00:05 UTC  [14] It is ACTIVE, 2 s after its creation was decided.",
        "alice asked for a VM",
        "Decided to give it to alice (request req-1).",
        "The cloud shows the claim: it is alice's (request req-1).",
        "Request req-1 is granted",
        "req-1 was given back (by command line).",
        "Decided to delete it.",
        "released by command line (rule R16 release)",
        "The cloud accepted the deletion (204).",
        "It is deleted: a later complete listing lacks it.",
    )


def test_all_names_of_a_vm_lead_to_the_same_story(log):
    create = log[8].commands[0]
    delete = next(c for entry in log for c in entry.commands if hasattr(c, "expect"))
    lines = explain_vm(log, "s-1").lines
    for target in (create.command_id, create.name, "req-1", delete.command_id):
        assert explain_vm(log, target).lines == lines


def test_a_log_may_be_given_as_an_iterator(log):
    assert explain_vm(iter(log), "s-1") == explain_vm(log, "s-1")


def test_lines_carry_position_kind_rule_and_reason(log):
    story = explain_vm(log, "s-1")
    command = next(line for line in story.lines if line.kind == "command")
    assert (command.position, command.rule) == (9, "R2 provision")
    assert command.command_id == log[8].commands[0].command_id
    assert {line.kind for line in story.lines} == {
        "event",
        "command",
        "answer",
        "transition",
        "condition",
    }


def test_an_unknown_target_names_what_is_like_it(log):
    name = log[8].commands[0].name
    story = explain_vm(log, name[:12])
    assert not story.found
    assert name in story.near
    assert "did you mean" in text_of(story)
    assert explain_vm(log, "zzzz").near == ()
    assert explain_pool(log, PoolKey("tp-2", "prof")).near == ("prof/tp-1",)
    assert explain_command(log, name[5:15]).near == (log[8].commands[0].command_id,)


def test_a_pool_tells_where_it_stood_and_why(log):
    in_order(
        text_of(explain_pool(log, KEY)),
        "creations 3, deletions 1",
        "Pool prof/tp-1 was declared (by file pools.toml). It is to have at least 2 VMs, at most 3",
        "At 0 of 2 because Adopting",
        "Decided: 2 creations.",
        "At 2 of 2 because Satisfied",
        "Decided: 1 claim.",
        "Decided: 1 deletion.",
        "Decided: 1 creation.",
    )


def test_a_pool_at_a_quota_says_so():
    script = Script().open()
    script.declare()
    script.list()
    script.tick()
    for command in script.dispatch():
        script.answer(command, 403, "Quota exceeded for cores")
    script.list()
    script.tick()
    text = text_of(explain_pool(script.entries, KEY))
    assert "At 0 of 2 because QuotaExceeded: 403 Quota exceeded for cores." in text
    assert "VM tp-1-" in text
    story = explain_vm(script.entries, script.entries[8].commands[0].command_id)
    in_order(
        text_of(story),
        "refused the creation at a quota: 403 Quota exceeded for cores.",
        "The creation ended without a server.",
    )


def test_a_pool_that_changes_and_goes():
    script = Script().open()
    script.declare()
    script.round()
    script.declare(min_vm=1, max_vm=1)
    script.tick()
    script.run()
    script.list()
    script.put(PoolRemovalRequested, pool=KEY, include_assigned=False, origin="command line")
    script.tick()
    script.run()
    script.list()
    script.tick()
    in_order(
        text_of(explain_pool(script.entries, KEY)),
        "it was removed",
        "Changed: min_vm from 2 to 1, max_vm from 3 to 1.",
        "more VMs than its maximum: surplus = 2 - 1 = 1; newest of 2 idle",
        "The removal of pool prof/tp-1 was asked for (by command line).",
        "because Draining",
        "The pool is gone: its last VM was removed.",
    )
    in_order(
        text_of(explain_vm(script.entries, "s-2")),
        "was declared (by file pools.toml). It is to have at least 1 VMs, at most 1",
        "Pool prof/tp-1 then had 2 usable VMs; it wants at least 1, at most 1",
        "surplus = 2 - 1 = 1",
        "R8 scale_down",
    )


def test_a_command_tells_its_cause_and_its_effect(log):
    delete = next(c for entry in log for c in entry.commands if c.reason.rule == "R16 release")
    in_order(
        text_of(explain_command(log, delete.command_id)),
        f"deletion {delete.command_id}",
        "[26] req-1 was given back (by command line).",
        "[27] Pool prof/tp-1 then had 2 usable VMs",
        "Decided to delete it.",
        "It is deleted",
    )
    claim = next(c for entry in log for c in entry.commands if c.reason.rule.startswith("R16"))
    story = explain_command(log, claim.command_id)
    in_order(text_of(story), "alice asked for a VM", "Request req-1 is granted", "decided next")
    assert story.lines[-1].command_id == delete.command_id


def test_stops_and_starts_of_a_calendar_are_collapsed():
    script = Script().open()
    zone = {"zone": "UTC", "tzdata_version": "2025b", "offsets": ((0, 0),)}
    script.put(ZoneRulesLoaded, **zone)
    script.declare(min_vm=1, max_vm=1, off_days=("tuesday", "thursday", "saturday"))
    script.round()
    for _ in range(14):
        script.now_ms += DAY_MS
        for _ in range(2):
            script.list()
            script.tick()
            script.run()
            script.list()
    story = explain_vm(script.entries, "s-1")
    text = text_of(story)
    in_order(text, "Decided to stop it.", "off-day of tuesday,thursday,saturday", "more times")
    stops = sum(c.reason.rule == "R9 power" for e in script.entries for c in e.commands)
    told = sum(line.rule == "R9 power" for line in story.lines)
    assert 2 <= told < stops


def test_a_lost_answer_and_a_new_runner_are_told():
    script = Script().open()
    script.declare(min_vm=1)
    script.list()
    script.tick()
    (command,) = script.dispatch()
    settings = script.fleet.state.settings
    script.put(RunnerStarted, epoch=EPOCH[::-1], version="2", settings=settings)
    script.wait(70)
    in_order(
        text_of(explain_vm(script.entries, command.command_id)),
        "A runner started while the creation was on its way; its outcome is looked for",
        "No answer came, and no server appeared in the cloud. The creation ended without a server.",
    )


def test_a_server_of_ours_that_is_found_is_told():
    script = Script().open()
    script.declare(min_vm=0)
    script.list()
    script.tick()
    donor = Script().open()
    donor.declare()
    donor.round()
    script.servers["s-9"] = attrs.evolve(donor.servers["s-1"], server_id="s-9", name="stranger")
    script.list()
    in_order(
        text_of(explain_vm(script.entries, "stranger")),
        "Server s-9 was found in the cloud with the tags of pool prof/tp-1",
        "stranger, ACTIVE, free",
    )


def test_a_request_that_was_never_served():
    script = Script().open()
    script.declare(min_vm=0)
    script.list()
    script.ask("req-7", seconds=1)
    for _ in range(3):
        script.tick()
    story = explain_vm(script.entries, "req-7")
    assert "Request req-7 is expired: no VM became ready in time" in text_of(story)


def test_a_log_that_is_decided_differently_is_told_with_a_warning(log):
    edited = [*log[:8], attrs.evolve(log[8], commands=log[8].commands[:1]), *log[9:]]
    story = explain_vm(edited, "s-1")
    assert "from position 9 on this release decides differently" in story.warnings[0]


def test_times_are_given_in_another_zone(log):
    assert "2026-01-05 09:00:03 +0100  [9]" in text_of(explain_vm(log, "s-1"), offset_s=3600)
    assert format_time(0) == "1970-01-01 00:00:00 UTC"


def test_spans_read_easily():
    spans = (45_000, 720_000, 12_000_000, 180_000_000)
    assert [format_span(ms) for ms in spans] == ["45 s", "12 min", "3 h 20 min", "2 d 2 h"]


def test_the_same_line_again_is_counted():
    lines = [Line(n, n * 1000, "answer", f"no answer, attempt {n}") for n in range(1, 14)]
    (told,) = collapse(lines)
    assert (told.more, told.until_ms) == (12, 13_000)
    assert "... the same 12 more times, until 1970-01-01 00:00:13 UTC" in told.describe()[1]
