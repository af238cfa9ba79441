"""An operator's word is the last one: pauses and holds."""

from __future__ import annotations

from datetime import timedelta

import pytest

from poolsm.commands import (
    ClaimServer,
    CreateServer,
    DeleteServer,
    FindServer,
    StartServer,
    StopServer,
)
from poolsm.conditions import concerns, fleet_conditions, pool_conditions
from poolsm.shapes import WordView
from poolsm.snapshot import decode_state, encode_state
from poolsm.views import fleet_view, pool_view, vm_view
from tests.rules.ingredients import (
    acknowledge,
    confirm_loss,
    hold,
    pause,
    reset,
    resume,
    unhold,
)
from tests.unit.world import MONDAY

EVENING = MONDAY + timedelta(hours=15, minutes=30)  # half an hour before midnight, UTC


def filled(world, count=2, at=MONDAY, **more):
    w = world(at=at)
    w.declare("tp", min_vm=count, **more)
    w.run(90)
    assert w.counts("tp") == {"ACTIVE": count}
    return w


def wrong(w, name="tp"):
    found = pool_conditions(w.fleet.state, w.pool(name))
    return {condition.type: condition for condition in concerns(found)}


def doings(w, since_ms):
    """Commands since then that change something."""
    return [c for at_ms, c in w.commands if at_ms >= since_ms and not isinstance(c, FindServer)]


@pytest.mark.parametrize("name", ["tp", ""])
def test_a_paused_pool_is_left_alone_and_a_resumed_one_caught_up(world, name):
    w = filled(world)
    pause(w, name, why="maintenance")
    paused_ms = w.now_ms
    lost = w.servers("tp")[0]
    w.cloud.servers.pop(lost.server_id)
    w.change("tp", min_vm=4)
    request = w.ask("r", "tp")
    w.run(200)
    assert not doings(w, paused_ms)
    assert request.state == "waiting"
    assert w.reason("tp") == "Paused"
    told = wrong(w)["Paused"]
    assert told.reason == ("PoolPaused" if name else "FleetPaused")
    assert "maintenance" in told.message
    assert told.since_ms == paused_ms
    assert "maintenance" in pool_view(w.fleet.state, w.pool("tp").key).paused
    resume(w, name)
    w.run(120)
    assert w.counts("tp") == {"ACTIVE": 4}
    assert request.state == "granted"
    assert not wrong(w)


def test_a_pause_survives_a_restart_and_a_restart_is_no_news(world):
    w = filled(world)
    pause(w, "tp")
    since_ms = w.now_ms
    w.change("tp", min_vm=4)
    w.run(20)
    w.crash()
    w.run(100)
    assert not doings(w, since_ms)
    assert wrong(w)["Paused"].since_ms == since_ms


def test_what_was_decided_and_not_sent_is_not_sent(world):
    w = filled(world)
    w.holding = True  # calls wait for their slot
    w.change("tp", min_vm=4)
    w.run(10)
    assert len(w.issued(CreateServer)) == 4
    pause(w, "tp")
    assert w.pool("tp").owned == 2
    w.holding = False
    w.run(100)
    assert len(w.cloud.servers) == 2
    resume(w, "tp")
    w.run(100)
    assert w.counts("tp") == {"ACTIVE": 4}
    assert len(w.cloud.servers) == 4


def test_the_answer_to_what_was_sent_is_heard_during_a_pause(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run_until(lambda: bool(w.cloud.servers), limit_s=60)
    pause(w, "tp")
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_power_claims_and_draws_from_a_paused_warm_pool_stop(world):
    w = world()
    w.declare("warm", min_vm=2, warm=True)
    w.run(90)
    pause(w, "warm")
    paused_ms = w.now_ms
    w.declare("tp", min_vm=1)
    w.run(90)
    assert not w.issued(ClaimServer, since_ms=paused_ms)
    assert w.counts("tp") == {"ACTIVE": 1}, "built instead"
    assert w.counts("warm") == {"ACTIVE": 2}


def test_an_off_day_during_a_pause_is_caught_up_afterwards(world):
    w = filled(world, at=EVENING, off_days=("tuesday",), time_zone="UTC")
    pause(w, "tp")
    w.run(3600)
    assert not w.issued(StopServer)
    resume(w, "tp")
    w.run(30)
    assert w.counts("tp") == {"SHUTOFF": 2}


def test_a_removal_waits_for_the_end_of_a_pause(world):
    w = filled(world)
    pause(w, "tp")
    w.remove("tp")
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 2}
    resume(w, "tp")
    w.run(60)
    assert not w.fleet.state.pools


def test_a_paused_fleet_is_silent(world):
    w = filled(world)
    pause(w, "")
    w.run(1200)  # and every deadline of the boots has come
    position = w.fleet.position
    w.run(3600)
    assert w.fleet.position == position


# --- holds ---------------------------------------------------------------------------------------


def failed(world, **more):
    """A pool with a failed VM that its operator holds."""
    w = world()
    w.cloud.boot = "ERROR"
    w.declare("tp", min_vm=1, **more)
    w.run_until(lambda: w.counts("tp").get("ERROR", 0) == 1, limit_s=60)
    (vm,) = w.vms("tp")
    hold(w, vm.server_id, why="look at its console")
    w.cloud.boot = "ACTIVE"
    return w, vm


