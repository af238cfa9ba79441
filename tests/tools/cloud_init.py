"""The real cloud-init, for tests: fetched from Debian once, unpacked in a folder, not installed.

`apt-get install cloud-init` would enable its services on the machine that runs the tests, so its
packages are only downloaded and unpacked (`dpkg-deb -x`), apt's own lists and cache too are kept in
that folder, and the code is run from there by the system's Python. The folder is
`$POOLSM_TOOLS_DIR/cloud-init`, by default under `/var/tmp/poolsm-tools`; delete it to start anew.

Run as a script it fetches and says where to: `python tests/tools/cloud_init.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import attrs

SYSTEM_PYTHON = "/usr/bin/python3"
# cloud-init and what it imports for user-data and schemas, as Debian names it.
PACKAGES = (
    "cloud-init",
    "python3-attr",
    "python3-certifi",
    "python3-chardet",
    "python3-charset-normalizer",
    "python3-configobj",
    "python3-idna",
    "python3-jinja2",
    "python3-json-pointer",
    "python3-jsonpatch",
    "python3-jsonschema",
    "python3-markupsafe",
    "python3-netifaces",
    "python3-oauthlib",
    "python3-pyrsistent",
    "python3-requests",
    "python3-serial",
    "python3-six",
    "python3-urllib3",
    "python3-yaml",
)

# Runs inside cloud-init's Python: a user-data text goes through its own processor and handlers as
# at boot, but for boothooks, which would be executed. Out comes what was made of it.
_PROCESS = r"""
import json, logging, os, sys, tempfile
logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
from cloudinit import handlers, helpers, user_data, util
from cloudinit.distros import ug_util
from cloudinit.handlers.cloud_config import CloudConfigPartHandler
from cloudinit.handlers.jinja_template import JinjaTemplatePartHandler
from cloudinit.handlers.shell_script import ShellScriptPartHandler
from cloudinit.settings import PER_INSTANCE

class Source:
    def get_instance_id(self):
        return "i-test"

class Distro:
    def get_default_user(self):
        return {"name": "debian", "groups": ["adm"]}

with tempfile.TemporaryDirectory() as cloud:
    paths = helpers.Paths({"cloud_dir": cloud, "run_dir": cloud}, Source())
    os.makedirs(paths.get_ipath("scripts"))
    os.symlink(os.path.dirname(paths.get_ipath("scripts")), paths.instance_link)
    with open(paths.get_runpath("instance_data_sensitive"), "w") as file:
        json.dump({"v1": {"region": "par1"}}, file)
    message = user_data.UserDataProcessor(paths).process(sys.stdin.buffer.read())
    parts = [
        [part.get_content_type(), part.get_filename(), util.fully_decoded_payload(part)]
        for part in message.walk()
        if part.get_content_maintype() != "multipart"
    ]
    config, scripts = CloudConfigPartHandler(paths), ShellScriptPartHandler(paths)
    known = helpers.ContentHandlers()
    jinja = JinjaTemplatePartHandler(paths, sub_handlers=[config, scripts])
    for handler in (config, scripts, jinja):
        known.register(handler)
    for handler in (config, scripts):
        handlers.call_begin(handler, None, PER_INSTANCE)
    handlers.walk(message, handlers.walker_callback, {
        "handlers": known, "handlerdir": cloud, "data": None, "frequency": PER_INSTANCE,
        "handlercount": 0, "excluded": ["text/cloud-boothook", "text/part-handler"],
    })
    for handler in (config, scripts):
        handlers.call_end(handler, None, PER_INSTANCE)
    text = util.load_file(paths.get_ipath("cloud_config"))
    folder = paths.get_ipath("scripts")
    merged = util.load_yaml(text, default={})
    users, _groups = ug_util.normalize_users_groups(util.load_yaml(text, default={}), Distro())
    json.dump({
        "parts": parts,
        "cloud_config": merged,
        "cloud_config_text": text,
        "users": [[name, config] for name, config in users.items()],
        "scripts": {n: util.load_file(os.path.join(folder, n)) for n in sorted(os.listdir(folder))},
    }, sys.stdout)
