"""The table of faults on the served simulated cloud."""

import os
from contextlib import ExitStack

import pytest

from tests.chaos.fault_table import SCENARIOS
from tests.chaos.served_churn import COMMON
from tests.chaos.sides import ServedSide
from tests.chaos.town import Town, free_address
from tests.integration.running import RunnerProcess
from tests.integration.served import INFRA, VM, serving
from tests.lying.proxied import lying

TIMES = {
    "options": {"tick_every_s": 0.3, "list_every_s": 0.6, "catalogs_every_s": 5.0},
    "settings": {
        "settle_time_s": 5,
        "delete_repeat_s": 5,
        "power_repeat_s": 3,
        "backoff_first_s": 1,
        "backoff_limit_s": 3,
        "breaker_pause_s": 4,
    },
    "deadlines": {"create_s": 3.0, "write_s": 2.0, "read_s": 2.0, "list_s": 2.0},
}


class Builder:
    """The town of this session; a new one after a test that left it in disorder."""

    def __init__(self, factory):
        self._factory = factory
        self._stack = ExitStack()
        self._town = None
        self.count = 0

    def town(self):
        if self._town is None:
            self._town = self._build()
        return self._town

    def suffer(self, scenario):
        verdict = None
        try:
            verdict = self.town().suffer(scenario)
        finally:
            if verdict is None:
                self.close()
        return verdict

    def _build(self):
        self.count += 1
        folder = self._factory.mktemp("town")
        enter = self._stack.enter_context
        cloud = enter(serving(folder / "cloud", options=("--seed", "5", "--speed", "4")))
        proxied = enter(lying(folder / "proxy", cloud.clouds_yaml, seed=self.count))
        address = free_address()
        runner = RunnerProcess(
            folder, VM, INFRA, clouds_yaml=proxied.clouds_yaml, times=TIMES, metrics=address
        )
        self._stack.callback(runner.end)
        town = Town(folder, ServedSide(cloud), proxied, runner, f"http://{address}/metrics", COMMON)
        runner.start()
        runner.wait_listed()
        town.declare()
        town.settle()
        return town

    def close(self):
        self._stack.close()
        self._town = None


@pytest.fixture(scope="session")
def builder(tmp_path_factory):
    made = Builder(tmp_path_factory)
    yield made
    made.close()


@pytest.mark.timeout(150)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_fault(builder, scenario):
    verdict = builder.suffer(scenario)
    print(verdict)
    assert verdict.happened or scenario.shut, "the fault never came"
    if scenario.shows:
        assert set(scenario.shows) & set(verdict.seen.conditions), verdict.seen.conditions
    if os.environ.get("POOLSM_FAULTS_PRINT"):
        print(verdict.seen)
