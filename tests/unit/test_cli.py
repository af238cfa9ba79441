"""The command line as its users meet it: real processes, real logs, the embedded cloud."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poolsm_runners.cli import COMMANDS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/pools.toml"
CODE = "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()"
CLEAN = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("OS_", "INFRA_", "SSH_PUB", "API_", "NETWORK_", "SERVER_", "METADATA_"))
}
ENV = {**CLEAN, "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}", "TZ": "UTC"}

POOL = """
[[pool]]
id = "lab"
user = "ann"
image = "worker-image"
flavor = "m1.tiny"
networks = ["lab-net"]
min_vm = {min_vm}
max_vm = {max_vm}
config_data = '''
#!/bin/sh
echo sesame
'''
"""


def poolsm(*arguments, log=None, check=None, env=None):
    named = ["--log", str(log)] if log else []
    done = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, arguments), *named],
        capture_output=True,
        text=True,
        timeout=60,
        env=env or ENV,
        check=False,
    )
    if check is not None:
        assert done.returncode == check, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def pool_file(folder, *, min_vm=2, max_vm=4, name="pools.toml"):
    path = folder / name
    path.write_text(POOL.format(min_vm=min_vm, max_vm=max_vm))
    return path


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A log of a run that filled a pool of two."""
    folder = tmp_path_factory.mktemp("ran")
    log = folder / "log.db"
    run = poolsm(
        "run", pool_file(folder), "--cloud", "sim", "--speed", 20, "--for", 3, log=log, check=0
    )
    assert "SIMULATED" in run.stderr
    return log


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    text = poolsm(command, "--help", check=0).stdout
    assert "Example" in text
    assert f"poolsm {command}" in text


