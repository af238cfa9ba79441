"""R2: missing = MinVM - capacity, a booting VM counted once."""

from __future__ import annotations

import pytest

from poolsm.commands import CreateServer, DeleteServer
from tests.rules.ingredients import last_text


@pytest.mark.parametrize("min_vm", [0, 1, 2, 7])
def test_a_pool_reaches_its_minimum_and_no_more(world, min_vm):
    w = world()
    w.declare("tp", min_vm=min_vm)
    w.run(300)
    assert w.counts("tp") == ({"ACTIVE": min_vm} if min_vm else {})
    assert len(w.issued(CreateServer)) == min_vm


def test_reason_carries_the_arithmetic(world):
    w = world()
    w.declare("tp", min_vm=3, max_vm=5)
    w.run(60)
    w.change("tp", min_vm=5)
    w.run(4)
    assert "missing = 5 - 3 = 2" in last_text(w, CreateServer)
    assert "room = 5 - 3 = 2" in last_text(w, CreateServer)


def test_booting_is_counted_once_for_as_long_as_it_takes(world):
    w = world()
    w.cloud.boot_s = 500
    w.declare("tp", min_vm=2)
    for _ in range(40):
        w.run(10)
        assert w.pool("tp").owned == 2
        assert w.pool("tp").pending_jobs == 2
    w.run(200)
    assert w.pool("tp").pending_jobs == 0
    assert len(w.issued(CreateServer)) == 2


def test_shutoff_is_parked_not_lost(world):
    w = world()
    w.declare("tp", min_vm=2, respect_user_stop=True)
    w.run(60)
    w.servers("tp")[0].status = "SHUTOFF"
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1, "SHUTOFF": 1}
    assert len(w.issued(CreateServer)) == 2


@pytest.mark.parametrize("status", ["PAUSED", "SHELVED_OFFLOADED", "RESCUE", "SOMETHING_NEW"])
def test_other_statuses_are_capacity_and_left_alone(world, status):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    count = len(w.commands)
    w.servers("tp")[0].status = status
    w.run(600)
    assert w.pool("tp").capacity == 1
    assert len(w.commands) == count
    (vm,) = w.vms("tp")
    assert vm.state == (status if status != "SOMETHING_NEW" else "UNKNOWN")


@pytest.mark.parametrize("status", ["DELETED", "SOFT_DELETED"])
def test_deleted_statuses_are_gone_and_replaced(world, status):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    first = w.servers("tp")[0]
    first.status = status
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert w.vms("tp")[0].server_id != first.server_id
    assert "deleted_by_others" in w.anomaly_kinds()
    first.status = "ACTIVE"  # a stale cache shows it once more
    w.run(60)
    assert w.pool("tp").owned == 1
    assert "ghost" in w.anomaly_kinds()


def test_missing_is_no_capacity_but_owned_until_proven_gone(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    server = w.servers("tp")[0]
    server.unlisted = True  # no listing shows it, a lookup does
    w.run(11)
    assert w.pool("tp").owned == 2
    assert len(w.issued(CreateServer)) == 2  # at the ceiling
    server.unlisted = False
    w.run(20)
    assert w.counts("tp") == {"ACTIVE": 2}


def test_absent_once_is_not_missing_and_free_again_when_seen(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    server = w.servers("tp")[0]
    server.unlisted = True
    w.run(6)
    (vm,) = w.vms("tp")
    assert (vm.state, vm.absences) == ("ACTIVE", 1)
    server.unlisted = False
    w.run(6)
    assert vm.absences == 0
    server.unlisted = True
    w.run(5)
    assert vm.state == "ACTIVE"
    server.unlisted = False
    w.run(10)
    assert w.ask("r", "tp").state == "waiting"
    w.run(20)
    assert w.fleet.state.assignments["r"].state == "granted"


def test_a_vanished_vm_is_replaced_and_forgotten(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    gone = w.servers("tp")[0]
    del w.cloud.servers[gone.server_id]
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 2}
    assert not w.issued(DeleteServer)


def test_a_missing_vm_that_returns_is_what_it_is(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.cloud.add("witness", ("tp2", "prof"))
    w.run(60)
    server = w.servers("tp")[0]
    server.hidden = True
    w.run(12)
    server.hidden = False
    w.run(60)
    ids = {vm.server_id for vm in w.vms("tp")}
    assert server.server_id in ids
    assert "second_manager" not in w.anomaly_kinds()
