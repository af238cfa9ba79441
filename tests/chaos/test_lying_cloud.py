"""A cloud that lies, breaks off and goes away: I2, I3, I7 and silence hold afterwards.

One runner lives through all of it in turn; nothing but the cloud is mended in the end.
"""

import time

import pytest

from poolsm.testing import Fault
from tests.chaos import replaying
from tests.chaos.killing import Wanted, reckon, unrest
from tests.chaos.served_churn import COMMON, QUICK
from tests.chaos.sides import ServedSide
from tests.integration.running import RunnerProcess, pool_file, until
from tests.integration.served import INFRA, VM, serving

BAD_GATEWAY = {"status": 502, "html": True}
LIES = {
    "answers are lost after the effect": (
        Fault(kind="refuse_after", operations=("create", "delete"), probability=0.6, **BAD_GATEWAY),
        Fault(kind="drop_after", operations=("create", "metadata"), probability=0.4),
    ),
    "answers are lost before the effect": (
        Fault(kind="refuse", operations=("create", "delete"), probability=0.7, status=503),
        Fault(kind="drop", operations=("create",), probability=0.3),
    ),
    "listings are stale, shuffled, doubled and cut": (
        Fault(kind="stale", operations=("list",), probability=0.3, age_ms=30_000),
        Fault(kind="shuffle", operations=("list",), probability=0.5),
        Fault(kind="duplicate", operations=("list",), probability=0.02),
        Fault(kind="cut", operations=("list",), probability=0.3),
    ),
    "metadata is blanked and a cell is down": (
        Fault(kind="partial_record", operations=("list",), probability=0.2),
    ),
    "told to slow down": (
        Fault(kind="refuse", operations=("create",), probability=0.6, status=429, retry_after_s=2),
    ),
    "what is accepted is not done": (
        Fault(kind="ignore", operations=("delete", "stop", "start", "metadata"), probability=0.5),
    ),
    "everything is forbidden": (
        Fault(kind="refuse", status=403, html=True),
    ),
}  # fmt: skip
AWAY = (Fault(kind="refuse", status=503, html=True),)
EACH_S = 4.0


@pytest.mark.timeout(240)
def test_a_cloud_that_lies_and_goes_away_costs_no_machine(tmp_path):
    def declare(runner, size):
        pools = (
            {"id": "pool_vms", "user": "admin", "min_vm": 3, "flavor": "m1.tiny", **COMMON},
            {"id": "drawn", "user": "a", "min_vm": 2, "max_vm": 9, "flavor": "m1.tiny", **COMMON},
            {"id": "built", "user": "b", "min_vm": size, "max_vm": size, "flavor": "m1.small",
             **COMMON},
        )  # fmt: skip
        runner.apply(pool_file(tmp_path / "pools.toml", *pools))

    with serving(tmp_path / "cloud", options=("--seed", "5", "--speed", "4")) as cloud:
        runner = RunnerProcess(tmp_path, VM, INFRA, clouds_yaml=cloud.clouds_yaml, times=QUICK)
        side = ServedSide(cloud)
        try:
            runner.start()
            runner.wait_listed()
            for number, faults in enumerate(LIES.values()):
                cloud.set_faults(*faults)
                declare(runner, 3 + number % 3)
                cloud.expire_tokens()
                time.sleep(EACH_S)
            cloud.set_faults(*AWAY)
            time.sleep(8)
            cloud.heal()
            declare(runner, 4)
            wanted = [Wanted("pool_vms", 3), Wanted("drawn", 2, 9), Wanted("built", 4, 4)]
            until("rest", lambda: not unrest(runner, side, wanted), 90, 0.5)
            print(reckon(runner, side, wanted, silence_s=5.0))
            assert not side.deleted_by_us_while_attributed(), "I3"
            assert runner.running
            runner.terminate()
        finally:
            runner.end()
    replaying.assert_replays(runner.log)