def test_help_imports_nothing_slow():
    code = (
        "import sys; from poolsm_runners.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'openstack', 'aiohttp', 'rich', 'aiosqlite'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENV, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_run_fills_its_pool_and_status_says_so(ran):
    found = json.loads(poolsm("status", "--vms", "--json", log=ran, check=0).stdout)
    (pool,) = found["fleet"]["pools"]
    assert (pool["key"], pool["capacity"], pool["ready"]) == ("ann/lab", 2, 2)
    assert pool["reason"] == "Satisfied"
    assert {vm["state"] for vm in found["vms"]} == {"ACTIVE"}
    assert pool["origin"].startswith("file ")
    assert "2 of 2" in poolsm("status", log=ran, check=0).stdout


def test_replay_finds_no_difference_under_any_hash_seed(ran):
    for seed in ("0", "1", "4242"):
        done = poolsm("replay", "--json", log=ran, check=0, env={**ENV, "PYTHONHASHSEED": seed})
        assert json.loads(done.stdout)["same"] is True


def test_an_edited_export_is_found_and_named(ran, tmp_path):
    export = tmp_path / "log.jsonl"
    poolsm("events", "export", "--out", export, log=ran, check=0)
    text = export.read_text()
    assert "sesame" not in text
    poolsm("replay", log=export, check=0)
    edited = tmp_path / "edited.jsonl"
    edited.write_text(text.replace('"max_vm":4', '"max_vm":1').replace('"min_vm":2', '"min_vm":1'))
    done = poolsm("replay", log=edited, check=1)
    assert "CreateServer" in done.stdout
    assert "ann/lab" in done.stdout


def test_an_export_becomes_a_log_again_without_secrets(ran, tmp_path):
    export, copy = tmp_path / "log.jsonl", tmp_path / "copy.db"
    poolsm("events", "export", "--out", export, log=ran, check=0)
    poolsm("events", "import", export, log=copy, check=0)
    assert poolsm("replay", log=copy, check=0).stdout.count("no difference") == 1
    assert poolsm("events", "import", export, log=copy).returncode != 0  # never over a log
    refused = poolsm("user-data", "ann/lab", log=copy)
    assert refused.returncode == 3
    assert "secret" in refused.stderr


def test_user_data_shows_what_a_vm_gets(ran):
    done = poolsm("user-data", "lab", log=ran, check=0)
    assert "echo sesame" in done.stdout
    assert "vmuser" in done.stdout


def test_explain_tells_of_vm_pool_and_command(ran):
    vms = json.loads(poolsm("status", "--vms", "--json", log=ran, check=0).stdout)["vms"]
    of_vm = poolsm("explain", vms[0]["server_id"], log=ran, check=0).stdout
    assert "missing = 2 - 0 = 2" in of_vm
    assert "ACTIVE" in of_vm
    assert "ann/lab was declared" in poolsm("explain", "ann/lab", log=ran, check=0).stdout
    assert "ann/lab was declared" in poolsm("explain", "lab", log=ran, check=0).stdout
    assert json.loads(poolsm("explain", vms[0]["key"], "--json", log=ran, check=0).stdout)["found"]
    assert poolsm("explain", "nobody", log=ran).returncode == 1


def test_events_are_listed_and_filtered(ran):
    lines = poolsm("events", "list", "--kind", "PoolDeclared", "--json", log=ran, check=0).stdout
    (line,) = lines.splitlines()
    assert json.loads(line)["event"]["spec"]["serverpool_id"] == "lab"
    assert "sesame" not in lines
    assert len(poolsm("events", "list", "--limit", 3, log=ran, check=0).stdout.splitlines()) == 3


def test_a_dry_run_says_what_it_would_do_and_leaves_no_trace(tmp_path):
    log = tmp_path / "log.db"
    done = poolsm("run", pool_file(tmp_path), "--cloud", "sim", "--dry-run", log=log, check=0)
    assert done.stdout.count("would issue CreateServer lab-") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["pools.toml"]


def test_a_dry_run_beside_a_log_changes_nothing_in_it(ran, tmp_path):
    before = ran.read_bytes()
    bigger = pool_file(tmp_path, min_vm=3)
    done = poolsm("run", bigger, "--cloud", "sim", "--dry-run", log=ran, check=0)
    assert done.stdout.count("would issue CreateServer") == 1
    assert ran.read_bytes() == before


def test_check_names_every_error_at_once(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(
        '[[pool]]\nid = "a"\nuser = "b"\nimage = "i"\nflavor = "f"\nmin_vm = 5\nmax_vm = 2\n'
        'off_days = ["sonntag"]\nnetwrks = []\n'
    )
    done = poolsm("check", path, check=1)
    for part in ("bad.toml", "min_vm", "above max_vm", "sonntag", "netwrks", "networks"):
        assert part in done.stderr
    assert json.loads(poolsm("check", path, "--json", check=1).stdout)["ok"] is False
    assert poolsm("check", EXAMPLE, check=0).stdout.count("ok: ") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("statsu",), 2, "did you mean 'status'"),
        (("run", "--speed", "0"), 2, "must be above 0"),
        (("run", "--start-at", "tomorrow"), 2, "is no time"),
        (("run", "--cloud", "x", "--speed", "2"), 2, "simulated cloud"),
        (("run", "--time-zone", "Mars/Olympus"), 1, "does not exist"),
        (("run", "nowhere.toml"), 1, "nowhere.toml"),
        (("status",), 3, "there is no log"),
        (("release", "x"), 3, "there is no log"),
        (("assign", "a", "--to", "b"), 3, "there is no log"),
    ],
)
def test_a_wrong_call_gets_one_line_and_an_exit_code(tmp_path, arguments, code, says):
    done = poolsm(*arguments, env={**ENV, "POOLSM_LOG": str(tmp_path / "none.db")}, check=code)
    assert says in done.stderr
    assert all(line.startswith("poolsm: ") for line in done.stderr.splitlines())
    assert not (tmp_path / "none.db").exists()


def test_an_unknown_cloud_is_named_with_those_that_there_are(tmp_path):
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text("clouds:\n  school:\n    auth: {auth_url: 'http://127.0.0.1:9/v3'}\n")
    env = {**ENV, "OS_CLIENT_CONFIG_FILE": str(clouds)}
    done = poolsm("run", "--cloud", "scool", log=tmp_path / "log.db", env=env, check=3)
    assert "scool" in done.stderr
    assert "school" in done.stderr


@pytest.fixture
def running(tmp_path):
    """A runner on the embedded cloud, and its log."""
    log = tmp_path / "log.db"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            CODE,
            "run",
            str(pool_file(tmp_path)),
            "--cloud",
            "sim",
            "--speed",
            "20",
            "--log",
            str(log),
            "--json",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
    )
    socket = Path(f"{log}.sock")
    until(socket.exists)
    yield log, process
    if process.poll() is None:
        process.kill()
    process.wait()
    process.stderr.close()


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.05)


def capacity(log):
    found = json.loads(poolsm("status", "--json", log=log, check=0).stdout)
    return {pool["key"]: pool["capacity"] for pool in found["fleet"]["pools"]}


