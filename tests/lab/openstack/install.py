"""`setup`: the database and message broker from Debian, OpenStack from PyPI.

OpenStack goes into a virtual environment of the lab's own with every version pinned
(its requirements contradict those of ordinary projects, and an unpinned one changes
its answers overnight). Nothing is installed that is there already.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.openstack.settings import REQUIREMENTS, Lab, LabError, LabImpossibleError, made
from tests.lab.openstack.talk import say

# The "-core" packages bring the programs without a system service; RabbitMQ has no such
# split, so its service is kept from starting below.
DEBIAN_PACKAGES = ("mariadb-server-core", "mariadb-client-core", "rabbitmq-server")
DEBIAN_SERVICES = ("rabbitmq-server.service", "epmd.service", "epmd.socket")
POLICY = Path("/usr/sbin/policy-rc.d")
APT = ("apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600")


def require_root() -> None:
    """A lab runs its own MariaDB as root and installs packages; say so in one line."""
    if os.geteuid() != 0:
        raise LabImpossibleError("the lab needs root (apt-get, and MariaDB started by hand)")


def setup(lab: Lab) -> None:
    """Install what is missing; a second call only looks."""
    require_root()
    _debian_packages()
    _virtual_environment(lab)
    say("set up")


def installed(lab: Lab) -> bool:
    """Whether the virtual environment holds exactly the pinned requirements."""
    stamp = _stamp(lab)
    return stamp.exists() and stamp.read_text() == _fingerprint()


def _debian_packages() -> None:
    missing = [name for name in DEBIAN_PACKAGES if not _has_package(name)]
    if importlib.util.find_spec("ensurepip") is None:
        missing.append("python3-venv")
    if not missing:
        say("system packages: all there")
        return
    if shutil.which("apt-get") is None:
        raise LabImpossibleError(f"no apt-get here to install {', '.join(missing)}")
    say(f"apt-get install {' '.join(missing)}")
    with _services_kept_down():
        _apt("update")
        _apt("install", "--no-install-recommends", *missing)
    if "rabbitmq-server" in missing and shutil.which("systemctl"):
        for unit in DEBIAN_SERVICES:  # or the next boot would start them
            subprocess.run(["systemctl", "disable", unit], capture_output=True, check=False)


def _has_package(name: str) -> bool:
    if shutil.which("dpkg-query") is None:
        return False
    query = ["dpkg-query", "-W", "-f=${Status}", name]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout == "install ok installed"


def _apt(*words: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        [*APT, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise LabImpossibleError(f"apt-get {words[0]} failed: {last}")


@contextmanager
def _services_kept_down() -> Iterator[None]:
    """Deny service starts while packages are installed, unless a policy stands already."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def _fingerprint() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return hashlib.sha256(f"{version}\n{REQUIREMENTS.read_text()}".encode()).hexdigest()


def _stamp(lab: Lab) -> Path:
    return lab.venv / "poolsm-lab-stamp"


def _virtual_environment(lab: Lab) -> None:
    if installed(lab):
        say("virtual environment: as pinned")
        return
    say(f"virtual environment with OpenStack in {lab.venv} (a few minutes)")
    made(lab.directory)
    shutil.rmtree(lab.venv, ignore_errors=True)
    # Compile the byte code now: without it each start of the lab compiles 200 packages.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    pip = [str(lab.python), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    for command in (
        [sys.executable, "-m", "venv", str(lab.venv)],
        [*pip, "--no-deps", "-r", str(REQUIREMENTS)],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
            raise LabError(f"{' '.join(command[:4])}: exit {done.returncode}\n{tail}")
    _stamp(lab).write_text(_fingerprint())
