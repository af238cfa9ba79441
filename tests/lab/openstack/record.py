"""Record what OpenStack answers: `python -m tests.lab.openstack.record`.

The lab must be up and the project vmpool empty (`--wipe` empties it). The answers go to
tests/recorded/openstack, one file each, and the simulated cloud is held to them.
"""

import argparse
import sys

from tests.lab.openstack import record_catalogue, record_servers
from tests.lab.openstack.client import LabClient
from tests.lab.openstack.record_session import Session
from tests.lab.openstack.settings import Lab, LabError

# In this order, because ids are numbered as they are met.
PARTS = (
    record_catalogue.identity,
    record_catalogue.discovery,
    record_catalogue.images,
    record_catalogue.catalogue,
    record_servers.refused,
    record_servers.quotas,
    record_servers.life,
    record_servers.errors,
    record_servers.other_statuses,
    record_servers.lists,
    record_servers.cell_down,
)


def record(client: LabClient) -> None:
    """Make every recording; the files of requests that are no longer made are removed."""
    if client.servers("vmpool"):
        raise LabError("vmpool has servers: --wipe deletes them")
    client.wipe_images("vmpool")
    session = Session(client)
    try:
        for part in PARTS:
            part(session)
    finally:
        client.reset_quota()
        client.wipe("vmpool")
        client.wipe_images("vmpool")
    session.out.finish()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wipe", action="store_true", help="delete vmpool's servers first")
    arguments = parser.parse_args()
    client = LabClient(Lab.from_environment())
    try:
        client.wait()
        if arguments.wipe:
            client.wipe("vmpool")
        record(client)
    except LabError as problem:
        print(f"record: {problem}", file=sys.stderr)
        return problem.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
