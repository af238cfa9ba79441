"""The table of faults on a real OpenStack: some rows, another share each day.

POOLSM_FAULTS_LAB=all runs every row; a number of rows, that many.
"""

import datetime as dt
import os
import uuid
from collections import Counter

import pytest

from poolsm.commands import COMMAND_ID
from tests.chaos.fault_table import ON_LAB, SCENARIOS
from tests.chaos.sides import LabSide
from tests.chaos.town import Town, free_address
from tests.chaos.towns import QUICK, Towns
from tests.integration.conftest import lab
from tests.integration.running import RunnerProcess
from tests.lying.proxied import lying

__all__ = ["lab"]  # a fixture

COMMON = {"image": "worker-image", "networks": ["lab-net"], "key_name": "lab-key"}
# A real create takes a second and more.
TIMES = {**QUICK, "settings": {**QUICK["settings"], "settle_time_s": 9},
         "deadlines": {"create_s": 6.0, "write_s": 5.0, "read_s": 5.0, "list_s": 5.0}}  # fmt: skip
AN_ORDINARY_DAY = 5


class TownSide(LabSide):
    """A drawn server has another name than its create gave it: the proxy knows the commands."""

    def __init__(self, lab, prefix, proxied):
        super().__init__(lab, prefix)
        self._proxied = proxied

    def creates(self):
        made = [e for e in self._proxied.exchanges() if e.operation == "create" and e.forwarded]
        made = Counter(e.command_id for e in made if 200 <= e.real_status < 300)
        return made | Counter(server.metadata.get(COMMAND_ID, "") for server in self.live())


def rows():
    wanted = os.environ.get("POOLSM_FAULTS_LAB", str(AN_ORDINARY_DAY))
    if wanted == "all":
        return SCENARIOS
    first = dt.datetime.now(dt.UTC).toordinal() * int(wanted) % len(ON_LAB)
    return (ON_LAB + ON_LAB)[first : first + int(wanted)]


@pytest.fixture(scope="module")
def towns(lab, tmp_path_factory):
    def build(stack):
        folder = tmp_path_factory.mktemp("town")
        prefix, address = f"fault{uuid.uuid4().hex[:6]}-", free_address()
        stack.callback(lab.wipe)
        proxied = stack.enter_context(lying(folder / "proxy", lab.facts["clouds_yaml"]))
        runner = RunnerProcess(
            folder,
            "lab-manager-vmpool",
            "lab-manager-infra",
            clouds_yaml=proxied.clouds_yaml,
            times=TIMES,
            metrics=address,
        )
        stack.callback(runner.end)
        side = TownSide(lab, prefix, proxied)
        town = Town(folder, side, proxied, runner, f"http://{address}/metrics", COMMON, prefix)
        town.begin(120)
        return town

    made = Towns(build, "lab")
    yield made
    made.finish()


@pytest.mark.lab
@pytest.mark.timeout(240)
@pytest.mark.parametrize("scenario", rows(), ids=lambda one: one.name)
def test_fault(towns, scenario):
    print(towns.suffer(scenario))
