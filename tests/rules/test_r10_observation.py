"""R10: only a complete, fresh listing that began late enough is a fact."""

from __future__ import annotations

from attrs import evolve

from poolsm.commands import CreateServer, DeleteServer, FindServer, StopServer
from poolsm.events import ClockStepped
from tests.rules.ingredients import confirm_loss


def fleet_of(world, count, **more):
    w = world(**more)
    w.declare("tp", min_vm=count)
    w.run(90)
    assert w.counts("tp") == {"ACTIVE": count}
    return w


def test_a_listing_older_than_the_last_answer_says_nothing_of_that_server(world):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(60)
    began_ms = w.now_ms
    stale = w.servers("tp")[0].record()
    w.change("tp", off_days=("monday",))
    w.run(30)
    assert w.counts("tp") == {"SHUTOFF": 1}
    w.listing(began_ms, stale)
    assert w.counts("tp") == {"SHUTOFF": 1}


def test_nothing_is_decided_on_a_listing_older_than_the_limit(world):
    w = fleet_of(world, 1, listing_age_limit_s=30)
    w.listings = "failing"
    w.run(31)
    w.change("tp", min_vm=5, off_days=("monday",))
    w.run(300)
    assert len(w.issued(CreateServer)) == 1
    assert not w.issued(StopServer)
    w.listings = "complete"
    w.run(90)
    assert w.pool("tp").owned == 5


def test_five_and_more_than_half_lost_at_once_stop_everything(world):
    w = fleet_of(world, 9)
    for server in w.servers("tp")[:5]:
        server.unlisted = True
    w.run(30)
    assert w.reason("tp") == "FleetLost"
    assert "fleet_lost" in w.anomaly_kinds()
    w.change("tp", max_vm=3, min_vm=1)
    w.run(30)
    assert not w.issued(DeleteServer)


def test_half_or_four_are_no_suspicion(world):
    for count, lost in ((10, 5), (6, 4)):
        w = fleet_of(world, count)
        for server in w.servers("tp")[:lost]:
            w.cloud.servers.pop(server.server_id)
        w.run(12)
        assert w.fleet.state.loss is None
        w.run(200)
        assert w.counts("tp") == {"ACTIVE": count}


def test_a_real_loss_is_believed_after_two_404_a_minute_apart_beside_a_witness(world):
    w = fleet_of(world, 9)
    for server in w.servers("tp")[:6]:
        w.cloud.servers.pop(server.server_id)
    w.run(55)
    assert w.fleet.state.loss is not None
    assert len(w.issued(CreateServer)) == 9
    w.run(200)
    assert w.fleet.state.loss is None
    assert w.counts("tp") == {"ACTIVE": 9}
    assert all(n in (1, 2) for n in lookups(w).values())


def lookups(w):
    found = {}
    for command in w.issued(FindServer):
        found[command.server_id] = found.get(command.server_id, 0) + 1
    return found


def test_without_a_witness_only_an_operator_confirms(world):
    w = fleet_of(world, 6)
    w.cloud.servers.clear()
    w.run(3600)
    assert len(w.issued(CreateServer)) == 6
    confirm_loss(w)
    w.run(90)
    assert w.counts("tp") == {"ACTIVE": 6}


def test_lost_servers_that_return_end_the_suspicion(world):
    w = fleet_of(world, 9)
    for server in w.servers("tp")[:6]:
        server.unlisted = True
    w.run(20)
    assert w.fleet.state.loss is not None
    w.behave()
    w.run(20)
    assert w.fleet.state.loss is None
    assert w.counts("tp") == {"ACTIVE": 9}
    assert len(w.issued(CreateServer)) == 9


def test_after_a_clock_step_destruction_waits_for_two_fresh_listings(world):
    w = fleet_of(world, 2)
    w.listings = "paused"
    w.change("tp", min_vm=1, max_vm=1)
    w.feed(ClockStepped(at_ms=w.now_ms + 3_600_000, by_ms=3_600_000))
    w.now_ms += 3_600_000
    w._agenda = [(at_ms + 3_600_000, n, action) for at_ms, n, action in w._agenda]
    w.run(10)
    assert not w.issued(DeleteServer)
    w.listings = "complete"
    w.run(7)
    assert not w.issued(DeleteServer)
    w.run(20)
    assert len(w.issued(DeleteServer)) == 1


