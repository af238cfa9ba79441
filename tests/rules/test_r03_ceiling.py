"""R3: create or transfer only while owned < MaxVM."""

from __future__ import annotations

import pytest

from poolsm import PoolSpec, check_spec
from poolsm.commands import ClaimServer, CreateServer


@pytest.mark.parametrize(("min_vm", "max_vm", "ok"), [
    (0, 0, True), (3, 0, True), (3, 3, True), (3, 4, True), (4, 3, False), (1, -1, False),
    (-1, 0, False),
])  # fmt: skip
def test_min_above_max_is_refused(min_vm, max_vm, ok):
    spec = PoolSpec("tp", "prof", min_vm, max_vm, "ubuntu", "small")
    assert (not check_spec(spec)) is ok


def test_a_refused_declaration_changes_nothing(world):
    w = world()
    w.declare("tp", min_vm=4, max_vm=3)
    assert not w.fleet.state.pools
    assert "invalid_spec" in w.anomaly_kinds()


def test_zero_is_no_ceiling(world):
    w = world()
    w.declare("tp", min_vm=9, max_vm=0)
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 9}


def test_min_equal_to_max(world):
    w = world()
    w.declare("tp", min_vm=3, max_vm=3)
    w.run(300)
    assert w.counts("tp") == {"ACTIVE": 3}


def test_what_is_owned_but_no_capacity_leaves_no_room(world):
    w = world()
    w.declare("tp", min_vm=3, max_vm=3)
    w.run(60)
    w.cloud.deletes_work = False
    w.servers("tp")[0].status = "ERROR"
    w.run(60)
    assert w.pool("tp").capacity == 2
    assert w.pool("tp").owned == 3
    assert w.reason("tp") == "AtCeiling"
    assert len(w.issued(CreateServer)) == 3
    w.cloud.deletes_work = True
    w.run(300)
    assert w.counts("tp") == {"ACTIVE": 3}


def test_one_below_the_ceiling_there_is_room_for_one(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=3)
    w.run(60)
    w.cloud.deletes_work = False
    for server in w.servers("tp"):
        server.status = "ERROR"
    w.run(60)
    assert len(w.issued(CreateServer)) == 3  # 2 + room 3 - 2
    assert w.pool("tp").owned == 3


def test_a_transfer_needs_room_too(world):
    w = world()
    w.declare("pool_vms", user_id="admin", min_vm=2, warm=True)
    w.run(60)
    failed = w.cloud.add("x", ("tp", "prof"), status="ERROR", tags={"reattrib": "true"})
    w.run(10)
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    assert not w.issued(ClaimServer)
    assert w.reason("tp") == "AtCeiling"
    assert [vm.server_id for vm in w.vms("tp")] == [failed.server_id]


def test_requests_wait_at_the_ceiling(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=2)
    w.run(60)
    for n in range(3):
        w.ask(f"r{n}", "tp")
    w.run(120)
    states = sorted(a.state for a in w.fleet.state.assignments.values())
    assert states == ["granted", "granted", "waiting"]
    assert w.pool("tp").owned == 2
