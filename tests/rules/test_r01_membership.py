"""R1: a VM is in a pool if and only if both tags say so; blank records keep their place."""

from __future__ import annotations

from poolsm.commands import CreateServer, DeleteServer
from tests.rules.ingredients import acknowledge, image


def test_both_tags_make_a_member(world):
    w = world()
    key = w.declare("tp", min_vm=1)
    mine = w.cloud.add("x", key)
    w.cloud.add("other user", ("tp", "someone"))
    w.cloud.add("other pool", ("tp2", "prof"))
    w.cloud.add("no tags", None)
    w.run(60)
    assert [vm.server_id for vm in w.vms("tp")] == [mine.server_id]
    assert not w.issued(CreateServer)


def test_flavor_and_image_are_no_criterion(world):
    w = world()
    key = w.declare("tp", min_vm=1)
    w.cloud.add("x", key, image_id="an older build", flavor_id="f-2")
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert not w.commands


def test_the_image_may_be_rebuilt_every_minute(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=3)
    w.run(60)
    for n in range(2, 6):
        w.images["vm"] = (image(f"img-{n}"),)
        w.list_images()
        w.run(60)
    assert len(w.issued(CreateServer)) == 2
    assert not w.issued(DeleteServer)


def test_a_record_without_metadata_keeps_its_place_and_holds_the_pool(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    w.servers("tp")[0].blank = True
    w.run(10)
    assert w.counts("tp") == {"UNKNOWN": 1, "ACTIVE": 1}
    assert w.pool("tp").capacity == 2
    w.change("tp", min_vm=4)
    w.run(60)
    assert len(w.issued(CreateServer)) == 2
    assert w.reason("tp") == "NoMetadata"
    w.servers("tp")[0].blank = False
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 4}


def test_a_blank_record_holds_deletes_but_only_of_its_pool(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.declare("tq", min_vm=2)
    w.run(60)
    w.servers("tp")[0].blank = True
    w.run(10)
    w.change("tp", min_vm=0, max_vm=1)
    w.change("tq", min_vm=0, max_vm=1)
    w.run(60)
    assert w.pool("tp").owned == 2
    assert w.pool("tq").owned == 1
    w.servers("tp")[0].blank = False
    w.run(60)
    assert w.pool("tp").owned == 1


def test_a_blank_record_does_not_hold_the_schedule(world):
    w = world()
    w.declare("tp", min_vm=2)
    w.run(60)
    w.servers("tp")[0].blank = True
    w.run(10)
    w.change("tp", off_days=("monday",))
    w.run(30)
    assert w.counts("tp") == {"UNKNOWN": 1, "SHUTOFF": 1}


def test_a_strangers_blank_record_holds_nothing_and_is_stored_once(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.cloud.add("who knows", None, blank=True)
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}
    w.run(1200)
    position = w.fleet.position
    w.run(600)
    assert w.fleet.position == position


def test_a_stray_that_was_retagged_for_a_declared_pool_is_only_there(world):
    w = world()
    stray = w.cloud.add("x", ("later", "prof"))
    w.declare("tp", min_vm=1)
    w.run(60)
    stray.metadata["serverpool_id"] = "tp"
    w.run(20)
    w.declare("later")
    w.run(20)
    assert stray.server_id in {vm.server_id for vm in w.vms("tp")}
    assert not w.vms("later")
    assert w.pool("later").owned == 0


def test_a_server_that_is_shown_blank_before_its_create_is_answered_is_not_unreadable(world):
    w = world()
    w.call_takes_s = 20
    w.declare("tp", min_vm=1)
    w.run_until(lambda: bool(w.cloud.servers), limit_s=60)
    (server,) = w.cloud.servers.values()
    server.blank = True
    w.run_until(lambda: bool(w.fleet.state.unreadable), limit_s=20)
    w.run(40)
    server.blank = False
    w.run(20)
    assert not w.fleet.state.unreadable
    assert w.counts("tp") == {"ACTIVE": 1}


def test_a_stray_that_goes_blank_and_comes_back_does_not_fill_the_log(world):
    w = world()
    stray = w.cloud.add("x", ("later", "prof"))
    w.run(60)
    for blank in (True, False):
        stray.blank = blank
        w.run(20)
        position = w.fleet.position
        w.run(600)
        assert w.fleet.position == position
    key = w.declare("later")
    assert key == ("later", "prof")
    assert [vm.server_id for vm in w.vms("later")] == [stray.server_id]


def test_empty_tags_are_no_tags(world):
    w = world()
    w.cloud.add("x", None, tags={"serverpool_id": "", "user_id": ""})
    w.run(60)
    position = w.fleet.position
    w.run(600)
    assert w.fleet.position == position
    assert not w.fleet.state.strays


def test_retagged_to_nowhere_is_disputed_counts_and_holds_the_pool(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=4)
    w.run(60)
    server = w.servers("tp")[0]
    server.metadata = {**server.metadata, "serverpool_id": "elsewhere"}
    w.run(30)
    assert w.pool("tp").owned == 2
    assert "disputed" in w.anomaly_kinds()
    w.change("tp", min_vm=3)
    w.run(60)
    assert w.reason("tp") == "Disputed"
    assert len(w.issued(CreateServer)) == 2
    server.metadata = {**server.metadata, "serverpool_id": "tp"}
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 3}


