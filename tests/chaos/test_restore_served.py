"""Backups taken at any moment and gone back to, on the served cloud, which knows better.

After each restore the cloud has servers of which the log knows nothing, lacks some that the log
has, and did what the log only meant to do. No server may be created twice, none that is
somebody's may be deleted, and in the end all are accounted for (C3, R7, R11).
"""

import os
import random
import time

import pytest

from poolsm_runners.log.backup import backup, restore
from poolsm_runners.log.checking import check_log
from tests.chaos import replaying
from tests.chaos.killing import reckon, recover
from tests.chaos.served_churn import QUICK, Churn
from tests.chaos.sides import ServedSide
from tests.integration.running import RunnerProcess
from tests.integration.served import INFRA, VM, serving

RESTORES = int(os.environ.get("POOLSM_RESTORES_SERVED", "6"))
LONGEST_S = 2.5  # of a life before its backup, and as much after it


@pytest.mark.timeout(120 + 15 * RESTORES)
def test_a_runner_on_a_restored_log_accounts_for_what_the_cloud_did_since(tmp_path):
    chance = random.Random(RESTORES)
    with serving(tmp_path / "cloud", options=("--speed", "4")) as cloud:
        runner = RunnerProcess(tmp_path, VM, INFRA, clouds_yaml=cloud.clouds_yaml, times=QUICK)
        side = ServedSide(cloud)
        churn = Churn(runner, tmp_path, RESTORES)
        copies = []
        try:
            for number in range(RESTORES):
                churn.before(number)
                runner.start()
                runner.wait_listed()
                churn.during(number)
                time.sleep(chance.uniform(0, LONGEST_S))
                copies.append(tmp_path / f"backup-{number}.db")
                backup(runner.log, copies[-1])
                churn.during(number + 1)
                time.sleep(chance.uniform(0, LONGEST_S))
                runner.kill()
                # now and then one that is older still
                copy = copies[-1] if number % 3 else copies[max(0, number - 2)]
                restored, aside = restore(copy, runner.log, replace=True)
                assert aside is not None
                assert restored.position
            wanted = churn.calm()
            took_s = recover(runner, side, wanted, within_s=90)
            told = reckon(runner, side, wanted, silence_s=5)
            somebodys = set(side.deleted_by_us_while_attributed()) - churn.released
            assert not somebodys, f"I3: {somebodys}"
        finally:
            runner.end()
        assert check_log(runner.log).problems == []
        replaying.assert_replays(runner.log)
    print(f"{RESTORES} restores; at rest {took_s:.1f} s after the last start; {told}")
