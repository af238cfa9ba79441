"""Views: what the fold knows, told truly, in wall-clock time, without a hold on the fold."""

from __future__ import annotations

import attrs
import pytest
from scripted import BEGIN_MS, KEY, LOG_ID, Script, school_day

from poolsm import PoolKey, codec
from poolsm.calendar import ZoneRules
from poolsm.commands import CreateServer
from poolsm.conditions import concerns
from poolsm.events import ClockStepped, ZoneRulesLoaded
from poolsm.records import ImageRecord, ServerRecord
from poolsm.views import (
    assignment_view,
    fleet_view,
    pool_view,
    vm_view,
    vm_views,
)


def kinds(view):
    return {condition.type: condition for condition in concerns(view.conditions)}


@pytest.fixture
def script():
    script = Script().open()
    script.declare()
    return script


def test_before_the_first_listing_everything_waits_for_it(script):
    view = fleet_view(script.fleet.state)
    assert view.listing_age_ms is None
    assert kinds(view)["Adopting"].since_ms == BEGIN_MS
    (pool,) = view.pools
    assert (pool.reason, pool.capacity, pool.min_vm) == ("Adopting", 0, 2)


def test_a_pool_on_its_way(script):
    script.list()
    script.tick()
    pool = pool_view(script.fleet.state, KEY)
    assert (pool.owned, pool.capacity, pool.ready, pool.pending_jobs) == (2, 2, 0, 2)
    assert pool.by_state == {"pending": 2}
    assert pool.in_flight == 2
    assert pool.reason == "Provisioning"
    assert (pool.image_id, pool.image_ambiguous) == ("i-1", "")
    view = fleet_view(script.fleet.state)
    assert view.creations == 2
    assert [op.kind for op in view.in_flight] == ["CreateServer"] * 2
    assert view.in_flight[0].planned_ms == script.now_ms
    assert view.in_flight[0].dispatched_ms is None


def test_a_pool_at_rest_and_its_vms(script):
    script.round()
    state = script.fleet.state
    pool = pool_view(state, KEY)
    assert (pool.reason, pool.ready, pool.attributed) == ("Satisfied", 2, 0)
    assert pool.origin == "file pools.toml"
    vms = vm_views(state)
    assert [vm.server_id for vm in vms] == ["s-1", "s-2"]
    assert all(vm.ready and vm.addresses == ("net:10.0.0.1",) for vm in vms)
    assert vms[0].created_ms == BEGIN_MS + 1000
    assert vms[0].age_ms == script.now_ms - vms[0].created_ms
    assert vm_views(state, PoolKey("no", "pool")) == ()
    assert pool_view(state, PoolKey("no", "pool")) is None
    assert vm_view(state, "no-vm") is None


def test_an_assignment_and_its_vm(script):
    script.round()
    script.ask()
    waiting = assignment_view(script.fleet.state, "req-1")
    assert (waiting.state, waiting.deadline_ms) == ("waiting", script.now_ms + 600_000)
    assert pool_view(script.fleet.state, KEY).requests_waiting == 1
    script.tick()
    script.run()
    script.list()
    granted = assignment_view(script.fleet.state, "req-1")
    assert (granted.state, granted.server_id) == ("granted", "s-1")
    assert granted.addresses == ("net:10.0.0.1",)
    vm = vm_view(script.fleet.state, "req-1")
    assert vm == vm_view(script.fleet.state, "s-1")
    assert (vm.attributed, vm.claimant, vm.attributed_by) == (True, "alice", "assignment")
    assert not vm.ready


def test_times_are_wall_clock_after_a_clock_step(script):
    script.round()
    before = vm_view(script.fleet.state, "s-1")
    script.now_ms += 3_600_000
    script.put(ClockStepped, by_ms=3_600_000)
    view = fleet_view(script.fleet.state)
    assert view.now_ms == script.now_ms
    assert kinds(view)["ClockGuard"].reason == "ClockStepped"
    after = vm_view(script.fleet.state, "s-1")
    assert after.since_ms == before.since_ms + 3_600_000


def test_a_stale_listing_says_how_old_it_is_and_why(script):
    script.list()
    script.fail_listing("503 down for maintenance")
    assert kinds(fleet_view(script.fleet.state))["ListingFailed"].message.startswith("503")
    for _ in range(20):
        script.tick()
    view = fleet_view(script.fleet.state)
    stale = kinds(view)["ListingStale"]
    assert "41 s old, the limit is 30 s; last error: 503 down" in stale.message
    assert view.listing_age_ms == 41_500


