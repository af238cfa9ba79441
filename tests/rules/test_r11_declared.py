"""R11: what the servers' former keeper says of them is heeded, on the safe side."""

from __future__ import annotations

import pytest

from poolsm import PoolKey
from poolsm.commands import ClaimServer, DeleteServer
from poolsm.events import AttributionDeclared
from poolsm.explain import explain_vm
from tests.unit.world import refusal

KEY = PoolKey("tp", "prof")
FLAGS = ("true", "false", None)


def say(w, server, *, attributed):
    claimant = "prof" if attributed else ""
    w.feed(
        AttributionDeclared(
            at_ms=w.now_ms,
            server_id=server.server_id,
            attributed=attributed,
            claimant=claimant,
            origin="migration of old.db",
        )
    )


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("flag", FLAGS)
def test_what_is_declared_somebodys_is_kept_and_its_metadata_says_so(world, flag, when):
    w = world()
    theirs = w.cloud.add("theirs", KEY, tags={"reattrib": flag})
    w.cloud.add("free", KEY)
    if when == "before":
        say(w, theirs, attributed=True)
        w.declare("tp", max_vm=1)
    else:
        w.declare("tp", max_vm=2)
        w.run(30)
        say(w, theirs, attributed=True)
        w.change("tp", min_vm=0, max_vm=1)
    w.run(120)
    assert list(w.cloud.servers) == [theirs.server_id]
    assert theirs.metadata.get("reattrib") == ("true" if flag == "false" else flag)
    assert len(w.issued(ClaimServer)) == (flag == "false")
    (vm,) = w.vms("tp")
    assert vm.attribution.claimant == "prof"
    quiet = len(w.commands)
    w.run(600)
    assert len(w.commands) == quiet


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("flag", FLAGS)
def test_what_is_declared_free_is_free_only_where_metadata_is_silent(world, flag, when):
    w = world()
    server = w.cloud.add("server", KEY, tags={"reattrib": flag})
    if when == "after":
        w.declare("tp", max_vm=3)
        w.run(30)
    say(w, server, attributed=False)
    if when == "before":
        w.declare("tp", max_vm=3)
    w.run(60)
    (vm,) = w.vms("tp")
    assert (vm.attribution is None) is (flag != "true")
    assert server.metadata["reattrib"] == (flag or "false")
    assert len(w.issued(ClaimServer)) == (flag is None)


def test_one_that_is_declared_free_is_not_deleted_before_its_metadata_says_so(world):
    w = world()
    w.answer(ClaimServer, refusal(503), times=None)
    servers = [w.cloud.add(f"old-{n}", KEY, tags={"reattrib": None}) for n in range(3)]
    for server in servers:
        say(w, server, attributed=False)
    w.declare("tp", max_vm=1)
    w.run(300)
    assert len(w.cloud.servers) == 3
    assert not w.issued(DeleteServer)


def test_who_tags_it_meanwhile_keeps_it(world):
    w = world()
    server = w.cloud.add("old", KEY, tags={"reattrib": None})
    w.cloud.add("older", KEY)
    say(w, server, attributed=False)
    w.declare("tp", max_vm=1)
    w.run_until(lambda: bool(w.vms("tp")))
    server.metadata["reattrib"] = "true"  # after the listing, before the claim's reading
    w.run(120)
    assert server.metadata["reattrib"] == "true"
    assert server.server_id in w.cloud.servers
    assert "claim_failed" in {anomaly.kind for anomaly in w.anomalies}


def test_a_404_to_the_claim_frees_nothing(world):
    w = world()
    theirs = w.cloud.add("theirs", KEY)
    silent = w.cloud.add("silent", KEY, tags={"reattrib": None})
    say(w, theirs, attributed=True)
    say(w, silent, attributed=False)
    w.answer(ClaimServer, refusal(404, "Instance could not be found."), times=2)
    w.declare("tp", max_vm=1)
    w.run(300)
    assert theirs.server_id in w.cloud.servers
    assert theirs.metadata["reattrib"] == "true"
    held = {vm.server_id: vm.attribution for vm in w.vms("tp")}
    assert held[theirs.server_id].by == "declaration"
    assert held[silent.server_id] is not None


def test_what_we_granted_since_is_not_undone(world):
    w = world()
    server = w.cloud.add("old", KEY)
    w.declare("tp", max_vm=2)
    w.run(20)
    w.ask("seat-1", "tp", claimant="carol")
    w.run(30)
    say(w, server, attributed=True)
    say(w, server, attributed=False)
    w.run(60)
    assert server.metadata["poolsm_claimant"] == "carol"
    (vm,) = w.vms("tp")
    assert vm.attribution.by == "assignment"


def test_a_declaration_is_forgotten_with_its_server(world):
    w = world()
    server = w.cloud.add("old", KEY)
    say(w, server, attributed=True)
    w.declare("tp", max_vm=2)
    w.run(60)
    assert server.server_id in w.fleet.state.declared
    w.release(server.server_id)
    w.run(60)
    assert not w.cloud.servers
    assert not w.fleet.state.declared


def test_explain_tells_of_it(world):
    w = world()
    server = w.cloud.add("old", KEY)
    say(w, server, attributed=True)
    w.declare("tp", max_vm=2)
    w.run(60)
    story = explain_vm(w.entries, server.server_id)
    texts = " ".join(line.text for line in story.lines)
    assert "declared to be prof's (by migration of old.db)" in texts