def test_deadlines_move_along_with_a_step(world):
    w = world()
    w.cloud.boot = "hang"
    w.declare("tp", min_vm=1, boot_timeout_s=100)
    w.run(50)
    w.step_clock(86_400)
    w.run(40)
    assert w.counts("tp") == {"BUILD": 1}
    w.run(30)
    assert w.pool("tp").failures == 1


def test_a_record_that_cannot_be_read_stops_creation_until_it_can(world):
    w = fleet_of(world, 1)
    ours = w.cloud.add("x", ("tp", "prof"))
    ours.blank = True
    w.crash()
    w.run(20)
    w.change("tp", min_vm=3)
    w.run(60)
    assert len(w.issued(CreateServer)) <= 3
    assert evolve(ours.record()).metadata is None


def test_a_listing_begun_before_an_answer_proves_neither_absence_nor_status(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(8)
    w.listings = "paused"
    w.run(8)
    (vm,) = w.vms("tp")
    assert vm.server_id
    w.listing(vm.last_answer_ms)  # without it: it was made a moment later
    assert vm.absences == 0
    server = w.cloud.find(vm.server_id)
    w.listing(vm.last_answer_ms, evolve(server.record(), status="ERROR"))
    assert vm.state == "pending"
    w.listing(vm.last_answer_ms + 1, evolve(server.record(), status="SHUTOFF"))
    assert vm.state == "SHUTOFF"
    w.listing(vm.last_answer_ms + 2)
    assert vm.absences == 1


def test_of_a_lost_fleet_each_is_looked_up_twice_a_minute_apart(world):
    w = fleet_of(world, 9)
    lost = {server.server_id for server in w.servers("tp")[:6]}
    for server_id in lost:
        w.cloud.servers.pop(server_id)
    w.run_until(lambda: w.fleet.state.loss is not None)
    w.run_until(lambda: w.fleet.state.loss is None)
    asked = {key: [] for key in lost}
    for at_ms, command in w.commands:
        if isinstance(command, FindServer) and command.server_id in lost:
            asked[command.server_id].append(at_ms)
    for times in asked.values():
        first, second = times
        assert second - first >= 60_000


def test_with_no_other_to_compare_with_one_404_is_no_proof(world):
    w = fleet_of(world, 1)
    w.cloud.servers.clear()
    w.run(45)
    assert len(w.issued(FindServer)) == 1
    assert w.counts("tp")["missing"] == 1
    w.run(60)
    assert len(w.issued(FindServer)) == 2
    assert "missing" not in w.counts("tp")


def test_what_only_lookups_show_is_not_missing_and_not_replaced(world):
    w = fleet_of(world, 8)
    for server in w.servers("tp")[:4]:
        server.unlisted = True
    w.run(600)
    assert w.counts("tp") == {"ACTIVE": 8}
    assert len(w.issued(CreateServer)) == 8
    assert all(n <= 12 for n in lookups(w).values())  # once a minute, not at each listing
    assert len(w.fleet.state.vouched) == 4
    assert "unlisted" in w.anomaly_kinds()
    w.behave()
    w.run(20)
    assert not w.fleet.state.vouched


def test_half_a_fleet_that_only_lookups_show_stops_everything_until_it_is_listed(world):
    w = fleet_of(world, 9)
    for server in w.servers("tp")[:6]:
        server.unlisted = True
    w.run(600)
    assert w.reason("tp") == "FleetLost"
    w.change("tp", min_vm=10, max_vm=12)
    w.run(60)
    assert len(w.issued(CreateServer)) == 9
    w.behave()
    w.run(60)
    assert w.fleet.state.loss is None
    assert w.counts("tp") == {"ACTIVE": 10}


def test_a_listing_from_before_a_lookup_does_not_end_the_wait_for_one_after_it(world):
    w = fleet_of(world, 9)
    for server in w.servers("tp")[:6]:
        server.unlisted = True
    w.run_until(lambda: len(w.fleet.state.vouched) == 6)
    w.behave()
    began_ms = min(vm.last_answer_ms for vm in w.vms("tp") if vm.key in w.fleet.state.vouched)
    w.listing(began_ms, *w.cloud.listed())
    assert w.fleet.state.loss is not None
    w.run(20)
    assert w.fleet.state.loss is None
