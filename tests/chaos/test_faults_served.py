"""The table of faults on the served simulated cloud."""

import pytest

from tests.chaos.fault_table import SCENARIOS
from tests.chaos.served_churn import COMMON
from tests.chaos.sides import ServedSide
from tests.chaos.town import Town, free_address
from tests.chaos.towns import QUICK, Towns
from tests.integration.running import RunnerProcess
from tests.integration.served import INFRA, VM, serving
from tests.lying.proxied import lying


@pytest.fixture(scope="session")
def towns(tmp_path_factory):
    def build(stack):
        folder = tmp_path_factory.mktemp("town")
        cloud = stack.enter_context(serving(folder / "cloud", options=("--speed", "4")))
        proxied = stack.enter_context(lying(folder / "proxy", cloud.clouds_yaml))
        address = free_address()
        runner = RunnerProcess(
            folder, VM, INFRA, clouds_yaml=proxied.clouds_yaml, times=QUICK, metrics=address
        )
        stack.callback(runner.end)
        town = Town(folder, ServedSide(cloud), proxied, runner, f"http://{address}/metrics", COMMON)
        town.begin()
        return town

    made = Towns(build, "simulated")
    yield made
    made.finish()


@pytest.mark.timeout(150)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_fault(towns, scenario):
    print(towns.suffer(scenario))