def test_changes_reach_a_running_runner_and_are_answered_when_durable(running, tmp_path):
    log, process = running
    until(lambda: capacity(log) == {"ann/lab": 2})
    granted = poolsm(
        "assign", "lab", "--to", "carol", "--request-id", "r1", "--json", log=log, check=0
    )
    vm = json.loads(granted.stdout)["vm"]
    assert vm["claimant"] == "carol"
    again = poolsm(
        "assign", "lab", "--to", "carol", "--request-id", "r1", "--json", log=log, check=0
    )
    assert json.loads(again.stdout)["vm"]["server_id"] == vm["server_id"]
    refused = poolsm("pools", "remove", "lab", log=log, check=1)
    assert "--include-assigned" in refused.stderr
    poolsm("release", "r1", log=log, check=0)
    poolsm("pools", "apply", pool_file(tmp_path, min_vm=3, name="more.toml"), log=log, check=0)
    until(lambda: capacity(log) == {"ann/lab": 3})
    poolsm("pools", "remove", "lab", log=log, check=0)
    until(lambda: capacity(log) == {})
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert not Path(f"{log}.sock").exists()
    deleted = poolsm("explain", vm["server_id"], log=log, check=0).stdout
    assert "carol" in deleted
    assert "It is deleted" in deleted
    poolsm("replay", log=log, check=0)


def test_a_second_runner_on_one_log_is_refused_with_the_holders_name(running):
    log, process = running
    done = poolsm("run", "--cloud", "sim", log=log, check=3)
    assert str(process.pid) in done.stderr
    assert process.poll() is None


def test_after_kill_9_the_next_run_goes_on(running, tmp_path):
    log, process = running
    until(lambda: capacity(log) == {"ann/lab": 2})
    process.kill()
    process.wait()
    poolsm(
        "run", tmp_path / "pools.toml", "--cloud", "sim", "--speed", 20, "--for", 2, log=log,
        check=0,
    )  # fmt: skip
    assert capacity(log) == {"ann/lab": 2}
    created = poolsm("events", "list", "--kind", "Ticked", log=log, check=0).stdout
    assert created.count("CreateServer") == 2
    poolsm("replay", log=log, check=0)


def test_without_a_runner_a_change_waits_in_the_log(ran, tmp_path):
    log = tmp_path / "log.db"
    log.write_bytes(ran.read_bytes())
    done = poolsm("assign", "lab", "--to", "dave", "--request-id", "later", log=log, check=4)
    assert "no runner" in done.stdout + done.stderr
    poolsm("run", "--cloud", "sim", "--speed", 20, "--for", 2, log=log, check=0)
    found = json.loads(poolsm("status", "--json", log=log, check=0).stdout)
    (request,) = found["fleet"]["assignments"]
    assert (request["claimant"], request["state"]) == ("dave", "granted")


def test_status_says_what_an_operator_last_did(ran, tmp_path):
    log = tmp_path / "log.db"
    log.write_bytes(ran.read_bytes())
    poolsm("reset", "lab", log=log)
    poolsm("pause", log=log)
    said = poolsm("status", log=log, check=0).stdout.splitlines()
    assert [line for line in said if line.startswith("  ann/lab: reset by command line of ")]
    assert [line for line in said if line.startswith("  paused by command line of ")]
    found = status_of(log)["fleet"]
    assert found["last_word"]["deed"] == "paused"
    assert found["pools"][0]["last_word"]["deed"] == "reset"


def test_a_second_run_on_the_embedded_cloud_finds_what_the_first_one_left(ran, tmp_path):
    log = tmp_path / "log.db"
    log.write_bytes(ran.read_bytes())
    before = {vm["server_id"] for vm in status_of(log)["vms"]}
    bigger = pool_file(tmp_path, min_vm=4)
    poolsm("run", bigger, "--cloud", "sim", "--speed", 20, "--for", 3, log=log, check=0)
    found = status_of(log)
    assert {vm["state"] for vm in found["vms"]} == {"ACTIVE"}
    assert len(found["vms"]) == 4
    assert before < {vm["server_id"] for vm in found["vms"]}
    assert {c["status"] for c in found["fleet"]["conditions"]} == {"False"}


def status_of(log):
    return json.loads(poolsm("status", "--vms", "--json", log=log, check=0).stdout)


@pytest.mark.parametrize("where", ["full", "closed", "unread"])
def test_a_runner_outlives_where_its_lines_go(tmp_path, where):
    """stderr on a full disk, closed, or a pipe whose reader went away: the log is what counts."""
    log = tmp_path / "fleet.db"
    command = [sys.executable, "-c", CODE, "run", pool_file(tmp_path), "--log", log, "--for", "2"]
    if where == "closed":
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread, Path("/dev/full").open("wb") as full:
        streams = {"full": full, "closed": subprocess.DEVNULL, "unread": unread}
        done = subprocess.run(
            [*map(str, command)], env=ENV, stderr=streams[where], timeout=60, check=False
        )
    assert done.returncode == 0
    assert "no runner runs" in poolsm("status", log=log, check=0).stdout
