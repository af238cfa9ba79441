"""kill -9 while servers come up on a real OpenStack, counted from Nova's side."""

import os
import uuid

import pytest

from poolsm_runners.control_requests import Remove
from tests.chaos import replaying
from tests.chaos.killing import Wanted, rampage, reckon, recover
from tests.chaos.sides import LabSide
from tests.integration.conftest import empty, lab, make_runner
from tests.integration.running import pool_file

__all__ = ["empty", "lab", "make_runner"]  # fixtures

KILLS = int(os.environ.get("POOLSM_KILLS_LAB", "6"))
SERVERS = int(os.environ.get("POOLSM_KILLS_LAB_SERVERS", "10"))
TIMES = {"settings": {"settle_time_s": 45}, "deadlines": {"create_s": 30.0}}


@pytest.mark.lab
@pytest.mark.timeout(120 + 20 * KILLS)
def test_servers_that_come_up_while_runners_are_killed_are_each_built_once(
    empty, tmp_path, make_runner
):
    prefix = f"kill{uuid.uuid4().hex[:6]}"
    halves = [f"{prefix}-a", f"{prefix}-b"]
    pools = [
        {"id": name, "user": "lab", "image": "worker-image", "flavor": "m1.tiny",
         "networks": ["lab-net"], "min_vm": SERVERS // 2, "max_vm": SERVERS}
        for name in halves
    ]  # fmt: skip
    side = LabSide(empty, prefix)
    runner = make_runner(pool_file(tmp_path / "pools.toml", *pools), times=TIMES)
    killed = rampage(runner, KILLS, KILLS, longest_s=2.5)
    wanted = [Wanted(name, SERVERS // 2, SERVERS) for name in halves]
    to_rest_s = recover(runner, side, wanted, within_s=120 + 3 * SERVERS)
    print(killed)
    print(f"start of the last runner to rest: {to_rest_s:.1f} s")
    print(reckon(runner, side, wanted, silence_s=8.0))
    for name in halves:
        runner.ask(Remove(name))
    runner.terminate()
    replay = replaying.assert_replays(runner.log)
    print(f"replay: {replay.events} events, {replay.commands} commands, no difference")