def test_a_pool_short_behind_a_stale_listing_says_so(script):
    script.list()
    for _ in range(20):
        script.now_ms += 2000
    script.fail_listing("timeout")
    assert pool_view(script.fleet.state, KEY).reason == "ListingStale"


def test_a_quota_is_told_per_flavor(script):
    script.list()
    script.tick()
    for command in script.dispatch():
        assert isinstance(command, CreateServer)
        script.answer(command, 403, "Quota exceeded for cores: Requested 2, but already used 20")
    script.list()
    script.tick()
    view = fleet_view(script.fleet.state)
    quota = kinds(view)["QuotaExceeded"]
    assert quota.reason == "QuotaReached"
    assert "flavor small: 403 Quota exceeded for cores" in quota.message
    pool = pool_view(script.fleet.state, KEY)
    assert (pool.capacity, pool.reason) == (0, "QuotaExceeded")


def test_creation_paused_by_the_cloud(script):
    script.list()
    script.tick()
    for command in script.dispatch():
        script.answer(command, 429, "slow down", retry_after_s=50)
    paused = kinds(fleet_view(script.fleet.state))["CreationPaused"]
    assert paused.reason == "RetryAfter"
    assert "429 slow down" in paused.message


def test_a_lost_fleet_is_suspected(script):
    script.declare(min_vm=6, max_vm=8)
    script.round()
    script.servers.clear()
    script.list()
    view = fleet_view(script.fleet.state)
    assert concerns(view.conditions)[0].type == "LossSuspected"
    assert concerns(view.conditions)[0].message.startswith("6 servers")
    assert kinds(view.pools[0])["Suspended"].reason == "FleetLost"
    assert vm_view(script.fleet.state, "s-1").absences == 1


def test_strays_and_unreadable_records(script):
    tags = {"serverpool_id": "other", "user_id": "prof", "poolsm_log": LOG_ID}
    script.servers["x-1"] = ServerRecord("x-1", "ACTIVE", name="old", metadata=tags)
    script.servers["x-2"] = ServerRecord("x-2", "UNKNOWN")
    script.list()
    view = fleet_view(script.fleet.state)
    stray, unreadable = view.strays
    assert (stray.pool, stray.ours, stray.name) == (PoolKey("other", "prof"), True, "old")
    assert (unreadable.pool, unreadable.status) == (None, "UNKNOWN")
    assert "x-2" in kinds(view)["UnreadableRecords"].message


def test_a_failed_vm_says_why_it_goes(script):
    script.list()
    script.tick()
    script.run()
    script.change("s-1", status="ERROR", fault="No valid host was found")
    script.list()
    script.tick()
    vm = vm_view(script.fleet.state, "s-1")
    assert vm.condemned == "ERROR: No valid host was found"
    assert vm.fault == "No valid host was found"
    assert vm.leaving
    assert vm.op.kind == "DeleteServer"
    pool = pool_view(script.fleet.state, KEY)
    assert pool.failures == 1
    assert pool.backoff_until_ms > script.now_ms - 10_000
    assert kinds(pool)["LastFailure"].reason == "CreationFailed"


def test_an_ambiguous_image_is_told_while_it_is(script):
    script.list()
    script.tick()
    state = script.fleet.state
    second = ImageRecord("i-2", "ubuntu", "active", "private", "p-vm", "2026-01-02T00:00:00Z")
    state.images["vm"]["i-2"] = second
    pool = pool_view(state, KEY)
    assert pool.image_id == "i-2"
    assert "i-1" in pool.image_ambiguous


def test_the_off_day(script):
    script.declare(off_days=("monday",), time_zone="Europe/Paris")
    assert pool_view(script.fleet.state, KEY).off_day is None
    assert "Europe/Paris" in kinds(pool_view(script.fleet.state, KEY))["DayUnknown"].message
    rules = ZoneRules("Europe/Paris", "2025b", ((0, 3600),))
    script.put(ZoneRulesLoaded, zone=rules.zone, tzdata_version="2025b", offsets=rules.offsets)
    assert pool_view(script.fleet.state, KEY).off_day is True


def test_views_are_values_and_encode_as_json():
    script = school_day()
    view = fleet_view(script.fleet.state)
    data = codec.encode(view)
    script.list()
    script.tick()
    assert codec.encode(view) == data
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        view.position = 1
    assert codec.decode(data, type(view)) == view
