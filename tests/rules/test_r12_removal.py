"""R12: an explicit removal drains; what is assigned goes only if it is meant."""

from __future__ import annotations

from poolsm.commands import CreateServer, DeleteServer
from tests.unit.world import refusal


def test_a_removed_pool_drains_and_disappears_with_its_last_vm(world):
    w = world()
    w.declare("tp", min_vm=3)
    w.run(60)
    w.remove("tp")
    w.run(4)
    assert w.pool("tp").state == "draining"
    w.run(60)
    assert not w.fleet.state.pools
    assert not w.servers("tp")
    assert len(w.issued(CreateServer)) == 3


def test_what_is_assigned_keeps_the_pool_until_it_is_released(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    w.ask("r", "tp")
    w.run(20)
    w.remove("tp")
    w.run(120)
    assert len(w.servers("tp")) == 1
    w.release("r")
    w.run(60)
    assert not w.fleet.state.pools


def test_include_assigned_takes_all(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    w.ask("r", "tp")
    w.run(20)
    w.remove("tp", include_assigned=True)
    w.run(60)
    assert not w.servers("tp")


def test_declared_again_while_it_drains_it_stays(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    w.cloud.deletes_work = False
    w.remove("tp")
    w.run(10)
    w.cloud.deletes_work = True
    w.declare("tp", min_vm=2)
    w.run(300)
    assert w.pool("tp").state == "active"
    assert w.counts("tp") == {"ACTIVE": 2}


def test_a_server_that_turns_up_after_the_removal_is_drained_too(world):
    w = world(settle_time_s=60)
    w.answer(CreateServer, {"transport_error": "timeout"}, done=True)
    w.declare("tp", min_vm=1)
    w.run_until(lambda: bool(w.servers("tp")))
    w.servers("tp")[0].hidden = True
    w.remove("tp")
    w.run(200)
    assert not w.fleet.state.pools
    w.behave()
    w.run(60)
    assert not w.servers("tp")
    assert "late_server" in w.anomaly_kinds()


def test_requests_that_wait_are_refused(world):
    w = world()
    w.answer(CreateServer, refusal(403, "Quota exceeded for cores"), times=None)
    w.declare("tp")
    asked = w.ask("r", "tp")
    w.run(20)
    w.remove("tp")
    assert asked.state == "refused"
    assert w.ask("late", "tp").state == "refused"


def test_a_removal_that_means_less_than_the_one_before_takes_the_rest_back(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    w.ask("r", "tp")
    w.run(20)
    w.step_clock(60)  # destruction waits for two listings
    w.remove("tp", include_assigned=True)
    w.run(2)
    assert len(w.pool("tp").deleting_or_condemned) == 2
    assert not w.issued(DeleteServer)
    w.remove("tp", include_assigned=False)
    w.run(120)
    (kept,) = w.servers("tp")
    assert kept.metadata["poolsm_claimant"] == "ann"


def test_a_release_while_it_drains_deletes_though_the_pool_reuses(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1, reuse=True)
    w.run(60)
    w.ask("r", "tp")
    w.run(20)
    w.remove("tp")
    w.run(10)
    w.release("r")
    w.run(4)
    assert w.issued(DeleteServer)[0].reason.rule == "R16 release"
    w.run(60)
    assert not w.fleet.state.pools
