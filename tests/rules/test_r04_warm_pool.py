"""R4: missing VMs are drawn from a warm pool, one VM to one claimant."""

from __future__ import annotations

import pytest
from attrs import evolve

from poolsm import PoolSpec, SecretRef, check_spec
from poolsm.commands import ClaimServer, CreateServer, DeleteServer, RenameServer
from tests.rules.ingredients import image
from tests.unit.world import LOG, TIMEOUT, refusal


def warm_world(world, *, size=2, **spec):
    w = world()
    w.declare("pool_vms", user_id="admin", min_vm=size, warm=True, **spec)
    w.run(60)
    assert w.counts("pool_vms") == {"ACTIVE": size}
    return w


def test_one_metadata_call_then_the_rename(world):
    w = warm_world(world)
    oldest = w.cloud.find(w.vms("pool_vms")[0].server_id)
    w.declare("tp", min_vm=1, max_vm=4)
    w.run(30)
    (claim,) = w.issued(ClaimServer)
    assert claim.server_id == oldest.server_id
    assert claim.metadata == {
        "user_id": "prof",
        "serverpool_id": "tp",
        "min_vm": "1",
        "max_vm": "4",
        "reattrib": "true",
        "poolsm_claimant": "prof",
    }
    (rename,) = w.issued(RenameServer)
    assert rename.name == f"tp-{claim.command_id}"
    assert oldest.name == rename.name
    (vm,) = w.vms("tp")
    assert vm.attribution.claimant == "prof"
    assert not w.pool("tp").pending_jobs
    w.run(60)
    assert w.counts("pool_vms") == {"ACTIVE": 2}  # it refills itself


@pytest.mark.parametrize(
    "other",
    [
        {"flavor_ref": "large"},
        {"networks": ("lan",)},
        {"key_name": "k"},
        {"image_ref": "img-2"},
        {"config_id": "c"},
        {"packages": ("git",)},
        {"config_data": SecretRef("d", 1)},
    ],
)
def test_what_differs_is_not_drawn(world, other):
    w = world(images=(image("img-1"), image("img-2", name="other")))
    w.declare("pool_vms", user_id="admin", min_vm=1, warm=True)
    w.run(60)
    w.declare("tp", min_vm=1, **other)
    w.run(60)
    assert not w.issued(ClaimServer)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_hardware_match_accepts_other_user_data_only(world):
    w = warm_world(world)
    w.declare("tp", min_vm=1, packages=("git",), warm_match="hardware")
    w.declare("tq", min_vm=1, flavor_ref="large", warm_match="hardware")
    w.run(60)
    assert len(w.issued(ClaimServer)) == 1
    assert w.vms("tp")[0].attribution is not None
    assert w.vms("tq")[0].attribution is None


def test_an_adopted_warm_vm_matches_by_what_is_known_of_it(world):
    w = world()
    key = w.declare("pool_vms", user_id="admin", min_vm=0, warm=True)
    w.cloud.add("x", key, flavor_id="small", tags={"network_uuid": "", "poolsm_log": LOG})
    w.cloud.add("y", key, flavor_id="f-1", tags={"network_uuid": "n-2"})
    w.run(20)
    w.declare("tp", min_vm=2, warm_match="hardware")
    w.run(60)
    assert len(w.issued(ClaimServer)) == 1
    assert len([c for c in w.issued(CreateServer) if c.pool[0] == "tp"]) == 1


def test_many_claimants_one_vm_each(world):
    w = warm_world(world, size=3)
    for name in ("a", "b", "c", "d"):
        w.declare(name, min_vm=1)
    w.run(4)
    claims = w.issued(ClaimServer)
    assert len(claims) == 3
    assert len({c.server_id for c in claims}) == 3
    w.run(120)
    assert all(w.counts(name) == {"ACTIVE": 1} for name in ("a", "b", "c", "d"))
    assert w.counts("pool_vms") == {"ACTIVE": 3}


def test_only_ready_vms_are_drawn(world):
    w = world()
    w.cloud.boot_s = 100
    w.declare("pool_vms", user_id="admin", min_vm=1, warm=True)
    w.run(30)
    w.declare("tp", min_vm=1)
    w.run(10)
    assert not w.issued(ClaimServer)