def test_blanked_metadata_is_a_dispute_and_never_touched(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    server = w.servers("tp")[0]
    server.metadata = {}
    w.run(10)
    count = len(w.commands)
    w.change("tp", min_vm=0, max_vm=1, off_days=("monday",))
    w.run(60)
    touched = {c.server_id for _, c in w.commands[count:]}
    assert server.server_id not in touched
    assert w.pool("tp").owned == 2
    acknowledge(w, "tp")
    assert w.pool("tp").owned == 1
    w.run(60)
    assert w.pool("tp").owned == 1
    assert server.server_id in w.cloud.servers


def test_retagged_to_a_declared_pool_belongs_there(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.declare("tq", min_vm=0)
    w.run(60)
    server = w.servers("tp")[0]
    server.metadata = {**server.metadata, "serverpool_id": "tq"}
    w.run(60)
    assert "moved_by_others" in w.anomaly_kinds()
    assert [vm.server_id for vm in w.vms("tq")] == [server.server_id]
    assert w.counts("tp") == {"ACTIVE": 1}


def test_a_request_whose_vm_is_moved_by_others_gets_another(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.declare("tq")
    w.run(60)
    request = w.ask("r1", "tp")
    w.run(3.9)
    assert request.state == "claiming"
    server = w.servers("tp")[0]
    server.metadata = {**server.metadata, "serverpool_id": "tq"}
    w.run(120)
    assert request.state == "granted"
    assert request.server_id != server.server_id


def test_a_boot_is_watched_by_the_pool_that_others_tagged_it_into(world):
    w = world()
    w.cloud.boot = "hang"
    w.declare("tp", min_vm=1, boot_timeout_s=100)
    w.declare("other", min_vm=0, boot_timeout_s=60)
    w.run(20)
    server = w.servers("tp")[0]
    w.cloud.boot = "ACTIVE"
    server.metadata["serverpool_id"] = "other"
    w.run(40)
    assert w.counts("other") == {"BUILD": 1}
    w.run(60)
    assert not w.servers("other")
    assert w.counts("tp") == {"ACTIVE": 1}


def test_a_deletion_is_repeated_by_the_pool_that_others_tagged_the_vm_into(world):
    w = world()
    w.cloud.boot, w.cloud.deaf = "hang", True
    w.declare("tp", min_vm=1, boot_timeout_s=60)
    w.declare("other", min_vm=0)
    w.run_until(lambda: bool(w.issued(DeleteServer)), limit_s=120)
    server = w.cloud.servers[w.issued(DeleteServer)[0].server_id]
    server.metadata["serverpool_id"] = "other"
    w.run(30)
    w.cloud.boot, w.cloud.deaf = "ACTIVE", False
    assert w.counts("other") == {"deleting": 1}
    w.run(240)
    assert server.server_id not in w.cloud.servers
    assert not w.vms("other")