def test_a_failed_vm_that_is_held_stays_and_is_replaced(world):
    w, vm = failed(world)
    w.run(200)
    assert vm.server_id in w.cloud.servers
    assert w.counts("tp") == {"ERROR": 1, "ACTIVE": 1}
    told = wrong(w)["VmsHeld"]
    assert "look at its console" in told.message
    assert vm_view(w.fleet.state, vm.key).held == "by test: look at its console"
    unhold(w, vm.server_id)
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert "VmsHeld" not in wrong(w)


def test_a_held_vm_takes_a_place_under_the_ceiling(world):
    w, vm = failed(world, max_vm=1)
    w.run(200)
    assert w.counts("tp") == {"ERROR": 1}
    assert w.reason("tp") == "AtCeiling"
    unhold(w, vm.server_id)
    w.run(200)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_a_held_vm_is_not_handed_out_stopped_or_scaled_down(world):
    w = filled(world, at=EVENING, off_days=("tuesday",), time_zone="UTC")
    newest = w.vms("tp")[-1]
    hold(w, newest.server_id)
    assert w.ask("r1", "tp").state == "waiting"
    assert w.ask("r2", "tp").state == "waiting"
    w.run(60)
    assert newest.attribution is None
    w.release("r1")
    w.release("r2")
    w.change("tp", min_vm=0, max_vm=1)
    w.run(60)
    assert newest.server_id in w.cloud.servers
    w.change("tp", min_vm=1, max_vm=3)
    w.run(2400)
    assert newest.server_id not in {c.server_id for c in w.issued(StopServer)}
    unhold(w, newest.server_id)
    w.run(30)
    assert newest.state == "SHUTOFF"
    assert not w.issued(StartServer)


def test_a_held_vm_that_is_released_is_deleted_once_it_is_let_go(world):
    w = filled(world)
    request = w.ask("r", "tp")
    w.run(30)
    assert request.state == "granted"
    hold(w, request.server_id)
    w.release("r")
    w.run(200)
    assert request.server_id in w.cloud.servers
    unhold(w, request.server_id)
    w.run(60)
    assert request.server_id not in w.cloud.servers


def test_a_drain_waits_for_what_is_held_and_says_so(world):
    w = filled(world)
    vm = w.vms("tp")[0]
    hold(w, vm.server_id)
    w.remove("tp")
    w.run(120)
    assert [v.key for v in w.vms("tp")] == [vm.key]
    assert f"waits for what is held: {vm.name}" in wrong(w)["Draining"].message
    unhold(w, vm.server_id)
    w.run(60)
    assert not w.fleet.state.pools


def test_a_deletion_that_was_not_sent_yet_does_not_take_a_held_vm(world):
    w = filled(world)
    w.holding = True
    w.change("tp", min_vm=1, max_vm=1)
    w.run(10)
    (command,) = w.issued(DeleteServer)
    hold(w, command.server_id)
    w.holding = False
    w.run(100)
    assert command.server_id in w.cloud.servers
    assert not w.fleet.state.ops


def test_a_hold_goes_with_its_vm_and_outlives_a_restart(world):
    w, vm = failed(world)
    w.crash()
    w.run(100)
    assert vm.server_id in w.cloud.servers
    w.cloud.servers.pop(vm.server_id)
    w.run(200)
    assert "VmsHeld" not in wrong(w)


def test_conditions_say_since_when(world):
    w = filled(world)
    clear_ms = {c.type: c.since_ms for c in pool_conditions(w.fleet.state, w.pool("tp"))}
    w.run(300)
    assert {c.type: c.since_ms for c in pool_conditions(w.fleet.state, w.pool("tp"))} == clear_ms
    assert all(since_ms for since_ms in clear_ms.values())
    assert all(c.status == "False" for c in fleet_conditions(w.fleet.state))


DEEDS = {
    "paused": lambda w: pause(w, "tp"),
    "resumed": lambda w: (pause(w, "tp"), resume(w, "tp")),
    "reset": lambda w: reset(w, "tp"),
    "acknowledged": lambda w: acknowledge(w, "tp"),
    "NAME held": lambda w: hold(w, w.servers("tp")[0].name),
    "NAME let go": lambda w: (
        hold(w, w.servers("tp")[0].name),
        unhold(w, w.servers("tp")[0].name),
    ),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_pool_says_what_an_operator_last_did_to_it(world, deed):
    w = filled(world)
    key, name = w.pool("tp").key, w.servers("tp")[0].name
    assert pool_view(w.fleet.state, key).last_word is None
    DEEDS[deed](w)
    said = WordView(deed.replace("NAME", name), "test", w.now_ms)
    w.run(30)
    assert pool_view(w.fleet.state, key).last_word == said
    assert fleet_view(w.fleet.state).last_word is None
    kept = decode_state(encode_state(w.fleet.state))
    assert pool_view(kept, key).last_word == said


def test_the_fleet_says_what_an_operator_last_did_to_all_of_it(world):
    w = filled(world, 8)
    w.cloud.servers.clear()
    w.run_until(lambda: w.fleet.state.loss is not None)
    confirm_loss(w)
    assert fleet_view(w.fleet.state).last_word == WordView("loss confirmed", "test", w.now_ms)
    pause(w, "")
    assert fleet_view(w.fleet.state).last_word.deed == "paused"
    resume(w, "")
    assert fleet_view(w.fleet.state).last_word.deed == "resumed"
    assert pool_view(w.fleet.state, w.pool("tp").key).last_word is None