def test_a_vm_without_address_is_not_ready_where_there_are_networks(world):
    w = world()
    key = w.declare("pool_vms", user_id="admin", networks=("lan",), warm=True)
    server = w.cloud.add("x", key, tags={"network_uuid": "n-1"})
    w.run(20)
    w.declare("tp", min_vm=1, networks=("lan",), warm_match="hardware")
    w.run(4)
    assert not w.issued(ClaimServer)
    w2 = world()
    key = w2.declare("pool_vms", user_id="admin", networks=("lan",), warm=True)
    server = w2.cloud.add("x", key, tags={"network_uuid": "n-1"}, networks=("lan",))
    w2.run(20)
    w2.declare("tp", min_vm=1, networks=("lan",), warm_match="hardware")
    w2.run(4)
    assert [c.server_id for c in w2.issued(ClaimServer)] == [server.server_id]


@pytest.mark.parametrize("done", [True, False])
def test_a_claim_whose_answer_is_lost_is_repeated_until_observed(world, done):
    w = warm_world(world)
    w.answer(ClaimServer, TIMEOUT, done=done)
    w.declare("tp", min_vm=1)
    w.run(30)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert bool(w.pool("tp").pending_jobs) is not done
    w.run(60)
    assert len(w.issued(ClaimServer)) == (1 if done else 2)
    assert {c.server_id for c in w.issued(ClaimServer)} == {w.vms("tp")[0].server_id}
    assert "moved_by_others" not in w.anomaly_kinds()
    assert w.vms("tp")[0].name.startswith("tp-")
    assert not w.pool("tp").pending_jobs


def test_a_lost_rename_is_repeated(world):
    w = warm_world(world)
    w.answer(RenameServer, TIMEOUT)
    w.declare("tp", min_vm=1)
    w.run(120)
    assert len(w.issued(RenameServer)) == 2
    assert w.servers("tp")[0].name.startswith("tp-")


def test_a_name_that_is_refused_for_good_is_given_up(world):
    w = warm_world(world)
    w.answer(RenameServer, refusal(400, "Invalid input"), times=None)
    w.declare("tp", min_vm=1)
    w.run(600)
    assert len(w.issued(RenameServer)) == 1
    assert "rename_refused" in w.anomaly_kinds()


@pytest.mark.parametrize(
    "answer",
    [
        refusal(404, "Instance could not be found."),
        {"unmet": "expected reattrib=false, found true"},
    ],
)
def test_a_claim_that_cannot_be_is_undone_and_another_vm_taken(world, answer):
    w = warm_world(world)
    first = w.cloud.find(w.vms("pool_vms")[0].server_id)
    if answer.get("http_status") == 404:
        w.cloud.servers.pop(first.server_id)
    else:
        first.metadata = {**first.metadata, "reattrib": "true", "poolsm_claimant": "thief"}
    w.declare("tp", min_vm=1)
    w.run(120)
    assert "claim_failed" in w.anomaly_kinds()
    (vm,) = w.vms("tp")
    assert vm.server_id != first.server_id
    if first.server_id in w.cloud.servers:
        held = w.fleet.state.vms[w.fleet.state.by_server[first.server_id]]
        assert held.pool[0] == "pool_vms"
        assert held.attribution.claimant == "thief"


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_a_vm_that_fails_while_it_is_handed_out_is_replaced_not_claimed_for_ever(
    world, asked, released
):
    """Nova changes no metadata of a server in ERROR: seen on the lab, every minute, for ever."""
    w = warm_world(world)
    refused = "Cannot 'update metadata' instance 1 while it is in vm_state error."
    w.answer(ClaimServer, refusal(409, refused), times=None)
    w.declare("tp", min_vm=0 if asked else 1)
    request = w.ask("r", "tp") if asked else None
    w.run_until(lambda: bool(w.issued(ClaimServer)), limit_s=20)
    failed = w.cloud.find(w.issued(ClaimServer)[0].server_id)
    failed.status = "ERROR"
    w.run(3)
    w.behave()
    if released and asked:
        w.release("r")
    w.run(240)
    claims = [c for c in w.issued(ClaimServer) if c.server_id == failed.server_id]
    assert len(claims) <= 2
    assert failed.server_id not in w.cloud.servers
    assert w.counts("pool_vms") == {"ACTIVE": 2}
    if request is not None and not released:
        assert request.state == "granted"
        assert request.server_id != failed.server_id
    assert not w.fleet.state.ops
    assert not any(pool.tagging for pool in w.fleet.state.pools.values())


def test_no_scale_down_and_no_off_days(world):
    w = world()
    key = w.declare("pool_vms", user_id="admin", min_vm=1, max_vm=2, warm=True)
    for n in range(3):
        w.cloud.add(f"x{n}", key)
    w.run(120)
    assert not w.issued(DeleteServer)
    spec = w.pool("pool_vms").spec
    assert check_spec(evolve(spec, off_days=("monday",)))
    assert not check_spec(spec)
    assert isinstance(spec, PoolSpec)


