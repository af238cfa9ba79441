"""How each service is started, in which order, and how one knows that it works."""

import json
import shutil
import socket
import time

from tests.lab.openstack import config
from tests.lab.openstack.ask import ask, token_of
from tests.lab.openstack.processes import Processes
from tests.lab.openstack.settings import INSIDE, LISTENERS, Lab, made
from tests.lab.openstack.talk import say

# Threads of each API: enough for the tests' parallel requests, no more on a small machine.
API_THREADS = {"keystone": 16, "placement": 12, "nova-api": 16, "glance": 8, "neutron": 16}
NOVA_WORKERS = ("nova-conductor", "nova-scheduler", "nova-compute")
BASE = ("epmd", "amqp", "mysql")
ALL = (*BASE, *API_THREADS, *NOVA_WORKERS)
REDO_LOG = "--innodb-log-file-size=48M"


def listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def taken_ports(lab: Lab) -> list[int]:
    """Ports of the lab on which somebody listens."""
    return [lab.port(name) for name in LISTENERS if listening(lab.port(name))]


# ------------------------------------------------------------------ the base: SQL and AMQP
def start_base(processes: Processes) -> None:
    """Database and broker; the broker is the slow one, so it goes first."""
    _start_broker(processes)
    _start_database(processes)
    port = processes.lab.port("mysql")
    processes.wait_for("the database", lambda: listening(port), 60, ["mysql"])
    say("database: answers")


def _start_database(processes: Processes) -> None:
    lab = processes.lab
    data = lab.state / "mysql"
    if not (data / "mysql").is_dir():
        processes.perform(
            "mysql-install",
            [
                "mariadb-install-db",
                "--no-defaults",
                "--user=root",
                f"--datadir={made(data)}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                REDO_LOG,
            ],
        )
    processes.start(
        "mysql",
        [
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            f"--tmpdir={lab.run}",
            f"--socket={lab.run}/mysql.sock",
            f"--pid-file={lab.run}/mysql.pid",
            f"--log-error={lab.log}/mysql.log",
            "--bind-address=127.0.0.1",
            f"--port={lab.port('mysql')}",
            "--skip-name-resolve",
            "--max-connections=800",
            "--character-set-server=utf8mb4",
            "--performance-schema=OFF",
            # tests lock a table to cut a service off from its database: an error soon, not a hang
            "--lock-wait-timeout=3",
            REDO_LOG,
            "--innodb-buffer-pool-size=256M",
            # the data are worth nothing after a power cut, so nothing waits for the disk
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-doublewrite=0",
            "--innodb-flush-method=nosync",
        ],
    )


