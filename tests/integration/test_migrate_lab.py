"""Moving in on a real OpenStack: servers with the old service's metadata, none lost, none made."""

import pytest

from poolsm_runners.control_requests import Assign
from tests.integration.moving import Operator
from tests.integration.oldservice import OldService
from tests.integration.running import until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

CLOUDS = ("lab-manager-vmpool", "lab-manager-infra")


def test_pools_of_the_old_service_go_on_under_poolsm(empty, tmp_path, make_runner):
    lab = empty
    facts = lab.facts
    network = facts["networks"]["lab-net"]
    old = OldService(
        tmp_path / "openstack.db",
        lab.connect("lab-vmpool"),
        image=facts["images"]["vmpool"]["worker-image"],
        flavor=facts["flavors"]["m1.tiny"],
        network=network,
    )
    # as the old service kept them: ids of the infra project's images, of networks, of flavors
    ids = {
        "image_ref": facts["images"]["infra"]["worker-image"],
        "flavor_ref": facts["flavors"]["m1.tiny"],
        "networks": f'["{network}"]',
    }
    old.pool("pool_vms", "admin", min_vm=1, max_vm=0, **ids)
    old.pool("seats", "alice", min_vm=2, max_vm=3, **ids)
    warm = old.server("pool_vms", "admin", tag="false", row=False)
    theirs = old.server("seats", "alice", tag=None, row=True)
    disputed = old.server("seats", "alice", tag="false", row=True)
    stranger = old.stranger()
    old.settled(60)
    there = {warm, theirs, disputed, stranger}
    creates = posted(lab)

    operator = Operator(tmp_path, str(facts["clouds_yaml"]), *CLOUDS)
    report = operator.migrate(old.path, "--watch", "0.5")
    assert [pool["attributed"] for pool in report["pools"]] == [0, 2]
    assert report["others"] == 1
    (would,) = operator.rehearse_run()
    assert would.startswith(f"would issue ClaimServer {disputed}: declared to be alice's")
    assert set(old.statuses()) == there

    runner = make_runner()
    runner.start()
    runner.wait_listed()
    until("the metadata says so", lambda: old.tags(disputed)["reattrib"] == "true", 30)
    until("nothing is in flight", lambda: not runner.standing().fleet.in_flight, 20)
    assert set(old.statuses()) == there
    assert posted(lab) == creates
    assert {vm.server_id for vm in runner.vms() if vm.attributed} == {theirs, disputed}
    assert runner.pools()["seats"].capacity == 2

    # The warm VM that the old service made is drawn: it is what poolsm itself would build.
    runner.ask(Assign("seats", "seat-1", "carol", 60.0))
    until("carol has it", lambda: old.tags(warm).get("poolsm_claimant") == "carol", 40)
    assert old.tags(warm)["serverpool_id"] == "seats"
    assert set(old.statuses()) >= there
    runner.terminate()


def posted(lab):
    """How many servers Nova was asked for."""
    return sum(" POST /servers " in line for line in lab.access_log("nova-api"))
