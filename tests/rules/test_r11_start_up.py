"""R11: observe, adopt, resolve, then plan; a second manager is an alarm."""

from __future__ import annotations

import pytest

from poolsm import PoolKey
from poolsm.commands import CreateServer, DeleteServer
from tests.rules.ingredients import acknowledge

KEY = PoolKey("tp", "prof")


def test_what_carries_our_tags_at_the_start_is_adopted(world):
    w = world()
    for n in range(2):
        w.cloud.add(f"old-{n}", KEY)
    w.declare("tp", min_vm=2)
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 2}
    assert not w.commands
    assert not w.pool("tp").second_manager


@pytest.mark.parametrize(("flag", "attributed"), [("true", True), (None, True), ("false", False)])
def test_attribution_is_what_metadata_proves(world, flag, attributed):
    w = world()
    w.cloud.add("old", KEY, tags={"reattrib": flag})
    w.declare("tp", max_vm=1)
    w.run(20)
    (vm,) = w.vms("tp")
    assert (vm.attribution is not None) is attributed


def test_an_unproven_one_is_kept_until_an_operator_releases_it(world):
    w = world()
    old = w.cloud.add("old", KEY, tags={"reattrib": None})
    w.cloud.add("older", KEY)
    w.declare("tp", max_vm=1)
    w.run(60)
    w.change("tp", min_vm=0, max_vm=1)
    w.run(60)
    assert w.cloud.find(old.server_id)
    w.release(old.server_id)
    w.run(60)
    assert not w.cloud.find(old.server_id)


@pytest.mark.parametrize("log_id", [None, "22222222-2222-4222-8222-222222222222"])
def test_a_server_of_another_manager_stops_its_pool_until_acknowledged(world, log_id):
    w = world()
    w.declare("tp", min_vm=1, max_vm=9)
    w.declare("other", min_vm=1)
    w.run(60)
    w.cloud.add("theirs", KEY, tags={"poolsm_log": log_id})
    w.run(10)
    w.change("tp", min_vm=3, max_vm=3)
    w.run(300)
    assert w.reason("tp") == "SecondManager"
    assert len(w.issued(CreateServer)) == 2
    assert not w.issued(DeleteServer)
    acknowledge(w, "tp")
    w.run(60)
    assert w.pool("tp").owned == 3


def test_servers_of_a_pool_declared_later_are_adopted_without_alarm(world):
    w = world()
    w.run(30)
    w.cloud.add("waiting", KEY)
    w.run(30)
    w.declare("tp", min_vm=1)
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert not w.commands
    assert not w.pool("tp").second_manager


def test_nothing_is_planned_before_the_first_complete_listing(world):
    w = world()
    w.listings = "failing"
    w.declare("tp", min_vm=1)
    w.run(600)
    assert not w.commands


def test_a_server_without_our_tags_is_never_touched(world):
    w = world()
    stranger = w.cloud.add("db-1", None)
    w.declare("tp", min_vm=0, max_vm=1, off_days=("monday",))
    w.run(600)
    assert not w.commands
    assert stranger.status == "ACTIVE"


def test_what_metadata_does_not_say_is_unproven(world):
    w = world()
    w.cloud.add("said", KEY, tags={"reattrib": "true"})
    w.cloud.add("unsaid", KEY, tags={"reattrib": None})
    w.declare("tp")
    w.run(20)
    assert {vm.name: vm.attribution.by for vm in w.vms("tp")} == {
        "said": "metadata",
        "unsaid": "unproven",
    }


def test_one_of_an_older_log_that_vanished_and_returns_is_no_second_manager(world):
    w = world()
    w.cloud.add("witness", KEY)
    old = w.cloud.add("old", KEY)
    w.declare("tp", min_vm=1)
    w.run(20)
    old.hidden = True
    w.run(60)
    assert old.server_id in w.fleet.state.tombstones
    old.hidden = False
    w.run(20)
    assert old.server_id in w.fleet.state.by_server
    assert not w.pool("tp").second_manager


def test_a_new_runner_plans_nothing_on_the_listing_of_the_last_one(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(62)
    w.listings = "paused"
    w.change("tp", min_vm=3)  # stored, and with it how fresh the last listing is
    w.crash()
    w.run(10)
    assert len(w.issued(CreateServer)) == 1
    w.listings = "complete"
    w.run(10)
    assert len(w.issued(CreateServer)) == 3
