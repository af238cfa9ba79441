"""Pauses and holds at their edges: what was under way, what was mended, what comes back."""

from __future__ import annotations

import pytest

from poolsm.commands import ClaimServer, DeleteServer, RebuildServer, StartServer, StopServer
from poolsm.conditions import concerns, fleet_conditions, pool_conditions
from poolsm.events import RebuildRequested
from tests.rules.ingredients import hold, pause, resume, unhold
from tests.unit.world import MONDAY, World, refusal


def filled(w: World, count: int = 2, **more: object) -> World:
    w.declare("tp", min_vm=count, **more)
    w.run(90)
    assert w.counts("tp") == {"ACTIVE": count}
    return w


def told(w: World, kind: str) -> object:
    """One condition of the pool."""
    (found,) = [c for c in pool_conditions(w.fleet.state, w.pool("tp")) if c.type == kind]
    return found


# --- what was mended is no failure any more ------------------------------------------------------


def test_a_failed_vm_that_was_mended_while_it_was_held_is_kept(world):
    w = world()
    w.cloud.boot = "No valid host was found."
    w.declare("tp", min_vm=1)
    w.run_until(lambda: w.counts("tp").get("ERROR", 0) == 1, limit_s=60)
    (vm,) = w.vms("tp")
    w.cloud.boot = "ACTIVE"
    hold(w, vm.key)
    w.run(60)
    w.cloud.servers[vm.server_id].status = "ACTIVE"
    w.run(20)
    unhold(w, vm.key)
    w.run(200)
    assert vm.server_id in w.cloud.servers
    assert not w.issued(DeleteServer)


@pytest.mark.parametrize("name", ["tp", ""])
def test_a_failed_vm_that_was_mended_during_a_pause_is_kept(world, name):
    w = filled(world())
    pause(w, name)
    (broken, _) = w.servers("tp")
    broken.status = "ERROR"
    w.run(30)
    assert w.counts("tp") == {"ERROR": 1, "ACTIVE": 1}
    broken.status = "ACTIVE"
    w.run(30)
    resume(w, name)
    w.run(200)
    assert not w.issued(DeleteServer)
    assert w.counts("tp") == {"ACTIVE": 2}


def test_what_was_released_goes_after_the_pause_all_the_same(world):
    w = filled(world())
    request = w.ask("r", "tp")
    w.run(30)
    pause(w, "tp")
    w.release("r")
    w.run(60)
    assert request.server_id in w.cloud.servers
    resume(w, "tp")
    w.run(30)
    assert request.server_id not in w.cloud.servers


# --- what was decided and not sent is as if it had not been decided ------------------------------


@pytest.mark.parametrize("how", ["hold", "pause"])
def test_a_claim_that_was_not_sent_leaves_its_request_waiting_for_another_vm(world, how):
    w = filled(world())
    w.holding = True
    request = w.ask("r", "tp")
    w.run(6)
    (claim,) = w.issued(ClaimServer)
    vm = w.fleet.state.vms[request.vm]
    if how == "hold":
        hold(w, vm.key)
    else:
        pause(w, "tp")
    assert request.state == "waiting"
    assert vm.attribution is None
    w.holding = False
    if how == "pause":
        resume(w, "tp")
    w.run(60)
    assert request.state == "granted"
    assert (request.server_id == claim.server_id) is (how == "pause")


def test_a_draw_from_a_warm_pool_that_was_not_sent_does_not_happen_once_that_is_paused(world):
    w = world()
    w.declare("warm", min_vm=1, warm=True)
    w.run(90)
    w.holding = True
    w.declare("tp", min_vm=1)
    w.run(6)
    assert w.issued(ClaimServer)
    pause(w, "warm")
    assert w.counts("warm") == {"ACTIVE": 1}
    w.holding = False
    w.run(90)
    (drawn,) = w.servers("warm")
    assert drawn.metadata["reattrib"] == "false"
    assert w.counts("tp") == {"ACTIVE": 1}, "built instead"


def test_a_claim_that_has_no_effect_is_not_repeated_while_its_warm_pool_is_paused(world):
    w = world()
    w.declare("warm", min_vm=1, warm=True)
    w.run(90)
    w.answer(ClaimServer, refusal(500))
    w.declare("tp", min_vm=1)
    w.run(10)
    assert len(w.issued(ClaimServer)) == 1
    pause(w, "warm")
    w.run(300)
    assert len(w.issued(ClaimServer)) == 1
    resume(w, "warm")
    w.run(120)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert w.vms("tp")[0].attribution is not None


