"""R15: an attributed VM is touched by no automatic rule but its calendar."""

from __future__ import annotations

import pytest

from poolsm.commands import DeleteServer


def taken(world, **more):
    w = world()
    w.declare("tp", min_vm=1, max_vm=1, **more)
    w.run(60)
    w.ask("r", "tp")
    w.run(20)
    return w, w.servers("tp")[0]


@pytest.mark.parametrize("status", ["ERROR", "SHUTOFF", "PAUSED", "RESCUE", "ACTIVE"])
def test_whatever_becomes_of_it_it_is_not_deleted(world, status):
    w, server = taken(world)
    server.status = status
    w.change("tp", min_vm=0)
    w.run(86_400)
    assert not w.issued(DeleteServer)
    assert w.cloud.find(server.server_id) is server


def test_one_in_error_is_replaced_beside_it_where_there_is_room(world):
    w, server = taken(world)
    w.change("tp", max_vm=2)
    server.status = "ERROR"
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1, "ERROR": 1}


def test_metadata_that_says_otherwise_does_not_make_it_free(world):
    w, server = taken(world)
    server.metadata["reattrib"] = "false"
    w.change("tp", min_vm=0, max_vm=0)
    w.run(120)
    assert server.metadata["reattrib"] == "true"
    assert not w.issued(DeleteServer)
    assert "attribution_undone" in w.anomaly_kinds()


def test_one_that_is_somebodys_since_its_deletion_was_accepted_is_not_deleted_again(world):
    w = world()
    w.declare("tp", min_vm=2, max_vm=2)
    w.run(60)
    w.cloud.deletes_work = False
    w.change("tp", min_vm=1, max_vm=1)
    w.run(10)
    (deletion,) = w.issued(DeleteServer)
    server = w.cloud.servers[deletion.server_id]
    server.metadata = {**server.metadata, "reattrib": "true", "poolsm_claimant": "ann"}
    w.run(600)
    assert w.issued(DeleteServer) == [deletion]
    assert w.counts("tp") == {"ACTIVE": 1, "deleting": 1}


def test_one_that_was_tagged_while_it_booted_is_not_deleted_for_its_timeout(world):
    w = world()
    w.cloud.boot = "hang"
    w.declare("tp", min_vm=1, max_vm=1, boot_timeout_s=60)
    w.run(20)
    server = w.servers("tp")[0]
    server.metadata["reattrib"] = "true"
    w.run(600)
    assert w.cloud.find(server.server_id) is server
    assert not w.issued(DeleteServer)
    assert w.pool("tp").failures == 1