def _start_broker(processes: Processes) -> None:
    """RabbitMQ with its own name daemon: Debian's would listen everywhere."""
    lab = processes.lab
    shutil.rmtree(lab.run / "rabbit", ignore_errors=True)
    home = made(lab.run / "rabbit")
    (home / "enabled_plugins").write_text("[].\n")
    (home / "rabbit.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{lab.port('amqp')}\n"
        "vm_memory_high_watermark.absolute = 1GB\n"
        "disk_free_limit.absolute = 50MB\n"
        "heartbeat = 60\n"
        "log.file.level = warning\n"
    )
    names = {
        "HOME": str(home),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(lab.port("epmd")),
        "ERL_CRASH_DUMP": str(home / "erl_crash.dump"),
    }
    processes.start("epmd", ["epmd", "-port", lab.port("epmd"), "-address", "127.0.0.1"], names)
    settings = {
        "RABBITMQ_NODENAME": "lab@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(lab.port("amqp")),
        "RABBITMQ_DIST_PORT": str(lab.port("amqp-distribution")),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbit.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(lab.log),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        # stay in the foreground, so that the recorded process is the broker
        "RUNNING_UNDER_SYSTEMD": "1",
        # do not spin while idle, and do not offer the cluster port to the network
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none "
        "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    # not /usr/sbin's wrapper, which changes to another user
    processes.start("amqp", ["/usr/lib/rabbitmq/bin/rabbitmq-server"], {**names, **settings})


# ----------------------------------------------------------------------------- OpenStack
def start_api(processes: Processes, service: str) -> None:
    lab = processes.lab
    argv = [
        lab.python,
        INSIDE / "serve.py",
        service,
        lab.port(service),
        API_THREADS[service],
        lab.log / f"{service}.access",
    ]
    processes.start(service, argv, config.environment_of(lab, service))


def wait_for_apis(processes: Processes, services: list[str]) -> None:
    for service in services:
        url = processes.lab.url(service, "/v3" if service == "keystone" else "/")

        def answers(url: str = url) -> bool:
            return ask(url).status in (200, 300)

        processes.wait_for(service, answers, 180, ["mysql", "amqp", *services])
        say(f"{service}: answers")


def _start_nova(processes: Processes, worker: str) -> None:
    lab = processes.lab
    conf = "nova-cpu.conf" if worker == "nova-compute" else "nova.conf"
    options = ["--config-file", lab.etc / "nova" / conf]
    options += ["--log-file", lab.log / f"{worker}.log"]
    if worker == "nova-compute":
        program = [lab.python, INSIDE / "compute.py"]
        processes.start(worker, [*program, *options], {"POOLSM_LAB_NODES": str(lab.nodes)})
    else:
        processes.start(worker, [lab.venv / "bin" / worker, *options])


def start_openstack(processes: Processes) -> None:
    """All of OpenStack, as parallel as its needs allow.

    nova-compute ends at once when it finds no Keystone, Placement or broker, and loses ten
    seconds when it finds no conductor; the APIs wait for nobody.
    """
    lab = processes.lab
    first = [name for name in ("keystone", "placement") if processes.seen(name) is None]
    for service in first:
        start_api(processes, service)
    _start_nova(processes, "nova-conductor")
    wait_for_apis(processes, first)
    port = lab.port("amqp")
    processes.wait_for("the broker", lambda: listening(port), 90, ["amqp"])
    conductor_log = lab.log / "nova-conductor.log"
    processes.wait_for(
        "nova-conductor",
        lambda: conductor_log.exists() and "Starting conductor" in conductor_log.read_text(),
        120,
        ["nova-conductor"],
    )
    _start_nova(processes, "nova-compute")
    _start_nova(processes, "nova-scheduler")
    second = [name for name in API_THREADS if processes.seen(name) is None]
    for service in second:
        start_api(processes, service)
    wait_for_apis(processes, second)
    processes.wait_for("Nova's workers", lambda: workers_report(processes), 120, ALL)
    say(f"{', '.join(NOVA_WORKERS)}: report up")


def workers_report(processes: Processes) -> bool:
    """Whether each of Nova's workers has reported since its start.

    The seeded database still holds the reports of the run that made it.
    """
    lab = processes.lab
    token = token_of(lab, "admin")
    answer = ask(lab.url("nova-api", "/v2.1/os-services"), token) if token else None
    if answer is None or answer.status != 200:
        return False
    fresh = set()
    for row in json.loads(answer.body)["services"]:
        began = time.gmtime(processes.started_at(row["binary"]))
        if (row["updated_at"] or "") > time.strftime("%Y-%m-%dT%H:%M:%S", began):
            fresh.add(row["binary"])
    return fresh >= set(NOVA_WORKERS)


# ------------------------------------------------------------------------- first requests
def warm_up(processes: Processes) -> None:
    """The first requests, one at a time, and one server's whole life.

    Neutron loads its policies during the first request and answers 404 to others that come
    in the meantime; and a lab that cannot build a server must not call itself up.
    """
    lab = processes.lab
    token = ""
    for user in ("vmpool", "infra", "admin"):
        token = token_of(lab, user)
        for service, path in (
            ("nova-api", "/v2.1/servers/detail"),
            ("nova-api", "/v2.1/flavors/detail"),
            ("nova-api", "/v2.1/limits"),
            ("glance", "/v2/images"),
            ("neutron", "/v2.0/networks"),
            ("neutron", "/v2.0/ports"),
            ("neutron", "/v2.0/security-groups"),
        ):
            status = ask(lab.url(service, path), token).status
            if status != 200:
                processes.fail(f"{service} {path} as {user}: HTTP {status}")
    _one_life(processes, token)


def _one_life(processes: Processes, token: str) -> None:
    lab = processes.lab
    facts = json.loads(lab.lab_json.read_text())
    servers = lab.url("nova-api", "/v2.1/servers")
    order = {
        "name": "lab-canary",
        "flavorRef": facts["flavors"]["m1.tiny"],
        "imageRef": facts["images"]["vmpool"]["worker-image"],
        "networks": [{"uuid": facts["networks"]["lab-net"]}],
    }
    made_it = ask(servers, token, {"server": order})
    if made_it.status != 202:
        processes.fail(f"the first server: HTTP {made_it.status} {made_it.body[:300]!r}")
    url = f"{servers}/{json.loads(made_it.body)['server']['id']}"

    def status() -> str:
        answer = ask(url, token)
        return json.loads(answer.body)["server"]["status"] if answer.status == 200 else "gone"

    processes.wait_for("the first server", lambda: status() != "BUILD", 90)
    ended_as = status()
    ask(url, token, method="DELETE")
    processes.wait_for("its deletion", lambda: status() == "gone", 90)
    if ended_as != "ACTIVE":
        processes.fail(f"the first server ended as {ended_as}")
    say("a server was built and deleted")
