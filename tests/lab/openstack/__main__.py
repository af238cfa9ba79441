"""The command line of the lab: `python -m tests.lab.openstack COMMAND`."""

import argparse
import sys

from tests.lab.openstack import install, lifecycle
from tests.lab.openstack.settings import Lab, LabError
from tests.lab.openstack.talk import say

EPILOG = """\
settings (environment):
  POOLSM_LAB_DIR        where everything goes   (/var/tmp/poolsm-openstack-lab)
  POOLSM_LAB_PORT_BASE  ports are base+1..base+9          (21000)
  POOLSM_LAB_NODES      hypervisors that are pretended    (4)

exit status: 0 done, 1 failed, 2 wrong usage, 3 (status) the lab is down,
77 this machine cannot have a lab (not root, or apt-get impossible)
"""


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="lab",
        description="A real OpenStack control plane on 127.0.0.1, for tests.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("setup", help="install what is missing (root)")
    up = commands.add_parser("up", help="start everything and wait until it answers")
    which = up.add_mutually_exclusive_group()
    which.add_argument("--fresh", action="store_true", help="start from the seed (default)")
    which.add_argument("--keep", action="store_true", help="go on with the last run's data")
    which.add_argument("--reseed", action="store_true", help="make the seed anew")
    commands.add_parser("down", help="stop what `up` started")
    commands.add_parser("status", help="processes, memory and services")
    commands.add_parser("env", help="print shell lines for the clients")
    commands.add_parser("destroy", help="down, then remove the data (not the packages)")
    return top


def main(words: list[str] | None = None) -> int:
    """Run one command; every expected failure is one line and a status."""
    arguments = parser().parse_args(words)
    try:
        lab = Lab.from_environment()
        if arguments.command == "setup":
            install.setup(lab)
            return 0
        if arguments.command == "up":
            lifecycle.up(lab, keep=arguments.keep, reseed=arguments.reseed)
            return 0
        command = {
            "down": lifecycle.down,
            "status": lifecycle.status,
            "env": lifecycle.env,
            "destroy": lifecycle.destroy,
        }[arguments.command]
        return command(lab)
    except LabError as problem:
        say(f"lab {arguments.command}: {problem}")
        return problem.code


if __name__ == "__main__":
    sys.exit(main())
