"""Make the databases and run `inside/seed.py` with the lab's own Python."""

import json

from tests.lab.openstack import config
from tests.lab.openstack.processes import Processes
from tests.lab.openstack.settings import INSIDE, LISTENERS, PASSWORD, REGION
from tests.lab.openstack.talk import say

DATABASES = ("keystone", "glance", "placement", "nova", "nova_api", "nova_cell0", "neutron")


def make_databases(processes: Processes) -> None:
    """Create the schemas; Neutron's is the longest, so it runs beside all the others."""
    lab = processes.lab
    create = "".join(
        f"CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb4;" for name in DATABASES
    )
    client = ["mariadb", "--no-defaults", "-h127.0.0.1", "-uroot", f"-P{lab.port('mysql')}"]
    processes.perform("create-databases", [*client, "-e", create])
    say("tables:")
    neutron = processes.begin(
        "neutron-db",
        [
            "neutron-db-manage",
            "--config-file",
            lab.etc / "neutron/neutron.conf",
            "upgrade",
            "heads",
        ],
        config.environment_of(lab, "neutron"),
    )
    keystone = ["keystone-manage", "--config-file", lab.etc / "keystone/keystone.conf"]
    glance = ["glance-manage", "--config-file", lab.etc / "glance/glance-api.conf"]
    placement = ["placement-manage", "--config-file", lab.etc / "placement/placement.conf"]
    cell0 = config.database_url(lab, "nova_cell0")
    for name, argv in (
        ("keystone-db", [*keystone, "db_sync"]),
        ("keystone-bootstrap", [*keystone, *_bootstrap(lab.auth_url)]),
        ("glance-db", [*glance, "db_sync"]),
        ("placement-db", [*placement, "db", "sync"]),
        ("nova-api-db", _nova(processes, "api_db", "sync")),
        ("nova-cell0", _nova(processes, "cell_v2", "map_cell0", "--database_connection", cell0)),
        ("nova-cell1", _nova(processes, "cell_v2", "create_cell", "--name", "cell1")),
        ("nova-db", _nova(processes, "db", "sync")),
    ):
        processes.perform(name, argv)
    neutron()


def seed_accounts(processes: Processes) -> None:
    """Users, roles, projects and the service catalogue: the other services need them."""
    _seed(processes, "accounts")


def seed_resources(processes: Processes) -> None:
    """Images, flavors, the network, key pairs and quotas."""
    processes.perform("nova-discover", _nova(processes, "cell_v2", "discover_hosts"))
    _seed(processes, "resources")


def _bootstrap(auth_url: str) -> list[str]:
    options = {
        "password": PASSWORD,
        "username": "admin",
        "project-name": "admin",
        "service-name": "keystone",
        "region-id": REGION,
        "admin-url": auth_url,
        "public-url": auth_url,
        "internal-url": auth_url,
    }
    words = ["bootstrap"]
    for name, value in options.items():
        words += [f"--bootstrap-{name}", value]
    return words


def _nova(processes: Processes, *words: str) -> list[object]:
    return ["nova-manage", "--config-file", processes.lab.etc / "nova/nova.conf", *words]


def _seed(processes: Processes, part: str) -> None:
    lab = processes.lab
    facts = {
        "auth_url": lab.auth_url,
        "password": PASSWORD,
        "region": REGION,
        "clouds_yaml": str(lab.clouds_yaml),
        "lab_json": str(lab.lab_json),
        "urls": {name: lab.url(name) for name in LISTENERS},
    }
    processes.perform(
        f"seed-{part}",
        [lab.python, INSIDE / "seed.py", part, json.dumps(facts)],
        {"OS_CLIENT_CONFIG_FILE": str(lab.clouds_yaml)},
    )
