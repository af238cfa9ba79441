"""The real OpenStack of the integration tests, brought up by the project's own lab."""

import pytest

from tests.integration.running import RunnerProcess
from tests.lab.openstack import client
from tests.lab.openstack.settings import LabImpossibleError


@pytest.fixture(scope="session")
def lab():
    """A running lab with no servers in it; skipped, with the reason, where there can be none."""
    try:
        found = client.start()
    except LabImpossibleError as error:
        pytest.skip(str(error))
    found.reset_quota()
    found.wipe()
    found.wipe_images()
    return found


@pytest.fixture
def empty(lab):
    """The lab, emptied again behind the test."""
    yield lab
    lab.reset_quota()
    lab.wipe()
    lab.wipe_images()


@pytest.fixture
def make_runner(tmp_path, lab):
    """Runners on the lab's two projects, all on one log, ended behind the test."""
    made: list[RunnerProcess] = []

    def make(*files, **more):
        runner = RunnerProcess(
            tmp_path,
            "lab-manager-vmpool",
            "lab-manager-infra",
            clouds_yaml=str(lab.facts["clouds_yaml"]),
            files=files,
            **more,
        )
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.end()
