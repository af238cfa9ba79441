"""Faults that managers of pools had, one test each; its name begins with the case's.

`test_every_case_is_somewhere` holds the list together: each case is a test here, or says in
`elsewhere.py` where it is tested or why it does not apply.
"""

import sys
from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from poolsm import PoolKey, PoolSpec, check_spec
from poolsm.commands import (
    ClaimServer,
    CreateServer,
    DeleteServer,
    FetchImage,
    FindServer,
    StartServer,
    StopServer,
)
from poolsm.events import ConfigDeclared
from poolsm.spec import SecretRef
from tests.cases.elsewhere import ELSEWHERE
from tests.unit.world import IMAGE, MONDAY, refusal, zone_rules

KEY = PoolKey("tp", "prof")
CASES = [
    *(f"A{n}" for n in range(1, 18, 2)),
    *(f"B{n}" for n in range(1, 16, 2)),
    *(f"C{n}" for n in range(1, 18, 2)),
    *(f"D{n}" for n in range(1, 20, 2)),
    *(f"E{n}" for n in range(1, 12, 2)),
    *(f"F{n}" for n in range(1, 12, 2)),
    *(f"G{n}" for n in range(1, 14, 2)),
    *(f"H{n}" for n in range(1, 12, 2)),
    *(f"I{n}" for n in range(1, 8, 2)),
    *(f"J{n}" for n in range(1, 8, 2)),
    *(f"K{n}" for n in (1, 3)),
    *(f"L{n}" for n in (1, 3)),
    *(f"M{n}" for n in range(1, 8, 2)),
]


def test_every_case_is_somewhere():
    here = {n.split("_")[1].upper() for n in dir(sys.modules[__name__]) if n.startswith("test_")}
    assert {case for case in CASES if case not in here} == set(ELSEWHERE) - here
    assert not [case for case in ELSEWHERE if case not in CASES]


# --- A: runaway creation ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", " tp", "t/p", "t\x07p", "x" * 219])
def test_a1_a_name_that_the_cloud_rejects_is_refused_before_any_call(world, name):
    w = world()
    assert check_spec(PoolSpec(name, "prof", 3, 5, "ubuntu", "small"))
    w.declare(name, min_vm=3, max_vm=5)
    w.run(60)
    assert not w.commands


def test_a1_one_that_is_rejected_after_all_is_tried_once_and_no_more(world):
    w = world()
    w.answer(CreateServer, refusal(400, "Invalid input for field/attribute name."), times=None)
    w.declare("tp", min_vm=1)
    w.run(36_000)
    assert len(w.issued(CreateServer)) == 1
    assert w.reason("tp") == "SpecInvalid"


def test_a3_retagged_members_are_not_replaced_for_ever(world):
    """Their labels were changed, so the selector counted none, every loop."""
    w = world()
    w.declare("tp", min_vm=3)
    w.run(60)
    for server in w.servers("tp"):
        server.metadata["serverpool_id"] = "elsewhere"
    w.run(3600)
    assert len(w.issued(CreateServer)) == 3
    assert w.reason("tp") in ("Disputed", "Satisfied")
    assert "disputed" in w.anomaly_kinds()
    assert w.pool("tp").owned == 3


def test_a5_a_booting_vm_counts(world):
    w = world()
    w.cloud.boot_s = 300
    w.declare("tp", min_vm=2, max_vm=9)
    w.run(280)
    assert len(w.issued(CreateServer)) == 2


def test_a7_a_503_of_a_create_that_worked_makes_no_second_server(world):
    w = world()
    w.answer(CreateServer, {"http_status": 503, "message": "proxy"}, done=True)
    w.declare("tp", min_vm=1)
    w.run(600)
    assert w.cloud.made.total() == 1
    assert w.counts("tp") == {"ACTIVE": 1}


def test_a9_a_manager_that_restarts_in_a_loop_makes_no_orphans(world):
    w = world()
    w.declare("tp", min_vm=3)
    for _ in range(9):
        w.run(7)
        w.crash()
    w.run(600)
    assert w.counts("tp") == {"ACTIVE": 3}
    assert len(w.servers("tp")) == 3
    assert max(w.cloud.made.values()) == 1


