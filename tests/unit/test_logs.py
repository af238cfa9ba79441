"""Log lines: every one about a command leads to it, in the log, in its pool, in the cloud."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import Answer, ListingError
from poolsm_runners.control_requests import Assign, Pause, Release
from poolsm_runners.log import sqlite
from poolsm_runners.logs import log_watcher
from poolsm_runners.session import perform
from tests.unit.observing import Run, spec, until

ROOT = Path(__file__).parents[2]
RUNNERS = ROOT / "runners" / "poolsm_runners"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CALL = re.compile(r'(?:logger\.\w+|\bsay|_say_condition)\(\s*"([a-z_.]+)"')


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A run in which a server was made, claimed and deleted: its lines, and its log's entries."""
    log = tmp_path_factory.mktemp("logs") / "log.db"
    with (
        capture_logs() as lines,
        Run(log, spec(min_vm=1, max_vm=1), metrics="", watchers=[log_watcher]) as run,
    ):

        def answered(kind):
            found = [line for line in lines if line["event"] == "command.answered"]
            return any(line["kind"] == kind for line in found)

        until(lambda: answered("CreateServer"), "it is created")
        perform(log, Assign("ann/lab", "seat-1", "eve", 600.0))
        until(lambda: answered("ClaimServer"), "it is claimed")
        perform(log, Release("seat-1"))
        until(lambda: answered("DeleteServer"), "it is deleted")
        until(lambda: any(line.get("state") == "deleted" for line in lines), "it is gone")
        run.stop()
    return lines, {entry.position: entry for entry in sqlite.open_read_only(log).read()}


def test_every_line_about_a_command_says_which_where_and_of_what(lived):
    lines, entries = lived
    about = [line for line in lines if line["event"].startswith("command.")]
    assert {line["event"] for line in about} == {"command.issued", "command.answered"}
    servers = set()
    for line in about:
        assert UUID.fullmatch(line["command_id"]), line
        assert line["pool"] == "ann/lab", line
        assert line["vm"].startswith("lab-"), line
        issued = line["event"] == "command.issued"
        entry = entries[line["position"]]
        if issued:
            (command,) = [c for c in entry.commands if c.command_id == line["command_id"]]
            assert type(command).__name__ == line["kind"]
            assert command.reason.text == line["why"]
        else:
            assert entry.event.command_id == line["command_id"]
            assert line["outcome"] == "done"
            assert line["seconds"] >= 0
        if issued and line["kind"] == "CreateServer":
            assert line["server_id"] == ""  # it is not known yet
        else:
            servers.add(line["server_id"])
    made = next(line for line in about if line["event"] == "command.answered")
    assert made["server_id"] in servers
    assert all(map(UUID.fullmatch, servers))


def test_every_line_of_an_event_has_its_position(lived):
    lines, entries = lived
    of_events = ("command.", "vm.", "anomaly", "pool.condition", "runner.", "listing.failed")
    found = [line for line in lines if line["event"].startswith(of_events)]
    assert {"vm.moved", "runner.started", "pool.condition"} <= {line["event"] for line in found}
    assert all(line["position"] in entries for line in found)
    moves = [line for line in lines if line["event"] == "vm.moved"]
    assert {line["pool"] for line in moves} == {"ann/lab"}
    assert {"ACTIVE", "deleting", "deleted"} <= {line["state"] for line in moves}
    assert all(UUID.fullmatch(line["server_id"]) for line in moves)


def test_a_refusal_is_a_warning_with_the_clouds_words(tmp_path, monkeypatch):
    async def refuse(self, command, user_data=""):
        return Answer(403, error_kind="forbidden", message="Quota exceeded for cores")

    monkeypatch.setattr(Gateway, "execute", refuse)
    with (
        capture_logs() as lines,
        Run(tmp_path / "log.db", metrics="", watchers=[log_watcher]),
    ):

        def refusals():
            return [line for line in lines if line["event"] == "command.answered"]

        line = until(refusals, "a refusal")[0]
    assert line["log_level"] == "warning"
    assert (line["outcome"], line["http_status"]) == ("quota", 403)
    assert line["message"] == "Quota exceeded for cores"


def test_conditions_are_lines_when_they_begin_and_when_they_end(tmp_path, monkeypatch):
    """Of the fleet at any tick, though nothing is stored; of a pool when it was looked at."""
    listing, failing = Gateway.list_servers, threading.Event()

    async def fail(self):
        if failing.is_set():
            raise ListingError("500 oops", http_status=500)
        return await listing(self)

    monkeypatch.setattr(Gateway, "list_servers", fail)
    log = tmp_path / "log.db"
    with capture_logs() as lines, Run(log, speed=60, watchers=[log_watcher]) as run:

        def said(name, **about):
            found = [line for line in lines if line["event"] == name]
            return [line for line in found if about.items() <= line.items()]

        until(lambda: said("pool.condition", type="Provisioned", status="True"), "it is full")
        failing.set()
        until(lambda: said("fleet.condition", type="ListingStale", status="True"), "it is stale")
        failing.clear()
        until(lambda: said("fleet.condition", type="ListingStale", status="False"), "it is over")
        perform(log, Pause("ann/lab", "maintenance"))
        until(lambda: said("pool.condition", type="Paused", status="True"), "it is paused")
        run.stop()
    stale, over = said("fleet.condition", type="ListingStale")
    assert (stale["log_level"], stale["reason"]) == ("warning", "TooOld")
    assert "limit is 30 s; last error: 500 oops" in stale["message"]
    assert (over["log_level"], over["reason"]) == ("info", "Clear")
    (paused,) = said("pool.condition", type="Paused")
    assert (paused["pool"], paused["log_level"]) == ("ann/lab", "warning")
    provisioned = said("pool.condition", type="Provisioned")
    assert {line["log_level"] for line in provisioned} == {"info"}


CODE = "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()"


def test_json_lines_are_one_object_each_with_time_and_level(tmp_path):
    (tmp_path / "pools.toml").write_text(
        '[[pool]]\nid = "lab"\nuser = "ann"\nimage = "worker-image"\nflavor = "m1.tiny"\n'
        'networks = ["lab-net"]\nmin_vm = 1\nmax_vm = 1\nconfig_data = """#!/bin/sh\nsesame\n"""\n'
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "POOLSM_"))}
    done = subprocess.run(
        [sys.executable, "-c", CODE, "run", "pools.toml", "--json", "--for", "4", "--speed", "20"],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": f"{ROOT}:{RUNNERS.parent}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert {"runner.started", "command.issued", "command.answered"} <= {x["event"] for x in lines}
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["timestamp"])
        assert line["level"] in {"info", "warning", "error"}
    assert "sesame" not in done.stderr


def test_every_kind_of_line_is_documented():
    said = {name for path in RUNNERS.rglob("*.py") for name in CALL.findall(path.read_text())} - {
        "control.client_lost"
    }  # below info, so never shown
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert len(said) > 15
    assert sorted(name for name in said if f"| `{name}` |" not in page) == []
