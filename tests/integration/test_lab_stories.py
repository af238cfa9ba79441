"""What an operator is promised, on a real OpenStack; counted from the cloud's side."""

import datetime as dt
import time

import pytest

from poolsm.images import NOT_FOUND
from poolsm.replay import replay
from poolsm_runners.control_requests import Assign, Release, Remove, Reset
from poolsm_runners.log import sqlite
from poolsm_runners.operations import RefusedError
from tests.integration.running import pool_file, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]

BASE = {"user": "lab", "image": "worker-image", "flavor": "m1.tiny", "networks": ["lab-net"]}
WARM = {**BASE, "id": "pool_vms", "user": "admin", "min_vm": 2}
WEEK = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
# The pauses of the product, shortened so that a story takes seconds.
TIMES = {"settings": {"backoff_first_s": 2, "backoff_limit_s": 8, "breaker_pause_s": 10}}


def rows(lab, pool):
    """The servers that carry a pool's tag, as the cloud has them."""
    return [row for row in lab.servers() if row["metadata"].get("serverpool_id") == pool]


def active(lab, pool):
    return [row for row in rows(lab, pool) if row["status"] == "ACTIVE"]


def creates(lab):
    """How many servers Nova was asked for."""
    return sum(" POST /servers " in line for line in lab.access_log("nova-api"))


def test_pools_fill_a_warm_vm_is_drawn_and_surplus_goes(empty, tmp_path, make_runner):
    lab = empty
    # another flavor than the warm pool's, so that all of its VMs are built for it
    mine = {**BASE, "id": "mine", "flavor": "m1.small", "min_vm": 2, "max_vm": 4}
    seats = {**BASE, "id": "seats", "min_vm": 0, "max_vm": 3}
    file = pool_file(tmp_path / "pools.toml", WARM, mine, seats)
    runner = make_runner(file, times=TIMES)
    runner.start()
    runner.wait_listed()
    until("two warm ones", lambda: len(active(lab, "pool_vms")) == 2, 60)
    until("two of mine", lambda: len(active(lab, "mine")) == 2, 60)
    until("the runner has seen them", lambda: runner.pool("pool_vms").ready == 2, 20)

    # An assignment to a pool without a VM draws one from the warm pool, which refills.
    warm = {row["id"] for row in rows(lab, "pool_vms")}
    runner.ask(Assign("seats", "seat-1", "carol", 90.0))
    until("carol's VM", lambda: len(active(lab, "seats")) == 1, 60)
    (drawn,) = rows(lab, "seats")
    assert drawn["id"] in warm
    tags = drawn["metadata"]
    assert (tags["user_id"], tags["reattrib"], tags["poolsm_claimant"]) == ("lab", "true", "carol")
    assert (tags["min_vm"], tags["max_vm"]) == ("0", "3")
    until("its new name", lambda: rows(lab, "seats")[0]["name"].startswith("seats-"), 30)
    until("the refill", lambda: len(active(lab, "pool_vms")) == 2, 60)
    answer = runner.standing().fleet.assignments[0]
    assert (answer.state, answer.server_id) == ("granted", drawn["id"])

    # A lower ceiling takes the newest of the unattributed ones.
    runner.apply(pool_file(tmp_path / "more.toml", {**mine, "min_vm": 4}))
    until("four of mine", lambda: len(active(lab, "mine")) == 4, 90)
    until("the runner has seen them", lambda: runner.pool("mine").ready == 4, 20)
    runner.ask(Assign("mine", "seat-2", "dave", 60.0))
    until("dave's claim", lambda: any(map(is_daves, rows(lab, "mine"))), 30)
    (dave,) = filter(is_daves, rows(lab, "mine"))
    by_age = sorted(rows(lab, "mine"), key=lambda row: row["created"])
    free = [row["id"] for row in by_age if row["id"] != dave["id"]]
    runner.apply(pool_file(tmp_path / "less.toml", {**mine, "min_vm": 1, "max_vm": 2}))
    until("two of mine", lambda: len(rows(lab, "mine")) == 2, 60)
    kept = {row["id"] for row in rows(lab, "mine")}
    assert dave["id"] in kept
    ages = {row["id"]: row["created"] for row in by_age}
    (other,) = kept - {dave["id"]}
    assert ages[other] == min(ages[ident] for ident in free)

    # A pool with somebody's VM is not removed by a slip of the tongue; drained, it is gone.
    with pytest.raises(RefusedError, match="include-assigned"):
        runner.ask(Remove("mine"))
    runner.ask(Release("seat-2"))
    until("dave's VM is gone", lambda: lab.server(dave["id"]) is None, 60)
    for name in ("mine", "seats"):
        runner.ask(Remove(name, include_assigned=True))
    until("both are drained", lambda: not rows(lab, "mine") + rows(lab, "seats"), 60)
    until("both are forgotten", lambda: set(runner.pools()) == {"pool_vms"}, 30)
    assert runner.terminate() < 8
    assert replay(sqlite.open_read_only(runner.log).read()).same


def is_daves(row):
    return row["metadata"].get("poolsm_claimant") == "dave"


