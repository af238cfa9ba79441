"""R16: a request ends granted, refused or expired, and the same id has the same answer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from poolsm import PoolKey
from poolsm.commands import ClaimServer, CreateServer, DeleteServer
from tests.unit.world import LOG, MONDAY, TIMEOUT, refusal


def test_a_ready_one_is_given_oldest_first_and_claimed_in_the_cloud(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    w.change("tp", min_vm=2)
    w.run(60)
    oldest = w.servers("tp")[0]
    asked = w.ask("r", "tp")
    w.run(20)
    assert (asked.state, asked.server_id) == ("granted", oldest.server_id)
    assert oldest.metadata["reattrib"] == "true"
    assert (oldest.metadata["poolsm_claimant"], oldest.metadata["poolsm_request"]) == ("ann", "r")


def test_else_one_is_made_within_the_ceiling_else_it_waits_and_expires(world):
    w = world()
    w.declare("tp", max_vm=1)
    first, second = w.ask("r1", "tp"), w.ask("r2", "tp", within_s=300)
    w.run(60)
    assert (first.state, second.state) == ("granted", "waiting")
    w.run(300)
    assert second.state == "expired"
    assert "max_vm 1" in second.message
    assert len(w.issued(CreateServer)) == 1


def test_the_same_id_again_is_the_same_request(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    asked = w.ask("r", "tp")
    w.run(20)
    assert w.ask("r", "tp") is asked
    w.run(20)
    assert len(w.issued(ClaimServer)) == 1


def test_an_unknown_pool_is_refused(world):
    w = world()
    assert w.ask("r", "nowhere").state == "refused"


def test_on_an_off_day_a_stopped_one_is_given_and_left_stopped(world):
    w = world(at=MONDAY + timedelta(days=5))
    w.declare("tp", min_vm=1, off_days=("saturday",))
    w.run(120)
    asked = w.ask("r", "tp")
    w.run(60)
    assert asked.state == "granted"
    assert "off-day" in asked.message
    assert w.counts("tp") == {"SHUTOFF": 1}


def test_a_claim_that_fails_sends_the_request_back_to_wait(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=2)
    w.run(60)
    w.answer(ClaimServer, refusal(404, "Instance x could not be found."))
    asked = w.ask("r", "tp")
    w.run_until(lambda: bool(w.issued(ClaimServer)))
    w.run(300)
    assert asked.state == "granted"
    assert "claim_failed" in w.anomaly_kinds()


def test_claims_that_always_fail_are_tried_once_a_minute_and_not_at_each_tick(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    w.answer(ClaimServer, refusal(404, "Instance x could not be found."), times=None)
    asked = w.ask("r", "tp", within_s=3600)
    w.run(600)
    assert 9 <= len(w.issued(ClaimServer)) <= 11
    w.behave()
    w.run(90)
    assert asked.state == "granted"


def test_a_release_deletes_and_the_pool_refills(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=2)
    w.run(60)
    asked = w.ask("r", "tp")
    w.run(20)
    w.release("r")
    w.run(90)
    assert asked.state == "released"
    assert [c.server_id for c in w.issued(DeleteServer)] == [asked.server_id]
    assert w.counts("tp") == {"ACTIVE": 1}


@pytest.mark.parametrize("taken", [False, True])
def test_a_released_one_that_outlives_its_deletion_is_deleted_again(world, taken):
    """The cloud said 404 and no listing showed it: believed, and yet it is still there."""
    w = world()
    w.declare("tp", min_vm=1, max_vm=2)
    w.run(60)
    asked = w.ask("r", "tp")
    w.run(20)
    server = w.cloud.find(asked.server_id)
    w.answer(DeleteServer, refusal(404, "Instance could not be found."))
    server.unlisted = True
    w.release("r")
    w.run(60)
    assert server.server_id in w.fleet.state.tombstones
    assert len(w.issued(DeleteServer)) == 1
    if taken:  # it is somebody else's by now
        server.metadata = {**server.metadata, "poolsm_claimant": "zoe"}
    server.unlisted = False
    w.run(600)
    assert (server.server_id in w.cloud.servers) is taken
    assert len(w.issued(DeleteServer)) == (1 if taken else 2)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_a_pool_that_reuses_makes_it_free_again(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1, reuse=True)
    w.run(60)
    for claimant in ("ann", "bob"):
        asked = w.ask(f"for {claimant}", "tp", claimant=claimant)
        w.run(30)
        assert asked.state == "granted"
        assert w.servers("tp")[0].metadata["poolsm_claimant"] == claimant
        w.release(asked.request_id)
        w.run(30)
    assert not w.issued(DeleteServer)
    assert w.servers("tp")[0].metadata["reattrib"] == "false"


def test_a_waiting_request_can_be_withdrawn(world):
    w = world()
    w.declare("tp", max_vm=1)
    w.ask("r1", "tp")
    waits = w.ask("r2", "tp")
    w.run(60)
    w.release("r2")
    assert waits.state == "refused"


def test_one_that_boots_for_somebody_else_is_not_coming_for_a_request(world):
    w = world()
    key = w.declare("tp", max_vm=2)
    w.cloud.add("x", key, status="BUILD", tags={"reattrib": "true", "poolsm_log": LOG})
    w.run(20)
    asked = w.ask("r", "tp")
    w.run(60)
    assert asked.state == "granted"
    assert len(w.issued(CreateServer)) == 1


def test_one_that_nova_is_busy_with_is_not_ready(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    w.servers("tp")[0].task_state = "image_snapshot"
    w.run(10)
    asked = w.ask("r", "tp")
    w.run(60)
    assert asked.state == "waiting"
    w.servers("tp")[0].task_state = None
    w.run(20)
    assert asked.state == "granted"


def test_it_is_granted_only_when_the_cloud_has_the_claim(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    w.answer(ClaimServer, TIMEOUT)
    asked = w.ask("r", "tp")
    w.run(10)
    w.servers("tp")[0].networks = ("n-1",)  # news of it, but not of the claim
    w.run(20)
    assert asked.state == "claiming"
    w.run(60)
    assert asked.state == "granted"
    first, second = w.issued(ClaimServer)
    assert (first.server_id, first.metadata) == (second.server_id, second.metadata)


def test_what_somebody_else_took_meanwhile_is_not_deleted_by_a_release(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    w.ask("r", "tp")
    w.run(30)
    server = w.servers("tp")[0]
    w.listings = "paused"
    server.metadata = {**server.metadata, "poolsm_claimant": "bob"}
    w.release("r")
    w.run(20)
    assert len(w.issued(DeleteServer)) == 1
    assert "unmet" in w.anomaly_kinds()
    assert w.cloud.find(server.server_id).task_state is None


KEY = PoolKey("tp", "prof")
GRANTED = {
    "reattrib": "true",
    "poolsm_claimant": "ann",
    "poolsm_request": "r",
    "poolsm_log": LOG,
}


def test_a_vm_that_a_waiting_request_was_granted_already_is_its_answer(world):
    """After a restore the log has forgotten the claim, and the cloud has not."""
    w = world()
    w.declare("tp", max_vm=5)
    asked = w.ask("r", "tp")
    theirs = w.cloud.add("theirs", KEY, tags=GRANTED)
    w.run(60)
    assert (asked.state, asked.server_id) == ("granted", theirs.server_id)
    assert not w.issued(ClaimServer)
    assert not w.issued(CreateServer)


def test_so_it_is_when_the_log_knows_the_vm_as_free(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    (server,) = w.servers("tp")
    server.metadata.update(GRANTED)
    w.run(20)
    assert w.ask("r", "tp").server_id == server.server_id
    w.run(20)
    assert not w.issued(ClaimServer)
    w.release("r")
    w.run(60)
    assert not w.cloud.find(server.server_id)


def test_a_request_that_was_forgotten_has_the_same_answer_when_asked_again(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=5)
    theirs = w.cloud.add("theirs", KEY, tags=GRANTED)
    w.run(60)
    asked = w.ask("r", "tp")
    w.run(60)
    assert (asked.state, asked.server_id) == ("granted", theirs.server_id)
    assert not w.issued(ClaimServer)


@pytest.mark.parametrize(
    "tags",
    [
        {"poolsm_log": "22222222-2222-4222-8222-222222222222"},
        {"poolsm_claimant": "bob"},
        {"reattrib": None},
    ],
)
def test_tags_that_do_not_prove_it_are_no_answer(world, tags):
    w = world()
    w.declare("tp", max_vm=5)
    asked = w.ask("r", "tp")
    theirs = w.cloud.add("theirs", KEY, tags={**GRANTED, **tags})
    w.run(120)
    assert asked.state == "granted"
    assert asked.server_id != theirs.server_id
    assert w.cloud.find(theirs.server_id)