def test_a_stop_that_was_taken_back_is_not_taken_for_the_users_own(world):
    w = world(at=MONDAY)
    w.declare("tp", min_vm=1, respect_user_stop=True)
    w.run(90)
    w.holding = True
    w.change("tp", off_days=("monday",))
    w.run(6)
    assert w.issued(StopServer)
    pause(w, "tp")
    w.holding = False
    w.change("tp", off_days=())
    resume(w, "tp")
    w.run(10)
    (server,) = w.servers("tp")
    server.status = "SHUTOFF"  # its user does that
    w.run(200)
    assert not w.issued(StartServer)
    assert w.vms("tp")[0].power_cause == "user"


# --- what else must not touch them ---------------------------------------------------------------


@pytest.mark.parametrize("how", ["hold", "pause"])
def test_a_rebuild_is_refused_meanwhile(world, how):
    w = filled(world(), count=1)
    (vm,) = w.vms("tp")
    if how == "hold":
        hold(w, vm.key)
    else:
        pause(w, "tp")
    w.feed(
        RebuildRequested(
            at_ms=w.now_ms, server_id=vm.server_id, image_ref="ubuntu", name="", origin="test"
        )
    )
    assert not w.issued(RebuildServer)
    assert "rebuild_refused" in w.anomaly_kinds()


def test_a_request_does_not_wait_for_a_held_vm_that_is_booting(world):
    w = world()
    w.cloud.boot = "hang"
    w.declare("tp", min_vm=0, max_vm=2, boot_timeout_s=3600)
    w.ask("r1", "tp", within_s=3000)
    w.run_until(lambda: w.counts("tp") == {"BUILD": 1}, limit_s=30)
    (vm,) = w.vms("tp")
    hold(w, vm.key)
    w.cloud.boot = "ACTIVE"
    w.run(90)
    assert w.fleet.state.assignments["r1"].state == "granted"
    assert vm.server_id in w.cloud.servers


def test_a_held_vm_that_seemed_gone_is_held_when_it_comes_back(world):
    w = filled(world())
    (vm, _) = w.vms("tp")
    hold(w, vm.key, why="evidence")
    server = w.cloud.servers[vm.server_id]
    server.hidden = True
    w.run_until(lambda: vm.key not in w.fleet.state.vms, limit_s=300)
    assert "held_vm_gone" in w.anomaly_kinds()
    server.hidden = False
    w.run(60)
    again = w.fleet.state.vms[w.fleet.state.by_server[server.server_id]]
    assert again.held is not None
    assert "evidence" in again.held.text


# --- whose word it is ----------------------------------------------------------------------------


def test_the_first_word_stands(world):
    w = filled(world(), count=1)
    (vm,) = w.vms("tp")
    pause(w, "tp", why="first")
    hold(w, vm.key, why="first")
    began_ms = w.now_ms
    w.run(30)
    pause(w, "tp", why="second")
    hold(w, vm.key, why="second")
    assert (w.pool("tp").paused.why, w.pool("tp").paused.since_ms) == ("first", began_ms)
    assert (vm.held.why, vm.held.since_ms) == ("first", began_ms)


# --- since when ----------------------------------------------------------------------------------


def test_a_suspension_that_comes_again_began_when_it_came_again(world):
    w = filled(world())
    (server, _) = w.servers("tp")
    seen = []
    for _ in range(2):
        before_ms = w.now_ms
        server.blank = True
        w.run(20)
        now = told(w, "Suspended")
        assert now.status == "True"
        assert before_ms <= now.since_ms <= w.now_ms
        seen.append(now.since_ms)
        server.blank = False
        before_ms = w.now_ms
        w.run(20)
        now = told(w, "Suspended")
        assert now.status == "False"
        assert before_ms <= now.since_ms <= w.now_ms
        w.run(600)
    assert seen[0] < seen[1]


def test_a_stale_listing_that_ends_quietly_says_since_when_it_is_fresh(world):
    w = filled(world())
    w.listings = "paused"
    w.run(100)
    w.listings = "complete"
    before_ms = w.now_ms
    w.run(10)
    (fresh,) = [c for c in fleet_conditions(w.fleet.state) if c.type == "ListingStale"]
    assert fresh.status == "False"
    assert before_ms <= fresh.since_ms <= w.now_ms


def test_a_failure_that_is_over_concerns_nobody_and_can_still_be_read(world):
    w = world()
    w.cloud.boot = "No valid host was found."
    w.declare("tp", min_vm=1)
    w.run_until(lambda: w.pool("tp").failures > 0, limit_s=60)
    w.run(4)
    assert told(w, "LastFailure").status == "True"
    w.cloud.boot = "ACTIVE"
    w.run(300)
    now = told(w, "LastFailure")
    assert now.status == "False"
    assert "No valid host" in now.message
    assert not concerns(pool_conditions(w.fleet.state, w.pool("tp")))


def test_what_is_not_known_is_unknown(world):
    w = filled(world())
    w.listings = "paused"
    w.run(100)
    assert told(w, "Provisioned").status == "True"
    w.change("tp", min_vm=3)
    assert told(w, "Provisioned").status == "Unknown"
