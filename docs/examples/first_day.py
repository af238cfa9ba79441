"""Runs a newcomer's first day on the project's own OpenStack, and prints it as a page.

    eval "$(tests/lab/openstack/lab env)" && python docs/examples/first_day.py > docs/first-day.md

Every line of output is what the command printed, on a real Keystone, Glance, Neutron and Nova.
Needs `poolsm` and `openstack` (python-openstackclient) nowhere but on the PATH; the servers that
exist are counted with the SDK that poolsm itself uses.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POOLS = """\
[[pool]]
id = "intro-python"
user = "alice"
image = "worker-image"
flavor = "m1.tiny"
networks = ["lab-net"]
min_vm = 2
max_vm = 4
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL2vGmtYqkPvD1M8JYq1M0nGYwH6b6bW1c3Q2vJm8f1x"
COUNT = """\
import openstack
cloud = openstack.connect(cloud="lab-manager-vmpool")
servers = list(cloud.compute.servers())
print(len(servers), "servers", sorted(f"{s.name} {s.status}" for s in servers))
"""

HEAD = """\
# A first day on a real cloud

From an empty project to a running pool and back, as it was typed and answered on the project's
own OpenStack (`tests/lab/openstack`). To see it on yours, leave out the first step and name your
clouds of `clouds.yaml`. Made by `docs/examples/first_day.py`.
"""

STEPS = (
    ("A cloud to try it on. It installs and starts OpenStack on this machine (root):",
     "tests/lab/openstack/lab setup && tests/lab/openstack/lab up", None),
    ("Which clouds of `clouds.yaml` to use: one project for the VMs, one that has the images:",
     "export OS_CLOUD=lab-manager-vmpool INFRA_OS_CLOUD=lab-manager-infra", None),
    ("Who may log in to the machines, as `vmuser`:",
     "export SSH_PUBLIC_KEY_PATH=admin.pub", None),
    ("The project is empty:", "python count.py", ""),
    ("A pool:", "cat pools.toml", ""),
    ("Is the file right?", "poolsm check pools.toml", ""),
    ("What would be done? This asks the cloud and changes nothing:",
     "poolsm run --dry-run pools.toml", ""),
    ("Do it. It runs until it is stopped; its log, `poolsm.db`, is made here:",
     "poolsm run --no-table pools.toml 2> runner.out &", "start"),
    ("A little later:", "poolsm status", "full"),
    ("Carol needs a machine:", "poolsm assign intro-python --to carol --request-id seat-7", ""),
    ("Hers is hers from now on: no rule deletes it.", "poolsm status intro-python", ""),
    ("Somebody works on the network. Nothing is to be touched for a while:",
     'poolsm pause intro-python --reason "network maintenance"', ""),
    ("", "poolsm status", ""),
    ("", "poolsm resume intro-python", ""),
    ("Carol is done. Her machine is deleted, the story of it stays:",
     "poolsm release seat-7", "released"),
    ("", "poolsm explain seat-7", ""),
    ("A copy of the log, while the runner writes to it:", "poolsm backup today.db", ""),
    ("And back: the pool is drained, then forgotten.", "poolsm pools remove alice/intro-python",
     "empty"),
    ("", "poolsm status", ""),
    ("", "python count.py", ""),
    ("Stop the runner. Every decision of the day, made again and compared:", "kill %1", "stop"),
    ("", "poolsm replay", ""),
    ("", "poolsm log check", ""),
)  # fmt: skip


class Day:
    """One shell's worth of commands in a new folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pools.toml").write_text(POOLS)
        (folder / "count.py").write_text(COUNT)
        (folder / "admin.pub").write_text(f"{KEY} admin\n")
        self.env = {
            **os.environ,
            "SSH_PUBLIC_KEY_PATH": "admin.pub",
            "OS_CLOUD": "lab-manager-vmpool",
            "INFRA_OS_CLOUD": "lab-manager-infra",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "100",
        }
        self.runner: subprocess.Popen[bytes] | None = None

    def run(self, command: str) -> str:
        """What a command prints, both streams; it must succeed."""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.env, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
        return done.stdout

    def wait(self, what: str, pattern: str, command: str = "poolsm status") -> None:
        """Until a command's output says so."""
        end = time.monotonic() + 120
        while not re.search(pattern, self.run(f"{command} || true")):
            if time.monotonic() > end:
                raise SystemExit(f"not within 120 s: {what}")
            time.sleep(1)

    def then(self, what: str | None) -> None:
        """What has to come about before the next command is worth typing."""
        if what == "full":
            self.wait("whole", r"intro-python +active +2 +2 +4 +2 ")
        elif what == "released":
            self.wait("two are ready again", r"intro-python +active +2 +2 +4 +2 +0 ")
        elif what == "empty":
            self.wait("forgotten", r"^(?!.*intro-python)", "poolsm status | tail -n +3")
            self.wait("empty", "^0 servers", "python count.py")


def main() -> None:
    """Print the page."""
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        day = Day(Path(folder))
        for text, command, then in STEPS:
            if text:
                print(f"\n{text}")
            output = ""
            if then == "start":
                with (day.folder / "runner.out").open("wb") as errors:
                    call = ["poolsm", "run", "--no-table", "pools.toml"]
                    day.runner = subprocess.Popen(call, cwd=folder, env=day.env, stderr=errors)
                day.wait("it runs", "a runner runs")
            elif then == "stop":
                assert day.runner is not None
                day.runner.terminate()
                assert day.runner.wait(30) == 0
            elif then is not None:
                if then == "full":
                    day.then(then)
                output = day.run(command)
                if then != "full":
                    day.then(then)
            output = output.replace(folder, "/home/op/pools")
            print(f"\n```console\n$ {command}\n{output.rstrip()}".rstrip() + "\n```")


if __name__ == "__main__":
    main()