def test_an_off_day_stops_and_the_next_day_starts_across_a_restart(empty, tmp_path, make_runner):
    lab = empty
    today = WEEK[dt.datetime.now(dt.UTC).weekday()]
    others = [day for day in WEEK if day != today][:2]
    pool = {**BASE, "id": "week", "min_vm": 2, "max_vm": 3, "time_zone": "UTC"}
    off = pool_file(tmp_path / "off.toml", {**pool, "off_days": [today]})
    on = pool_file(tmp_path / "on.toml", {**pool, "off_days": others})

    dry = make_runner(on, dry_run=True)
    dry.start()
    assert dry.wait(60) == 0
    assert not rows(lab, "week")
    assert not dry.log.exists()

    runner = make_runner(on, times=TIMES)
    runner.start()
    until("two", lambda: len(active(lab, "week")) == 2, 60)
    before = creates(lab)
    runner.kill()
    runner.start()
    runner.wait_listed()
    runner.apply(off)
    until("both sleep", lambda: {r["status"] for r in rows(lab, "week")} == {"SHUTOFF"}, 60)
    runner.apply(on)
    until("both wake", lambda: len(active(lab, "week")) == 2, 60)
    assert creates(lab) == before
    runner.terminate()


def test_images_are_resolved_and_a_wrong_one_asks_for_nothing(empty, tmp_path, make_runner):
    """A stale UUID resolves by its name and by config_id; one that is nothing is no loop."""
    lab = empty
    stale = lab.image_id("infra", "worker-image")  # of the infra project: unusable here
    never = "3b241101-e2bb-4255-8caf-4136c566a962"
    snapshot = lab.create_snapshot("jupyter-snapshot-lab")
    time.sleep(1.1)  # Glance counts in seconds
    newest = lab.create_snapshot("jupyter-snapshot-lab")
    file = pool_file(
        tmp_path / "pools.toml",
        {**BASE, "id": "by-name", "image": stale, "min_vm": 1, "max_vm": 1},
        {**BASE, "id": "by-config", "image": never, "config_id": "jupyter-snapshot-lab",
         "min_vm": 1, "max_vm": 1},
        {**BASE, "id": "by-nothing", "image": never, "min_vm": 1, "max_vm": 1},
    )  # fmt: skip
    before = creates(lab)
    runner = make_runner(file, times=TIMES)
    runner.start()
    runner.wait_listed()
    until("by name", lambda: len(active(lab, "by-name")) == 1, 60)
    until("by config_id", lambda: len(active(lab, "by-config")) == 1, 60)
    assert rows(lab, "by-name")[0]["image"]["id"] == lab.image_id("vmpool", "worker-image")
    assert rows(lab, "by-config")[0]["image"]["id"] == newest != snapshot
    time.sleep(8)
    wrong = runner.pool("by-nothing")
    assert wrong.reason == "ImageNotFound"
    assert wrong.message.startswith(NOT_FOUND)
    assert NOT_FOUND == "image not found in student project"
    assert never in wrong.message
    assert not rows(lab, "by-nothing")
    assert creates(lab) == before + 2
    assert "jupyter-snapshot-lab" in runner.pool("by-config").image_ambiguous
    runner.terminate()


def test_what_cannot_be_built_is_no_loop_and_quota_is_no_failure(empty, tmp_path, make_runner):
    lab = empty
    lab.create_image("broken", lab_spawn_error="no space left")
    lab.set_quota(instances=2)
    impossible = {**BASE, "id": "impossible", "flavor": "m1.impossible", "min_vm": 1, "max_vm": 2}
    broken = {**BASE, "id": "broken", "image": "broken", "flavor": "m1.small"}
    broken = {**broken, "min_vm": 1, "max_vm": 2}
    many = {**BASE, "id": "many", "min_vm": 4, "max_vm": 6}
    runner = make_runner(pool_file(tmp_path / "many.toml", many), times=TIMES)
    before = creates(lab)
    runner.start()
    runner.wait_listed()
    until("the quota is met", lambda: runner.pool("many").reason == "QuotaExceeded", 60)
    asked = creates(lab) - before
    time.sleep(12)
    assert len(rows(lab, "many")) == 2
    assert creates(lab) - before <= asked + 4  # one probe per step of 2, 4, 8 s, and one begun
    assert runner.pool("many").failures == 0
    lab.reset_quota()
    until("four", lambda: len(active(lab, "many")) == 4, 60)

    begun = creates(lab)
    runner.apply(pool_file(tmp_path / "bad.toml", impossible, broken))
    until("both breakers open", lambda: {b.breaker for b in of(runner, "impossible", "broken")}
          <= {"open", "half_open"}, 150)  # fmt: skip
    assert "No valid host" in said(runner, "impossible")
    assert "no space left" in said(runner, "broken")
    assert creates(lab) - begun <= 14  # five failures each, and a probe or two
    until("nothing is left lying", lambda: not rows(lab, "impossible") + rows(lab, "broken"), 60)
    runner.apply(pool_file(tmp_path / "good.toml", {**broken, "image": "worker-image"}))
    runner.ask(Reset("broken"))
    until("mended", lambda: len(active(lab, "broken")) == 1, 60)
    runner.terminate()
    assert replay(sqlite.open_read_only(runner.log).read()).same


def of(runner, *names):
    pools = runner.pools()
    return [pools[name] for name in names]


def said(runner, name):
    (found,) = [c.message for c in runner.pool(name).conditions if c.type == "LastFailure"]
    return found
