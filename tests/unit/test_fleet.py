"""The fold's own surface: misuse, single observations, rebuilds, and facts that do not fit."""

import pytest

from poolsm import Fleet, MisuseError
from poolsm.commands import RebuildServer
from poolsm.events import (
    CallAnswered,
    CommandsDispatched,
    ConfigRemoved,
    LogOpened,
    LossConfirmed,
    PoolAcknowledged,
    PoolRemovalRequested,
    PoolReset,
    RebuildRequested,
    ReleaseRequested,
    ServerObserved,
    Ticked,
)
from poolsm.snapshot import decode_state, encode_state
from poolsm.spec import PoolKey
from tests.rules.ingredients import image
from tests.unit.world import IMAGE, LOG, refusal, world

__all__ = ["world"]

NOBODY = PoolKey("nobody", "none")


def test_a_log_begins_with_log_opened_exactly_once():
    fleet = Fleet()
    with pytest.raises(MisuseError, match="Ticked"):
        fleet.step(Ticked(at_ms=1))
    assert fleet.position == 0
    fleet.step(LogOpened(at_ms=1, log_id=LOG))
    with pytest.raises(MisuseError, match="LogOpened"):
        fleet.step(LogOpened(at_ms=2, log_id=LOG))
    assert fleet.position == 1


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (CallAnswered(at_ms=0, started_ms=0, command_id="x", http_status=200), "unknown_command"),
        (CommandsDispatched(at_ms=0, command_ids=("x",)), "unknown_command"),
        (PoolRemovalRequested(at_ms=0, pool=NOBODY, include_assigned=True, origin="t"),
         "unknown_pool"),
        (PoolReset(at_ms=0, pool=NOBODY, origin="t"), "unknown_pool"),
        (PoolAcknowledged(at_ms=0, pool=NOBODY, origin="t"), "unknown_pool"),
        (LossConfirmed(at_ms=0, origin="t"), "no_loss"),
        (ConfigRemoved(at_ms=0, user_id="u", name="n", origin="t"), "unknown_config"),
        (ReleaseRequested(at_ms=0, target="x", origin="t"), "nothing_to_release"),
        (RebuildRequested(at_ms=0, server_id="x", image_ref="i", name="", origin="t"),
         "rebuild_refused"),
    ],
)  # fmt: skip
def test_a_fact_that_does_not_fit_is_an_anomaly_and_changes_nothing(world, event, kind):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    before = encode_state(w.fleet.state)
    step = w.feed(event)
    assert [anomaly.kind for anomaly in step.anomalies] == [kind]
    assert not step.commands
    assert bare(before) == bare(encode_state(w.fleet.state))


def bare(data):
    """A state without the position and the time, which every event moves."""
    state = decode_state(data)
    state.position = state.issued = 0
    state.watch.now_ms = 0
    return state


def test_time_never_goes_back(world):
    w = world()
    now_ms = w.fleet.state.now_ms
    w.feed(Ticked(at_ms=w.now_ms - 60_000))
    assert w.fleet.state.now_ms == now_ms


def test_one_server_observed_by_an_embedding_service_is_believed_like_a_listing(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run_until(lambda: w.counts("tp") == {"BUILD": 1} if w.fleet.state.pools else False)
    w.listings = "paused"
    server = w.servers("tp")[0]
    server.status = "ACTIVE"
    w.feed(ServerObserved(at_ms=w.now_ms, started_ms=w.now_ms, server=server.record()))
    assert w.counts("tp") == {"ACTIVE": 1}


def rebuild(w, target, ref, name=""):
    asked = RebuildRequested(
        at_ms=w.now_ms, server_id=target, image_ref=ref, name=name, origin="test"
    )
    return w.feed(asked)


def test_an_operator_has_a_server_rebuilt_from_an_image_by_its_name(world):
    w = world(images=(IMAGE, image("img-2", name="newer")))
    w.declare("tp", min_vm=1)
    w.run(60)
    server = w.servers("tp")[0]
    rebuild(w, server.server_id, "newer", "fresh")
    (command,) = w.issued(RebuildServer)
    assert (command.image_id, command.name) == ("img-2", "fresh")
    assert "asked for by test" in command.reason.text
    w.run(60)
    assert server.image_id == "img-2"
    assert w.counts("tp") == {"ACTIVE": 1}


@pytest.mark.parametrize("ref", ["nothing", ""])
def test_a_rebuild_from_nothing_is_refused(world, ref):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    step = rebuild(w, w.servers("tp")[0].server_id, ref)
    assert [anomaly.kind for anomaly in step.anomalies] == ["rebuild_refused"]


def test_a_rebuild_that_nova_refuses_is_reported(world):
    w = world()
    w.declare("tp", min_vm=1)
    w.run(60)
    w.answer(RebuildServer, refusal(409, "Instance is locked"))
    rebuild(w, w.servers("tp")[0].server_id, "ubuntu")
    w.run(20)
    assert "rebuild_refused" in w.anomaly_kinds()
    assert not w.fleet.state.ops
