"""`up`, `down`, `status`, `env`, `destroy`: the lab as a whole."""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.openstack import config, install, seeding, services
from tests.lab.openstack.processes import Processes
from tests.lab.openstack.settings import (
    INSIDE,
    REQUIREMENTS,
    SOURCES,
    Lab,
    LabError,
    made,
    read_json,
)
from tests.lab.openstack.talk import say

LOCK_PATIENCE = 600.0
DOWN = 3


@contextmanager
def _alone(lab: Lab) -> Iterator[None]:
    """One command at a time per directory; a second one waits, then finds the result."""
    with (made(lab.directory) / "lock").open("a") as file:
        end = time.monotonic() + LOCK_PATIENCE
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise LabError(f"another command holds {lab.directory}/lock") from None
                if not told:
                    say("another command of this lab is at work; waiting for it")
                    told = True
                time.sleep(0.2)
        yield


# ------------------------------------------------------------------------------------- up
def up(lab: Lab, *, keep: bool, reseed: bool) -> None:
    """Start everything; a lab that is up and well is left as it is."""
    install.require_root()
    with _alone(lab):
        processes = Processes(lab)
        if processes.running():
            _refuse_other_ports(lab)
            if _healthy(processes) and not reseed:
                say("the lab is up already")
                return
            say("a part of the lab runs: stopping it first")
        processes.stop_all()
        if not install.installed(lab):
            raise LabError("not installed (or other versions are pinned now): run `setup`")
        _refuse_taken_ports(lab)
        seeded = not reseed and _seed_fits(lab)
        try:
            _start(processes, seeded=seeded, keep=keep)
        except BaseException:  # Ctrl-C too: half a lab is nothing to leave behind
            processes.stop_all()
            raise
    say(f"up: {lab.clouds_yaml}")


def _refuse_other_ports(lab: Lab) -> None:
    claimed = read_json(lab.claim).get("base")
    if claimed != lab.base:
        raise LabError(
            f"the lab in {lab.directory} runs on port base {claimed}, not {lab.base}: "
            "`down` first, or give the other one its own POOLSM_LAB_DIR"
        )


def _refuse_taken_ports(lab: Lab) -> None:
    taken = services.taken_ports(lab)
    if taken:
        owner = read_json(_machine_claim(lab)).get("directory", "another program")
        raise LabError(
            f"ports {', '.join(map(str, taken))} are taken by {owner}: "
            "set POOLSM_LAB_PORT_BASE to a free range"
        )


def _machine_claim(lab: Lab) -> Path:
    """Who has these ports, for the message to a second lab in another directory."""
    folder = Path("/run") if os.access("/run", os.W_OK) else Path("/var/tmp")
    return folder / f"poolsm-openstack-lab-{lab.base}.json"


def _start(processes: Processes, *, seeded: bool, keep: bool) -> None:
    lab = processes.lab
    shutil.rmtree(lab.run, ignore_errors=True)
    made(lab.run)
    claim = json.dumps({"directory": str(lab.directory), "base": lab.base, "nodes": lab.nodes})
    lab.claim.write_text(claim)
    _machine_claim(lab).write_text(claim)
    if not seeded:
        _make_seed(processes)
    elif not (keep and (lab.state / "mysql").is_dir()):
        _lay(lab.seed / "state", lab.state)
        say("data: laid from the seed")
    config.write_all(lab)
    for name in (lab.clouds_yaml.name, lab.lab_json.name):
        shutil.copy(lab.seed / name, lab.directory / name)
    services.start_base(processes)
    services.start_openstack(processes)
    services.warm_up(processes)


def _make_seed(processes: Processes) -> None:
    """Make the databases, fill them, stop, and keep the result as the seed."""
    lab = processes.lab
    say("first start: making and seeding the databases (2-3 minutes)")
    for folder in (lab.state, lab.seed):
        shutil.rmtree(folder, ignore_errors=True)
    config.write_all(lab)
    services.start_base(processes)
    seeding.make_databases(processes)
    services.start_api(processes, "keystone")
    services.wait_for_apis(processes, ["keystone"])
    seeding.seed_accounts(processes)
    services.start_openstack(processes)
    seeding.seed_resources(processes)
    processes.stop_all()
    _lay(lab.state, lab.seed / "state")
    for path in (lab.clouds_yaml, lab.lab_json):
        shutil.copy(path, lab.seed / path.name)
    _seed_stamp(lab).write_text(_seed_id(lab))  # last: an unfinished seed has none
    say("seed: kept")


def _lay(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    made(target.parent)
    shutil.copytree(source, target, symlinks=True)


def _seed_stamp(lab: Lab) -> Path:
    return lab.seed / "stamp"


def _seed_fits(lab: Lab) -> bool:
    stamp = _seed_stamp(lab)
    return stamp.exists() and stamp.read_text() == _seed_id(lab)


def _seed_id(lab: Lab) -> str:
    """Changes with all that a seed depends on: place, ports, versions, what is seeded."""
    digest = hashlib.sha256(f"{lab.directory} {lab.base} {lab.nodes}".encode())
    for path in (REQUIREMENTS, INSIDE / "seed.py", SOURCES / "seeding.py", SOURCES / "config.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


# ----------------------------------------------------------------------------- the others
def down(lab: Lab) -> int:
    """Stop everything that this lab started."""
    with _alone(lab):
        ended = _stop(lab)
    say(f"down ({ended} processes ended)")
    return 0


def _stop(lab: Lab) -> int:
    ended = Processes(lab).stop_all()
    machine_claim = _machine_claim(lab)
    if read_json(machine_claim).get("directory") == str(lab.directory):
        machine_claim.unlink(missing_ok=True)
    return ended


def destroy(lab: Lab) -> int:
    """Stop, and remove the data and the seed; what `setup` installed stays."""
    with _alone(lab):
        _stop(lab)
        for folder in (lab.run, lab.state, lab.seed, lab.keys):
            shutil.rmtree(folder, ignore_errors=True)
        for path in (lab.clouds_yaml, lab.lab_json):
            path.unlink(missing_ok=True)
    say("data removed")
    return 0


def _healthy(processes: Processes) -> bool:
    return set(processes.running()) >= set(services.ALL) and services.workers_report(processes)


def status(lab: Lab) -> int:
    """Print one line per process; 0 if all is well, 1 if not, 3 if the lab is down."""
    processes = Processes(lab)
    if not processes.running():
        print(f"the lab in {lab.directory} is down")
        return DOWN
    total = 0
    for name in services.ALL:
        seen = processes.seen(name)
        if seen is None:
            print(f"{name:15} not running")
            continue
        count, size = processes.memory(name)
        total += size
        print(f"{name:15} pid {seen.pid:<8} {count:3} processes {size // 1024:6} MiB")
    well = _healthy(processes)
    verdict = "healthy" if well else "NOT healthy"
    print(f"{lab.directory}, ports {lab.base + 1}-{lab.base + 9}: {verdict}, {total // 1024} MiB")
    return 0 if well else 1


def env(lab: Lab) -> int:
    """Print what a shell or a test needs to reach the lab."""
    for name, value in (
        ("OS_CLIENT_CONFIG_FILE", lab.clouds_yaml),
        ("POOLSM_LAB_DIR", lab.directory),
        ("POOLSM_LAB_JSON", lab.lab_json),
        ("POOLSM_LAB_AUTH_URL", lab.auth_url),
    ):
        print(f"export {name}={value}")
    return 0