def test_stale_warm_vms_are_replaced_one_at_a_time(world):
    w = warm_world(world, size=3)
    w.images["vm"] = (image("img-2"),)
    w.list_images()
    while len(w.issued(DeleteServer)) < 3:
        before = len(w.issued(DeleteServer))
        w.run_until(lambda n=before: len(w.issued(DeleteServer)) > n, limit_s=200)
        assert w.pool("pool_vms").capacity == 2
        assert len(w.issued(CreateServer)) == 3 + before
    w.run(120)
    assert [vm.image_id for vm in w.vms("pool_vms")] == ["img-2"] * 3
    assert len(w.issued(DeleteServer)) == 3


def test_a_stale_vm_is_neither_drawn_nor_replaced_while_somebodys(world):
    w = warm_world(world, size=1)
    w.ask("r", "pool_vms")
    w.run(60)
    w.images["vm"] = (image("img-2"),)
    w.list_images()
    w.run(200)
    assert w.fleet.state.assignments["r"].server_id not in {
        c.server_id for c in w.issued(DeleteServer)
    }


def test_refresh_waits_while_the_new_image_does_not_build(world):
    w = warm_world(world, size=3)
    w.images["vm"] = (image("img-2"),)
    w.cloud.boot = "No valid host was found."
    w.list_images()
    w.run(1200)
    stale = [c for c in w.issued(DeleteServer) if c.reason.rule == "R4 refresh"]
    assert len(stale) == 1
    assert w.pool("pool_vms").count("ACTIVE") == 2


def test_refresh_waits_for_a_quota_pause_and_no_longer(world):
    w = warm_world(world, size=2)
    w.cloud.quota = 2
    w.declare("tp", min_vm=1, max_vm=1, warm_match="hardware", key_name="other")
    w.run_until(lambda: w.fleet.state.quotas)
    w.declare("tp", min_vm=0, max_vm=1, warm_match="hardware", key_name="other")
    (pause,) = w.fleet.state.quotas.values()
    w.images["vm"] = (image("img-2"),)
    w.list_images()
    w.run_until(lambda: any(c.reason.rule == "R4 refresh" for c in w.issued(DeleteServer)))
    assert pause.until_ms <= w.now_ms <= pause.until_ms + 15_000
    w = warm_world(world, size=1)
    w.cloud.boot = "No valid host was found."
    w.declare("tp", min_vm=2, warm_match="hardware", flavor_ref="large")
    w.run_until(lambda: w.pool("tp").failures >= 3)
    failures = w.pool("tp").failures
    key = w.pool("pool_vms").key
    w.cloud.add("x", key, flavor_id="f-2", tags={"network_uuid": "", "poolsm_log": LOG})
    w.run_until(lambda: w.issued(ClaimServer))
    w.run(12)
    assert w.pool("tp").count("ACTIVE") == 1
    assert w.pool("tp").failures >= failures


def test_transfers_pass_the_open_breaker_and_the_quota(world):
    w = world()
    w.cloud.quota = 0
    w.declare("tp", min_vm=1, warm_match="hardware")
    w.run(60)
    assert w.reason("tp") == "QuotaExceeded"
    key = w.declare("pool_vms", user_id="admin", warm=True)
    w.cloud.add("x", key, tags={"network_uuid": "", "poolsm_log": LOG})
    w.run(30)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert w.fleet.state.quotas  # and a transfer proves nothing about it


def test_a_warm_pool_is_found_by_its_flag_not_its_name(world):
    w = world()
    w.declare("pool_vms", user_id="admin", min_vm=1)
    w.declare("ready", user_id="ops", min_vm=1, warm=True)
    w.run(60)
    w.declare("tp", min_vm=1)
    w.run(30)
    (claim,) = w.issued(ClaimServer)
    assert claim.expect.pool == ("ready", "ops")


def test_nothing_is_drawn_from_a_warm_pool_that_others_meddle_with(world):
    w = warm_world(world)
    w.servers("pool_vms")[0].blank = True
    w.run(10)
    w.declare("tp", min_vm=1)
    w.run(60)
    assert not w.issued(ClaimServer)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_refresh_waits_after_failures_though_the_pool_is_whole(world):
    w = warm_world(world, size=3)
    w.images["vm"] = (image("img-2"),)
    w.cloud.boot = "No valid host was found."
    w.list_images()
    w.run_until(lambda: w.pool("pool_vms").failures > 0)
    w.cloud.add("late", w.pool("pool_vms").key, tags={"poolsm_log": LOG}, image_id="img-1")
    w.run(1200)
    assert w.pool("pool_vms").capacity == 3
    assert len([c for c in w.issued(DeleteServer) if c.reason.rule == "R4 refresh"]) == 1
