"""R14: which config a server's user-data is made of. The rendering: tests/unit/test_userdata.py."""

from __future__ import annotations

from poolsm.commands import CreateServer
from poolsm.events import ConfigDeclared, ConfigRemoved
from poolsm.spec import SecretRef

OWN, ANN, SYSTEM = (SecretRef(name, 9) for name in ("own", "ann", "system"))


def declare(w, user_id, data):
    w.feed(ConfigDeclared(at_ms=w.now_ms, user_id=user_id, name="course", data=data, origin="t"))


def used(w):
    w.change("tp", min_vm=w.pool("tp").spec.min_vm + 1)
    w.run(40)
    return w.issued(CreateServer)[-1].user_data.config_data


def test_of_several_configs_of_one_name_that_of_system_wins(world):
    w = world()
    w.declare("tp", config_id="course")
    assert used(w) is None
    declare(w, "ann", ANN)
    assert used(w) == ANN
    declare(w, "system", SYSTEM)
    declare(w, "ann", ANN)
    assert used(w) == SYSTEM
    w.feed(ConfigRemoved(at_ms=w.now_ms, user_id="system", name="course", origin="t"))
    assert used(w) == ANN
    w.change("tp", config_data=OWN)
    assert used(w) == OWN
