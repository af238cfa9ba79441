"""R6: failures end, back off, open the breaker; quota and Retry-After are no failures."""

from __future__ import annotations

from collections import Counter

import pytest

from poolsm.commands import ClaimServer, CreateServer, DeleteServer
from poolsm.conditions import fleet_conditions
from poolsm.failure import pause_ms
from tests.rules.ingredients import gaps_s, reset
from tests.unit.world import refusal


def test_five_failures_open_the_breaker_and_one_probe_at_a_time_follows(world):
    w = world(breaker_pause_s=120)
    w.cloud.boot = "No valid host was found. "
    w.cloud.boot_s = 1
    w.declare("tp", min_vm=1)
    w.run_until(lambda: w.pool("tp").breaker == "open")
    assert w.pool("tp").failures == 5
    assert len(w.issued(CreateServer)) == 5
    opened_ms = w.now_ms
    w.run(60)
    assert w.reason("tp") == "BreakerOpen"
    w.run_until(lambda: len(w.issued(CreateServer)) == 6)
    assert 120 <= (w.now_ms - opened_ms) / 1000 <= 120 * 1.25 + 2
    w.run_until(lambda: w.pool("tp").breaker == "open")
    w.cloud.boot = "ACTIVE"
    w.run(300)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert (w.pool("tp").breaker, w.pool("tp").failures) == ("closed", 0)


def test_pauses_double_to_their_limit_with_jitter(world):
    w = world(backoff_first_s=5, backoff_limit_s=40, breaker_failures=99)
    w.cloud.boot, w.cloud.boot_s = "no room", 0.1
    w.declare("tp", min_vm=1)
    w.run(600)
    gaps = gaps_s(w, CreateServer)
    for gap, base in zip(gaps, (5, 10, 20, 40, 40, 40), strict=False):
        assert base <= gap <= base * 1.25 + 12  # until the listing, and the next tick


def test_a_half_open_breaker_lets_one_of_many_through(world):
    w = world(breaker_failures=3)
    w.cloud.boot, w.cloud.boot_s = "no room", 1
    w.declare("tp", min_vm=4)
    w.run_until(lambda: w.pool("tp").breaker == "open")
    begun = len(w.issued(CreateServer))
    w.cloud.boot_s = 30
    w.run_until(lambda: w.pool("tp").breaker == "half_open")
    w.run(20)
    assert len(w.issued(CreateServer)) == begun + 1


def test_an_operator_resets_a_breaker(world):
    w = world()
    w.cloud.boot, w.cloud.boot_s = "no room", 1
    w.declare("tp", min_vm=1)
    w.run_until(lambda: w.pool("tp").breaker == "open")
    w.cloud.boot = "ACTIVE"
    reset(w, "tp")
    w.run(40)
    assert w.counts("tp") == {"ACTIVE": 1}


def test_remains_are_deleted_and_the_fault_is_kept(world):
    w = world()
    w.cloud.boot, w.cloud.boot_s = "no space left", 1
    w.declare("tp", min_vm=1, max_vm=1)
    w.run(30)
    assert w.issued(DeleteServer)[0].reason.rule == "R6 failure"
    assert w.issued(DeleteServer)[0].reason.text == "ERROR: no space left"
    assert "no space left" in w.pool("tp").conditions["LastFailure"].message


def test_a_quota_fault_of_an_error_server_is_a_quota(world):
    w = world()
    w.cloud.boot, w.cloud.boot_s = "Quota exceeded for resources: ['port']", 1
    w.declare("tp", min_vm=1)
    w.run(30)
    assert w.pool("tp").failures == 0
    assert w.reason("tp") == "QuotaExceeded"


def test_a_quota_pauses_its_flavor_alone_with_one_probe_for_two_pools(world):
    w = world()
    w.answer(CreateServer, refusal(403, "Quota exceeded for cores"), times=40)
    w.declare("one", min_vm=2, flavor_ref="large")
    w.declare("two", min_vm=2, flavor_ref="large")
    w.run(8)
    begun = len(w.issued(CreateServer))
    w.run(300)
    probes = gaps_s(w, CreateServer)[begun:]
    assert probes
    assert min(probes) > 5