def test_a11_a_deletion_lowers_the_surplus_and_never_the_minimum(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    w.change("tp", min_vm=1, max_vm=1)
    w.run(600)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert (len(w.issued(DeleteServer)), len(w.issued(CreateServer))) == (1, 2)


def test_a13_a_config_that_can_never_build_is_not_retried_until_it_changes(world):
    w = world()
    w.answer(CreateServer, refusal(400, "Flavor f-1 could not be found."))
    w.declare("tp", min_vm=1)
    w.run(36_000)
    assert len(w.issued(CreateServer)) == 1
    w.change("tp", flavor_ref="large")
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_a15_busy_ones_count_against_the_cap(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=3)
    w.run(60)
    for n in range(2):
        w.ask(f"r{n}", "tp")
    w.run(20)
    for n in range(2, 4):
        w.ask(f"r{n}", "tp")
    w.run(300)
    assert w.pool("tp").owned == 3
    assert w.cloud.made.total() == 3


def test_a17_a_server_that_is_not_listed_yet_is_not_made_again(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run_until(lambda: bool(w.servers("tp")))
    w.servers("tp")[0].unlisted = True
    w.run(6)
    w.servers("tp")[0].unlisted = False
    w.run(120)
    assert w.cloud.made.total() == 1


# --- B: observation --------------------------------------------------------------------------


def test_b1_a_server_twice_in_the_pages_is_no_listing(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    records = w.cloud.listed() * 2
    event = w.fleet.diff(records, started_ms=w.now_ms, at_ms=w.now_ms)
    assert type(event).__name__ == "ListingFailed"
    assert "twice" in event.message


def test_b7_a_proxy_that_answers_404_to_everything_loses_nobody(world):
    w = world()
    w.declare("tp", min_vm=6)
    w.run(60)
    w.cloud.deaf = True
    for server in w.servers("tp"):
        server.unlisted = True
    w.run(1800)
    assert len(w.issued(CreateServer)) == 6
    assert w.reason("tp") == "FleetLost"
    w.behave()
    w.run(120)
    assert w.counts("tp") == {"ACTIVE": 6}
    assert not w.issued(DeleteServer)


def test_b11_deleted_is_gone_for_the_count_and_for_the_wait(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    w.servers("tp")[0].status = "DELETED"
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert len(w.issued(CreateServer)) == 2


def test_b13_an_old_listing_is_not_acted_on(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    w.listings = "failing"
    w.run(60)
    begun = len(w.commands)
    w.change("tp", min_vm=3)
    w.run(600)
    assert len(w.commands) == begun
    w.listings = "complete"
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 3}


# --- C: leaks --------------------------------------------------------------------------------


def test_c9_after_a_restart_the_old_one_is_used_and_no_new_one_made(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    w.crash()
    w.run(600)
    assert w.cloud.made.total() == 1


def test_c13_what_was_created_and_never_reported_is_scaled_down_too(world):
    """Servers that came of lost answers are adopted, and surplus like all others."""
    w = world(settle_time_s=120)
    w.answer(CreateServer, {"transport_error": "timeout"}, times=4, done=True)
    w.declare("tp", min_vm=4)
    w.run(600)
    w.change("tp", min_vm=1, max_vm=1)
    w.run(600)
    assert len(w.servers("tp")) == 1


def test_c15_a_vm_that_cannot_be_deleted_is_never_forgotten(world):
    w = world()
    w.declare("tp", min_vm=0, max_vm=1)
    w.ask("r", "tp")
    w.run(120)
    w.cloud.deletes_work = False
    w.release("r")
    w.run(100_000)
    assert w.pool("tp").owned == 1
    assert w.pool("tp").conditions["DeleteStuck"].reason == "NoEffect"
    w.behave()
    w.run(600)
    assert not w.servers("tp")


@pytest.mark.parametrize(("flag", "kept"), [("false", 1), (None, 3)])
def test_c17_unrecorded_servers_of_ours_count_and_both_signs_are_right(world, flag, kept):
    """Proven free they are surplus, unproven they are somebody's."""
    w = world()
    for n in range(3):
        w.cloud.add(f"old-{n}", KEY, tags={"reattrib": flag})
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(600)
    assert not w.issued(CreateServer)
    assert len(w.servers("tp")) == kept


# --- D: wrong deletion -----------------------------------------------------------------------


def test_d1_an_unreachable_cloud_at_the_start_orphans_nobody(world):
    w = world()
    w.declare("tp", min_vm=3, max_vm=3)
    w.run(60)
    w.listings = "failing"
    w.crash()
    w.run(600)
    w.listings = "complete"
    w.run(120)
    assert w.counts("tp") == {"ACTIVE": 3}
    assert not w.issued(DeleteServer)


def test_d3_a_vm_under_construction_is_ours_from_its_first_byte(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    (create,) = w.issued(CreateServer)
    assert create.metadata["poolsm_command"] == create.command_id
    assert create.metadata["poolsm_log"] == w.fleet.state.log_id
    assert create.name.endswith(create.command_id)
    assert not w.issued(DeleteServer)


def test_d5_after_a_restart_what_is_assigned_is_untouched(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    w.ask("r", "tp")
    w.run(30)
    w.crash()
    w.change("tp", min_vm=0, max_vm=1)
    w.run(600)
    (kept,) = w.servers("tp")
    assert kept.metadata["poolsm_claimant"] == "ann"


@pytest.mark.parametrize("what", ["surplus", "marked"])
def test_d7_d9_a_deletion_looks_again_before_it_acts(world, what):
    w = world()
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    w.listings = "paused"
    w.change("tp", min_vm=1, max_vm=1)
    w.run_until(lambda: bool(w.issued(DeleteServer)))
    victim = w.cloud.find(w.issued(DeleteServer)[0].server_id)
    victim.metadata["reattrib"] = "true"  # somebody takes it between decision and call
    w.run(3)
    w.listings = "complete"
    w.run(600)
    assert w.cloud.find(victim.server_id) is victim
    assert "unmet" in w.anomaly_kinds()


test_d9 = test_d7_d9_a_deletion_looks_again_before_it_acts


def test_d15_adoption_comes_before_creation(world):
    w = world()
    for n in range(2):
        w.cloud.add(f"old-{n}", KEY)
    w.listings = "paused"
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    assert not w.commands
    w.listings = "complete"
    w.run(120)
    assert not w.commands
    assert w.counts("tp") == {"ACTIVE": 2}


def test_d17_what_is_being_deleted_does_not_come_alive_again(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    w.ask("r", "tp")
    w.run(20)
    server = w.servers("tp")[0]
    w.release("r")
    w.cloud.deletes_work = False
    w.run(30)
    w.listing(w.now_ms, server.record())  # still shown as ACTIVE
    assert [vm.state for vm in w.vms("tp") if vm.server_id == server.server_id] == ["deleting"]
    w.cloud.servers.pop(server.server_id)
    w.run(30)
    w.listing(w.now_ms, server.record(), *w.cloud.listed())  # a stale one shows it once more
    assert server.server_id not in {vm.server_id for vm in w.vms("tp")}
    assert "ghost" in w.anomaly_kinds()


def test_d19_deletions_by_others_are_recorded_as_such(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    w.servers("tp")[0].status = "DELETED"
    w.run(60)
    assert "deleted_by_others" in w.anomaly_kinds()
    assert not w.issued(DeleteServer)


# --- E: states -------------------------------------------------------------------------------


def test_e1_a_stopped_vm_is_parked_and_not_lost(world):
    w = world()
    w.declare("tp", min_vm=1, respect_user_stop=True)
    w.run(60)
    w.servers("tp")[0].status = "SHUTOFF"
    w.run(600)
    assert w.counts("tp") == {"SHUTOFF": 1}
    assert w.pool("tp").capacity == 1
    assert len(w.issued(CreateServer)) == 1


def test_e3_on_an_off_day_parked_vms_count_toward_the_minimum(world):
    w = world(at=MONDAY + timedelta(days=5))
    w.declare("tp", min_vm=2, max_vm=4, off_days=("saturday",))
    w.run(7200)
    assert w.counts("tp") == {"SHUTOFF": 2}
    assert len(w.issued(CreateServer)) == 2


def test_e5_the_state_is_that_of_the_last_listing(world):
    w = world()
    w.declare("tp", min_vm=1, respect_user_stop=True)
    w.run(60)
    w.servers("tp")[0].status = "SHUTOFF"
    w.run(10)
    w.servers("tp")[0].status = "ACTIVE"
    w.run(10)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_e7_a_failed_member_is_replaced_and_holds_no_place(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    w.servers("tp")[0].status = "ERROR"
    w.run(120)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert w.cloud.made.total() == 2


def test_e9_a_stop_that_failed_is_tried_again(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    w.answer(StopServer, refusal(409, "is not ready"))
    w.change("tp", off_days=("monday",))
    w.run(300)
    assert w.counts("tp") == {"SHUTOFF": 1}
    assert len(w.issued(StopServer)) == 2


@pytest.mark.parametrize(
    ("kind", "days", "text"),
    [(StopServer, ("monday",), "stop"), (StartServer, (), "start")],
)
def test_e11_a_409_with_the_wanted_end_state_is_success(world, kind, days, text):
    w = world()
    w.declare("tp", min_vm=1, off_days=("tuesday",))
    w.run(60)
    server = w.servers("tp")[0]
    if kind is StartServer:
        server.status = "SHUTOFF"
        w.run(3)
    end = {"stop": ("stopped", "SHUTOFF"), "start": ("active", "ACTIVE")}[text]
    message = f"Cannot '{text}' instance x while it is in vm_state {end[0]}"
    w.answer(kind, refusal(409, message))
    w.change("tp", off_days=days)
    w.run_until(lambda: bool(w.issued(kind)))
    server.status = end[1]
    w.run(300)
    assert len(w.issued(kind)) == 1


# --- F: wedges -------------------------------------------------------------------------------


def test_f1_a_deletion_whose_end_nobody_saw_pins_nothing(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    w.cloud.deletes_work = False
    w.servers("tp")[0].status = "ERROR"
    w.run(60)
    assert w.pool("tp").capacity == 1
    w.change("tp", max_vm=3)
    w.run(60)
    assert w.pool("tp").capacity == 2
    w.behave()
    w.run(600)
    assert w.counts("tp") == {"ACTIVE": 2}


def test_f3_no_mark_in_progress_survives_a_restart(world):
    w = world()
    w.holding = True
    w.declare("tp", min_vm=2)
    w.run(20)
    w.holding = False
    w.crash()
    w.run(120)
    assert w.counts("tp") == {"ACTIVE": 2}
    assert not w.fleet.state.ops


def test_f5_a_pool_at_its_quota_holds_up_no_other(world):
    w = world()
    w.declare("aaa", min_vm=9, flavor_ref="large")
    w.answer(CreateServer, refusal(403, "Quota exceeded for cores"), times=9)
    w.run(5)
    w.declare("tp", min_vm=3)
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 3}


def test_f7_a_deletion_that_is_accepted_and_forgotten_is_issued_again(world):
    w = world()
    w.declare("tp", max_vm=1)
    w.ask("r", "tp")
    w.run(120)
    w.cloud.deletes_work = False
    w.release("r")
    w.run(60)
    assert len(w.issued(DeleteServer)) == 1
    assert w.pool("tp").capacity == 0
    w.run(60)
    assert len(w.issued(DeleteServer)) == 2
    w.behave()
    w.run(600)
    assert not w.servers("tp")


# --- G: quota and noise ----------------------------------------------------------------------


def test_g1_past_the_quota_one_probe_is_made_for_each_step(world):
    w = world()
    w.cloud.quota = 2
    w.declare("tp", min_vm=9)
    w.run(60)
    begun = len(w.issued(CreateServer))
    w.run(7 * 3600)
    probes = len(w.issued(CreateServer)) - begun
    assert probes <= 7 * 3600 / 120 + 5  # the longest step is 120 s
    w.cloud.quota = None
    w.run(300)
    assert w.counts("tp") == {"ACTIVE": 9}


def test_g3_a_quota_is_no_failure_of_the_vm(world):
    w = world()
    w.cloud.quota = 0
    w.declare("tp", min_vm=1)
    w.run(3600)
    assert (w.pool("tp").failures, w.pool("tp").breaker) == (0, "closed")
    assert w.reason("tp") == "QuotaExceeded"


def test_g9_what_fails_every_time_is_made_ever_more_rarely(world):
    w = world()
    w.cloud.boot = "no readiness"
    w.declare("tp", min_vm=1)
    w.run(3600)
    assert len(w.issued(CreateServer)) < 40
    assert w.pool("tp").breaker in ("open", "half_open")


# --- H: time ---------------------------------------------------------------------------------


def test_h1_weekday_and_time_are_in_one_zone(world):
    """22:30 UTC on Thursday is Friday in Paris."""
    w = world(at=datetime(2026, 6, 4, 22, 30, tzinfo=UTC))
    w.load_zone("Europe/Paris")
    w.declare("tp", min_vm=1, off_days=("friday",), time_zone="Europe/Paris")
    w.run(120)
    assert w.counts("tp") == {"SHUTOFF": 1}


def test_h3_a_midnight_that_nobody_saw_is_caught_up(world):
    w = world(at=datetime(2026, 1, 9, 23, 50, tzinfo=UTC))
    w.declare("tp", min_vm=1, off_days=("saturday",))
    w.run(120)
    w.listings, w.ticking = "paused", False
    w.run(3600)
    w.listings, w.ticking = "complete", True
    w.run(60)
    assert w.counts("tp") == {"SHUTOFF": 1}


@pytest.mark.parametrize(("respect", "state"), [(True, "SHUTOFF"), (False, "ACTIVE")])
def test_h5_who_stopped_it_is_known(world, respect, state):
    w = world()
    w.declare("tp", min_vm=1, respect_user_stop=respect, off_days=("sunday",))
    w.run(60)
    w.servers("tp")[0].status = "SHUTOFF"
    w.run(10)
    assert w.vms("tp")[0].power_cause in ("user", "schedule")
    w.run(120)
    assert w.counts("tp") == {state: 1}


@pytest.mark.parametrize(
    ("day", "hours"),
    [(datetime(2026, 3, 29, tzinfo=UTC), 23), (datetime(2026, 10, 25, tzinfo=UTC), 25)],
)
def test_h7_days_of_23_and_25_hours_are_slept_through_exactly(world, day, hours):
    w = world(at=day - timedelta(hours=6))
    w.feed(zone_rules("Europe/Paris", w.now_ms))
    w.declare("tp", min_vm=1, off_days=("sunday",), time_zone="Europe/Paris")
    w.run(36 * 3600)
    (stopped,), (started,) = w.times(StopServer), w.times(StartServer)
    assert (started - stopped) / 3_600_000 == pytest.approx(hours, abs=0.02)
    assert w.counts("tp") == {"ACTIVE": 1}


# --- I, J: images, content -------------------------------------------------------------------


def test_i1_i5_a_stale_image_is_resolved_again_once(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.images["vm"] = (evolve(IMAGE, image_id="img-2"),)  # rebuilt: the same name, another id
    w.run(120)
    assert len(w.issued(FetchImage)) == 1
    assert [c.image_id for c in w.issued(CreateServer)] == ["img-1", "img-2"]
    assert w.counts("tp") == {"ACTIVE": 1}


test_i5 = test_i1_i5_a_stale_image_is_resolved_again_once


def test_i3_of_two_images_of_one_name_the_newest_is_taken_and_it_is_said(world):
    newer = evolve(IMAGE, image_id="img-2", created="2026-02-01T00:00:00Z")
    w = world(images=(IMAGE, newer))
    w.declare("tp", min_vm=1)
    w.run(60)
    assert w.issued(CreateServer)[0].image_id == "img-2"
    assert "img-1" in w.pool("tp").conditions["ImageAmbiguous"].message


@pytest.mark.parametrize("networks", [("nowhere",), ("lan", "nowhere")])
def test_j7_an_unknown_network_is_the_pools_error_and_no_call(world, networks):
    w = world()
    w.declare("tp", min_vm=1, networks=networks)
    w.declare("other", min_vm=1)
    w.run(60)
    assert w.reason("tp") == "NetworkNotFound"
    assert w.counts("other") == {"ACTIVE": 1}
    assert len(w.issued(CreateServer)) == 1


# --- K, M: assignment, configuration ---------------------------------------------------------


def test_k1_one_vm_is_never_given_to_two(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    w.answer(ClaimServer, {"transport_error": "timeout"}, times=2, done=True)
    for n in range(4):
        w.ask(f"r{n}", "tp", claimant=f"c{n}", within_s=300)
    w.crash()
    w.run(600)
    given = [a for a in w.fleet.state.assignments.values() if a.state == "granted"]
    assert len(given) == 2
    assert len({a.server_id for a in given}) == 2
    assert {s.metadata["poolsm_claimant"] for s in w.servers("tp")} == {a.claimant for a in given}


def test_k3_an_assigned_vm_that_vanishes_holds_no_place(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    asked = w.ask("r", "tp")
    w.run(30)
    w.cloud.servers.clear()
    w.run(300)
    assert asked.state == "lost"
    assert w.counts("tp") == {"ACTIVE": 1}
    assert w.issued(FindServer)


def test_m5_a_changed_configuration_is_used_at_once(world):
    w = world()
    w.declare("tp", min_vm=1, config_id="course")
    w.run(60)
    for n in range(2):
        data = SecretRef(f"digest-{n}", 10)
        w.feed(ConfigDeclared(at_ms=w.now_ms, user_id="u", name="course", data=data, origin="t"))
    w.change("tp", min_vm=2)
    w.run(60)
    assert w.issued(CreateServer)[-1].user_data.config_data == SecretRef("digest-1", 10)


def test_m7_a_pool_with_vms_can_be_removed(world):
    w = world()
    w.declare("tp", min_vm=3)
    w.run(60)
    w.remove("tp")
    w.run(120)
    assert not w.servers("tp")
    assert not w.fleet.state.pools
