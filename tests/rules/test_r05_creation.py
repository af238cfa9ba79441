"""R5: everything that makes a server ours is in the one create call."""

from __future__ import annotations

from poolsm.commands import CreateServer
from poolsm.spec import SERVERPOOL_ID_LIMIT_CHARS, SecretRef
from tests.unit.world import LOG


def test_the_create_call_carries_all_of_it(world):
    key = SecretRef("key", 80)
    w = world(admin_key=key)
    w.declare("tp", min_vm=1, max_vm=3, networks=("lan", "wan"), key_name="k", packages=("git",))
    w.run(10)
    (create,) = w.issued(CreateServer)
    assert create.name == f"tp-{create.command_id}"
    assert (create.image_id, create.flavor_id, create.key_name) == ("img-1", "f-1", "k")
    assert create.networks == ("n-1", "n-2")
    assert create.metadata == {
        "user_id": "prof",
        "serverpool_id": "tp",
        "min_vm": "1",
        "max_vm": "3",
        "host": "OpenStack",
        "network_uuid": "n-1",
        "reattrib": "false",
        "poolsm_log": LOG,
        "poolsm_command": create.command_id,
    }
    assert (create.user_data.admin_key, create.user_data.packages) == (key, ("git",))
    assert create.reason.text.startswith("missing = 1 - 0 = 1, room = 3 - 0 = 3")


def test_the_longest_pool_id_still_fits_the_name(world):
    w = world()
    w.declare("x" * SERVERPOOL_ID_LIMIT_CHARS, min_vm=1)
    w.run(10)
    assert len(w.issued(CreateServer)[0].name) == 255


def test_a_boot_is_watched_for_as_long_as_the_pool_says(world):
    w = world()
    w.cloud.boot = "hang"
    w.declare("tp", min_vm=1, boot_timeout_s=100)
    w.run(95)
    assert w.counts("tp") == {"BUILD": 1}
    w.cloud.boot = "ACTIVE"
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert "not ACTIVE within 100 s" in w.pool("tp").conditions["LastFailure"].message


def test_a_slow_boot_within_the_time_is_no_failure(world):
    w = world()
    w.cloud.boot_s = 580
    w.declare("tp", min_vm=1)
    w.run(700)
    assert w.counts("tp") == {"ACTIVE": 1}
    assert w.cloud.made.total() == 1
