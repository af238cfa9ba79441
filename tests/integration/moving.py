"""The command line of a migration, as an operator calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.running import ROOT

_CODE = "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()"
_OTHERS = ("OS_", "INFRA_", "SSH_PUB", "API_", "NETWORK_", "SERVER_", "METADATA_", "POOLSM_")


class Operator:
    """Somebody at a terminal, with one clouds.yaml, one log and one folder."""

    def __init__(self, folder: Path, clouds_yaml: str, cloud: str, infra_cloud: str) -> None:
        self.log = folder / "fleet.db"
        self._cloud = ("--cloud", cloud)
        self._infra = ("--infra-cloud", infra_cloud)
        clean = {key: v for key, v in os.environ.items() if not key.startswith(_OTHERS)}
        self._environment = {
            **clean,
            "OS_CLIENT_CONFIG_FILE": clouds_yaml,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}",
            "TZ": "UTC",
        }

    def poolsm(self, *arguments: object, check: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run a command on the log."""
        done = subprocess.run(
            [sys.executable, "-c", _CODE, *map(str, arguments), "--log", str(self.log)],
            env=self._environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == check, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def migrate(self, database: Path, *options: str, check: int = 0) -> dict[str, Any]:
        """Migrate; its report."""
        done = self.poolsm("migrate", database, *self._cloud, "--json", *options, check=check)
        report = json.loads(done.stdout)
        assert isinstance(report, dict)
        return report

    def rehearse_run(self) -> list[str]:
        """What `poolsm run --dry-run` would do."""
        done = self.poolsm("run", *self._cloud, *self._infra, "--dry-run")
        return [line for line in done.stdout.splitlines() if line.startswith("would ")]

    def status(self) -> dict[str, Any]:
        """Pools and VMs as the log has them."""
        found = json.loads(self.poolsm("status", "--vms", "--json").stdout)
        assert isinstance(found, dict)
        return found
