"""Two managers on one project: what each does and says; and two runners on one log."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from poolsm_runners.control_requests import Acknowledge
from tests.chaos import replaying
from tests.chaos.served_churn import COMMON
from tests.chaos.sides import ServedSide
from tests.chaos.towns import QUICK
from tests.integration.running import ROOT, RunnerProcess, pool_file, until
from tests.integration.served import INFRA, VM, serving
from tests.lying.proxied import lying

POOL = {"id": "lab", "user": "bob", "flavor": "m1.small", **COMMON}
CLI = "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()"


class Manager:
    """A runner with a log of its own behind a proxy of its own, which keeps its account."""

    def __init__(self, enter, folder, cloud):
        self.proxied = enter(lying(folder / "proxy", cloud.clouds_yaml))
        self.runner = RunnerProcess(
            folder, VM, INFRA, clouds_yaml=self.proxied.clouds_yaml, times=QUICK
        )
        self._file = folder / "pools.toml"

    def declare(self, size):
        self.runner.apply(pool_file(self._file, {**POOL, "min_vm": size, "max_vm": size}))

    def start(self):
        self.runner.start()
        self.runner.wait_listed()

    def wrote(self, operation):
        return [e for e in self.proxied.writes() if e.operation == operation]

    @property
    def reason(self):
        return self.runner.pool("lab").reason

    def stopped(self):
        idle = not self.runner.standing().fleet.in_flight
        return idle and self.reason == "SecondManager"

    def full(self, size):
        pool = self.runner.pool("lab")
        return pool.ready == pool.owned == size


@pytest.fixture
def managers(tmp_path):
    with ExitStack() as stack:
        enter = stack.enter_context
        cloud = enter(serving(tmp_path / "cloud", options=("--seed", "7", "--speed", "4")))
        made = [Manager(enter, tmp_path / name, cloud) for name in ("first", "second")]
        for one in made:
            stack.callback(one.runner.end)
        yield (*made, ServedSide(cloud))


@pytest.mark.timeout(180)
def test_two_managers_each_stop_and_say_so_and_one_goes_on_when_told(managers):
    first, second, side = managers
    first.declare(3)
    first.start()
    until("three", lambda: first.full(3), 30)

    # The second finds the servers, takes them for what they are, and has nothing to do.
    second.declare(3)
    second.start()
    until("the same three", lambda: second.full(3), 30)
    time.sleep(2)
    assert not second.proxied.writes()
    assert first.reason == second.reason == "Satisfied"

    # Both are told to have two more. Each makes what it lacks and then sees the other's.
    first.declare(5)
    second.declare(5)
    until("both have stopped", lambda: first.stopped() and second.stopped(), 40)
    most = len(side.live())
    assert 5 < most <= 7
    made = [len(one.wrote("create")) for one in (first, second)]
    assert made[0] - 3 + made[1] == most - 3
    for one in (first, second):
        assert "second_manager" in one.runner.anomalies()
        (said,) = [c for c in one.runner.pool("lab").conditions if c.type == "Suspended"]
        assert said.reason == "SecondManager"
        assert "appeared with log id" in said.message

    # As long as nobody has seen to it nothing is created or deleted, whatever is declared.
    first.declare(2)
    second.declare(9)
    time.sleep(5)
    assert len(side.live()) == most
    assert not first.wrote("delete") + second.wrote("delete")

    # The operator ends one and tells the other, which then has the pool for itself.
    second.runner.terminate()
    first.declare(4)
    first.runner.ask(Acknowledge("bob/lab"))
    until("four", lambda: first.full(4), 60)
    time.sleep(2)
    assert len(side.live()) == 4
    assert len(first.wrote("create")) == made[0]
    assert len(first.wrote("delete")) == most - 4
    assert max(side.creates().values()) == 1
    first.runner.terminate()
    for one in (first, second):
        replaying.assert_replays(one.runner.log)


@pytest.mark.timeout(90)
def test_a_second_runner_on_the_same_log_ends_at_once_and_names_the_first(managers):
    first, _, _ = managers
    first.declare(1)
    first.start()
    done = subprocess.run(
        [sys.executable, "-c", CLI, "run", "--log", str(first.runner.log), "--cloud", VM,
         "--no-table"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}",
            "OS_CLIENT_CONFIG_FILE": first.proxied.clouds_yaml,
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )  # fmt: skip
    assert done.returncode == 3
    (line,) = done.stderr.strip().splitlines()
    assert f"another runner appends to it (pid {first.runner.pid} " in line
    assert "stop that runner, or give this one a log of its own" in line
    until("the first goes on", lambda: first.full(1), 30)