"""


class CloudInitUnavailableError(Exception):
    """cloud-init cannot be had on this machine; the text says why and what would help."""


@attrs.frozen
class Processed:
    """What cloud-init made of a user-data text.

    Attributes:
        parts: (content type, file name, text) of each part, after its own detection.
        cloud_config: all cloud-configs merged, as the modules of the boot see them.
        cloud_config_text: the same as the file that cloud-init writes.
        users: (name, settings) in the order in which they are created; the image's own user is
            `debian`.
        scripts: the text of each script by file name, in the order in which they run.
        log: its warnings and errors.
    """

    parts: list[tuple[str, str, str]]
    cloud_config: dict[str, Any]
    cloud_config_text: str
    users: list[tuple[str, dict[str, Any]]]
    scripts: dict[str, str]
    log: str


@attrs.frozen
class CloudInit:
    """An unpacked cloud-init."""

    root: Path

    def _run(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [SYSTEM_PYTHON, *args],
            input=stdin.encode(),
            env={
                "PATH": "/usr/bin:/bin",
                "LC_ALL": "C.UTF-8",
                "PYTHONPATH": str(self.root / "usr/lib/python3/dist-packages"),
            },
            capture_output=True,
            timeout=60,
            check=False,
        )

    def version(self) -> str:
        """cloud-init's version, such as `22.4.2`."""
        done = self._run("-c", "from cloudinit.version import __VERSION__ as v; print(v)")
        if done.returncode != 0:
            raise CloudInitUnavailableError(
                f"the cloud-init in {self.root} does not start under {SYSTEM_PYTHON}: "
                f"{done.stderr.decode()[-500:]}"
            )
        return done.stdout.decode().strip()

    def schema_errors(self, cloud_config: str) -> str:
        """What `cloud-init schema` says against a cloud-config; empty if it is valid."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            file.write(cloud_config)
            file.flush()
            done = self._run("-m", "cloudinit.cmd.main", "schema", "--config-file", file.name)
        return "" if done.returncode == 0 else (done.stdout + done.stderr).decode()

    def process(self, user_data: str) -> Processed:
        """Take a user-data text through cloud-init's own processor and handlers, as at boot."""
        done = self._run("-c", _PROCESS, stdin=user_data)
        log = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise AssertionError(f"cloud-init failed on the user-data:\n{log}")
        found = json.loads(done.stdout)
        return Processed(
            parts=[tuple(part) for part in found["parts"]],
            cloud_config=found["cloud_config"],
            cloud_config_text=found["cloud_config_text"],
            users=[tuple(user) for user in found["users"]],
            scripts=found["scripts"],
            log=log,
        )


def _call(args: list[str], cwd: Path) -> None:
    try:
        done = subprocess.run(
            args, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CloudInitUnavailableError(f"{args[0]} failed: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise CloudInitUnavailableError(f"{args[0]} ended with {done.returncode}: {''.join(last)}")


def _fetch(folder: Path) -> None:
    """Download and unpack into `folder`, whole or not at all: the last step is a rename."""
    for tool in ("apt-get", "dpkg-deb", SYSTEM_PYTHON):
        if shutil.which(tool) is None:
            raise CloudInitUnavailableError(f"{tool} is missing: this needs a Debian or Ubuntu")
    work = Path(tempfile.mkdtemp(prefix="fetch-", dir=folder))
    try:
        state, cache, debs, root = (work / name for name in ("state", "cache", "debs", "root"))
        for path in (state / "lists/partial", cache / "archives/partial", debs, root):
            path.mkdir(parents=True)
        apt = [
            "apt-get",
            *("-o", f"Dir::State::lists={state / 'lists'}"),
            *("-o", f"Dir::Cache={cache}"),
            *("-o", "APT::Sandbox::User=root"),  # the folder is not readable for user _apt
            "-qq",
        ]
        _call([*apt, "update"], debs)
        _call([*apt, "download", *PACKAGES], debs)
        for deb in sorted(debs.glob("*.deb")):
            _call(["dpkg-deb", "-x", str(deb), str(root)], debs)
        CloudInit(root).version()
        root.rename(folder / "root")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def ensure_cloud_init() -> CloudInit:
    """cloud-init, fetched if this machine has none yet; safe to call from several processes.

    Raises:
        CloudInitUnavailableError: it cannot be had, with the reason.
    """
    folder = Path(os.environ.get("POOLSM_TOOLS_DIR", "/var/tmp/poolsm-tools")) / "cloud-init"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "root").is_dir():
                _fetch(folder)
    except OSError as error:
        raise CloudInitUnavailableError(
            f"{folder} cannot be written ({error}); set POOLSM_TOOLS_DIR to a folder of yours"
        ) from error
    return CloudInit(folder / "root")


if __name__ == "__main__":
    tool = ensure_cloud_init()
    print(f"cloud-init {tool.version()} in {tool.root}")