def test_servers_from_before_a_quota_do_not_lift_it_when_they_come_up(world):
    w = world(backoff_first_s=60)
    w.cloud.quota = 2
    w.cloud.boot_s = 8
    w.declare("tp", min_vm=4)
    w.run_until(lambda: w.pool("tp").count("ACTIVE") == 2)
    asked = len(w.issued(CreateServer))
    w.run(30)
    assert w.reason("tp") == "QuotaExceeded"
    assert len(w.issued(CreateServer)) == asked == 4
    w.cloud.quota = None
    w.run(180)
    assert w.counts("tp") == {"ACTIVE": 4}
    assert not w.fleet.state.quotas


def quota_condition(w):
    (found,) = [c for c in fleet_conditions(w.fleet.state) if c.type == "QuotaExceeded"]
    return found.status


def test_a_quota_that_holds_nobody_up_any_more_is_no_condition(world):
    w = world()
    w.cloud.quota = 2
    w.declare("tp", min_vm=3)
    w.run(60)
    assert quota_condition(w) == "True"
    w.declare("tp", min_vm=2)
    w.run(300)
    assert quota_condition(w) == "False"
    w.declare("tp", min_vm=6)
    asked = len(w.issued(CreateServer))
    w.run(4)
    assert len(w.issued(CreateServer)) == asked + 1  # still a probe, not three


@pytest.mark.parametrize("status", [429, 413])
def test_retry_after_is_honoured_and_is_no_failure(world, status):
    w = world()
    w.answer(CreateServer, refusal(status, "slow down", retry_after_s=77))
    w.declare("tp", min_vm=1)
    w.run(300)
    first, second = w.times(CreateServer)
    assert 77 <= (second - first) / 1000 <= 77 * 1.25 + 4
    assert w.pool("tp").failures == 0


def test_neither_breaker_nor_quota_holds_up_a_transfer(world):
    w = world()
    w.declare("pool_vms", user_id="admin", min_vm=2, warm=True)
    w.run(60)
    w.cloud.quota = 0
    w.declare("tp", min_vm=3)
    w.run(120)
    assert len(w.issued(ClaimServer)) >= 2
    assert w.reason("tp") == "QuotaExceeded"
    assert w.counts("tp") == {"ACTIVE": 2}


def test_the_projects_limit_is_shared_by_rotation(world):
    w = world(creations_limit=6)
    w.cloud.boot_s = 60
    for name in ("a", "b", "c"):
        w.declare(name, min_vm=9)
    w.run(50)
    assert len(w.fleet.state.creations) == 3  # a share each: 6 // (3 + 1), one left over
    assert {len(w.pool(name).booting) for name in ("a", "b", "c")} == {1}
    w.run(3600)
    assert [w.counts(name) for name in ("a", "b", "c")] == [{"ACTIVE": 9}] * 3


def test_the_jitter_is_a_quarter_at_most_and_of_the_command(world):
    state = world().fleet.state
    pauses = [pause_ms(state, 1, str(n)) for n in range(200)]
    assert 5_000 <= min(pauses) < 5_200
    assert 6_050 < max(pauses) <= 6_250
    assert pauses == [pause_ms(state, 1, str(n)) for n in range(200)]
    assert pause_ms(state, 60, "x") <= 150_000


def test_one_slot_goes_round(world):
    w = world(creations_limit=1)
    w.cloud.boot_s = 10
    for name in ("a", "b", "c"):
        w.declare(name, min_vm=4)
    w.run_until(lambda: len(w.issued(CreateServer)) == 6)
    assert Counter(c.pool[0] for c in w.issued(CreateServer)) == {"a": 2, "b": 2, "c": 2}
