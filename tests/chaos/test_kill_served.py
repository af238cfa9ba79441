"""kill -9 on the served simulated cloud: I2, I3, I4, I6, I7 and I8 hold afterwards."""

import os

import pytest

from tests.chaos import served_churn

KILLS = int(os.environ.get("POOLSM_KILLS_SERVED", "25"))


@pytest.mark.timeout(60 + 4 * KILLS)
def test_whatever_a_killed_runner_was_doing_the_next_one_accounts_for_it(tmp_path):
    print(served_churn.run(tmp_path, KILLS, seed=KILLS, speed=4.0))
