"""R8: surplus is unattributed, ACTIVE, newest first; a deletion in flight is left alone."""

from __future__ import annotations

import itertools

import pytest

from poolsm.commands import DeleteServer
from tests.rules.ingredients import gaps_s, last_text
from tests.unit.world import refusal


def filled(world, count, **more):
    w = world(**more)
    w.declare("tp", min_vm=count, max_vm=count)
    w.run(90)
    assert w.counts("tp") == {"ACTIVE": count}
    return w


def test_the_newest_go_and_the_teachers_stays(world):
    w = world()
    for count in (1, 2, 3, 4):
        w.declare("tp", min_vm=count, max_vm=count)
        w.run(60)
    by_age = [server.server_id for server in w.servers("tp")]
    w.change("tp", min_vm=1, max_vm=2)
    w.run(60)
    assert {c.server_id for c in w.issued(DeleteServer)} == set(by_age[2:])
    assert last_text(w, DeleteServer) == "surplus = 4 - 2 = 2; newest of 4 idle"


def test_attributed_and_stopped_ones_are_no_candidates(world):
    w = filled(world, 3)
    w.change("tp", respect_user_stop=True)
    w.ask("r", "tp")
    w.run(30)
    stopped = next(s for s in w.servers("tp") if s.metadata["reattrib"] == "false")
    stopped.status = "SHUTOFF"
    w.run(10)
    w.change("tp", min_vm=0, max_vm=1)
    w.run(120)
    assert len(w.servers("tp")) == 2
    assert stopped in w.servers("tp")


def test_no_ceiling_no_surplus(world):
    w = filled(world, 3)
    w.change("tp", min_vm=0, max_vm=0)
    w.run(300)
    assert not w.issued(DeleteServer)


def test_a_deletion_without_effect_is_repeated_after_90_s_and_reported(world):
    w = filled(world, 1)
    w.cloud.deletes_work = False
    w.ask("r", "tp")
    w.run(20)
    w.release("r")
    w.run(900)
    gaps = gaps_s(w, DeleteServer)
    assert 90 <= gaps[0] <= 96
    assert all(later >= earlier - 8 for earlier, later in itertools.pairwise(gaps))
    assert w.pool("tp").conditions["DeleteStuck"].reason == "NoEffect"


def test_a_deletion_of_unknown_outcome_is_not_repeated_for_90_s(world):
    w = filled(world, 2)
    w.answer(DeleteServer, {"http_status": 502})
    w.change("tp", min_vm=1, max_vm=1)
    w.run(60)
    assert len(w.issued(DeleteServer)) == 1
    assert w.pool("tp").capacity == 1
    w.run(120)
    assert len(w.servers("tp")) == 1


def test_404_ends_the_command_and_a_later_listing_the_vm(world):
    w = filled(world, 2)
    w.answer(DeleteServer, refusal(404, "Instance x could not be found."))
    w.change("tp", min_vm=1, max_vm=1)
    w.run_until(lambda: "deleting" in w.counts("tp"))
    victim = w.cloud.find(w.issued(DeleteServer)[0].server_id)
    w.run(20)
    assert "deleting" in w.counts("tp")  # still listed: not proven
    w.cloud.servers.pop(victim.server_id)
    w.run(12)
    assert w.counts("tp") == {"ACTIVE": 1}


def outlived(world, **more):
    """A server whose deletion was believed on a lie: 404 to all, and a listing without it."""
    w = filled(world, 1)
    server = w.servers("tp")[0]
    w.ask("r", "tp")
    w.run(20)
    w.release("r")
    w.cloud.deaf = True
    w.run(5)
    server.unlisted = True
    w.run_until(lambda: server.server_id in w.fleet.state.tombstones, limit_s=60)
    server.unlisted = w.cloud.deaf = False
    server.metadata = {**server.metadata, "reattrib": "false", **more}
    return w, server


def test_a_server_that_outlives_its_deletion_is_deleted_again_not_revived(world):
    w, server = outlived(world)
    buried_ms = w.now_ms
    w.run(110)
    assert not w.issued(DeleteServer, since_ms=buried_ms)  # a listing may be as stale as that
    w.run(60)
    again = list(w.issued(DeleteServer, since_ms=buried_ms))
    assert [c.server_id for c in again] == [server.server_id]
    assert again[0].reason.rule == "R8 repeat"
    assert server.server_id not in w.cloud.servers
    assert w.counts("tp") == {"ACTIVE": 1}


def test_one_that_is_somebodys_by_now_is_reported_and_left_alone(world):
    w, server = outlived(world, reattrib="true", poolsm_claimant="zoe")
    buried_ms = w.now_ms
    w.run(1000)  # and every deadline has come
    w.anomalies.clear()
    position = w.fleet.position
    w.run(600)
    assert not w.issued(DeleteServer, since_ms=buried_ms)
    assert server.server_id in w.fleet.state.strays
    assert w.fleet.position == position  # known, and no news any more
    assert not w.anomalies
    w.change("tp", min_vm=0, max_vm=0)
    w.remove("tp")
    w.run(60)
    w.declare("tp")
    w.run(60)
    assert not w.vms("tp")


def test_one_that_is_left_alone_is_not_revived_after_a_day_either(monkeypatch, world):
    monkeypatch.setattr("poolsm.state._TOMBSTONE_MS", 180_000)  # the day, for a short test
    w, server = outlived(world, reattrib="true", poolsm_claimant="zoe")
    w.run(200)
    w.ask("another", "tp")
    w.run(20)
    w.release("another")
    w.run(60)  # its burial is when old tombstones go
    assert len(w.fleet.state.tombstones) == 2
    server.metadata = {**server.metadata, "reattrib": "perhaps"}
    w.run(60)
    assert server.server_id not in {vm.server_id for vm in w.vms("tp")}


def test_one_of_a_pool_that_is_gone_by_now_is_deleted_too(world):
    w, server = outlived(world)
    w.remove("tp")
    w.run(60)
    assert not w.fleet.state.pools
    w.run(200)
    assert server.server_id not in w.cloud.servers
    assert not w.fleet.state.pools


@pytest.mark.parametrize(
    "answer", [{"unmet": "the server's metadata cannot be read"}, refusal(409, "task_state")]
)
def test_one_that_could_not_be_deleted_is_tried_again_before_an_older_one_goes(world, answer):
    w = world()
    for count in (1, 2):
        w.declare("tp", min_vm=count, max_vm=count)
        w.run(60)
    newest = w.servers("tp")[-1].server_id
    w.answer(DeleteServer, answer)
    w.change("tp", min_vm=1, max_vm=1)
    w.run(120)
    assert [c.server_id for c in w.issued(DeleteServer)] == [newest] * 2
    assert gaps_s(w, DeleteServer)[0] >= 90
    assert w.counts("tp") == {"ACTIVE": 1}


def test_one_that_turns_out_to_be_somebodys_makes_the_next_one_surplus(world):
    w = filled(world, 3)
    w.listings = "paused"
    w.servers("tp")[-1].metadata["reattrib"] = "true"
    w.change("tp", min_vm=1, max_vm=2)
    w.run(10)
    w.listings = "complete"
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 2}
    assert "true" in {server.metadata["reattrib"] for server in w.servers("tp")}
