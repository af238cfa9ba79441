"""Where a lab lives and on which ports it listens.

One `Lab` value is handed to every other module, so nothing but this file reads the
environment or knows how a path is made up.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_DIRECTORY = "/var/tmp/poolsm-openstack-lab"
DEFAULT_PORT_BASE = 21000
DEFAULT_NODES = 4

SOURCES = Path(__file__).resolve().parent
INSIDE = SOURCES / "inside"
ML2_PLUGIN = SOURCES / "plugins" / "neutron"
REQUIREMENTS = SOURCES / "requirements.txt"

# No secret: everything listens on 127.0.0.1 and every account has the same word.
PASSWORD = "labsecret"
REGION = "RegionOne"
COMPUTE_HOST = "lab-compute-1"

# The order is the port: base + 1, base + 2, ...
LISTENERS = (
    "mysql",
    "amqp",
    "amqp-distribution",
    "epmd",
    "keystone",
    "glance",
    "placement",
    "nova-api",
    "neutron",
)


class LabError(Exception):
    """Something that ends the command with one line; `code` is its exit status."""

    code = 1


class LabImpossibleError(LabError):
    """This machine cannot have a lab (not root, no apt): tests skip with the text."""

    code = 77


@dataclass(frozen=True)
class Lab:
    """The directory, the port base and the number of pretended hypervisors."""

    directory: Path
    base: int
    nodes: int

    @classmethod
    def from_environment(cls) -> "Lab":
        """Read the settings; a lab that runs already tells its own ports.

        So `down` or `env` typed without the variables still reach the lab that `up`
        started with them.
        """
        directory = Path(os.environ.get("POOLSM_LAB_DIR", DEFAULT_DIRECTORY)).resolve()
        recorded = read_json(directory / "run" / "claim.json")
        base = _number("POOLSM_LAB_PORT_BASE", recorded.get("base", DEFAULT_PORT_BASE))
        nodes = _number("POOLSM_LAB_NODES", recorded.get("nodes", DEFAULT_NODES))
        if not 1024 <= base <= 65000:
            raise LabError(f"POOLSM_LAB_PORT_BASE={base}: must lie between 1024 and 65000")
        return cls(directory, base, nodes)

    @property
    def venv(self) -> Path:
        return self.directory / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def run(self) -> Path:
        """What one `up` makes: settings, logs, process records."""
        return self.directory / "run"

    @property
    def etc(self) -> Path:
        return self.run / "etc"

    @property
    def log(self) -> Path:
        return self.run / "log"

    @property
    def state(self) -> Path:
        """What the services keep: databases, image data."""
        return self.directory / "state"

    @property
    def seed(self) -> Path:
        """The copy of `state` right after seeding."""
        return self.directory / "seed"

    @property
    def keys(self) -> Path:
        return self.directory / "keys"

    @property
    def clouds_yaml(self) -> Path:
        return self.directory / "clouds.yaml"

    @property
    def lab_json(self) -> Path:
        return self.directory / "lab.json"

    @property
    def claim(self) -> Path:
        return self.run / "claim.json"

    def port(self, listener: str) -> int:
        return self.base + 1 + LISTENERS.index(listener)

    def url(self, listener: str, path: str = "") -> str:
        return f"http://127.0.0.1:{self.port(listener)}{path}"

    @property
    def auth_url(self) -> str:
        return self.url("keystone", "/v3")


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`, or an empty one if there is none or it is half written."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def made(folder: Path) -> Path:
    """The folder, existing."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise LabError(f"{variable}={text}: not a number") from None
