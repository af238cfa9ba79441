"""Recorded: servers from their creation, accepted or refused, to their end, and their lists."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.lab.openstack.record_session import Session
from tests.lab.openstack.recorder import UNKNOWN
from tests.lab.openstack.settings import LabError

SERVERS = "/v2.1/servers"
SERVER = "/v2.1/servers/{server}"
ACTION = "/v2.1/servers/{server}/action"
METADATA = "/v2.1/servers/{server}/metadata"
SLOW = {"lab_spawn_delay": "4"}


# ----------------------------------------------------------------------------- creation
def refused(s: Session) -> None:
    def create(case: str, **more: Any) -> None:
        answer = s.nova(f"create-refused-{case}", "POST", SERVERS, s.order(**more))
        if answer.status < 400:
            raise LabError(f"create-refused-{case} was accepted")

    inactive = s.client.create_image("recorded-inactive")
    s.client.deactivate_image(inactive)
    queued = s.client.connect("lab-vmpool").image.create_image(
        name="recorded-queued", disk_format="raw", container_format="bare"
    )
    hungry = s.client.create_image("recorded-hungry", min_ram=4096)
    create("image-unknown", imageRef=UNKNOWN)
    create("image-of-another-project", imageRef=s.client.image_id("infra", "worker-image"))
    create("image-deactivated", imageRef=inactive)
    create("image-queued", imageRef=queued.id)
    create("image-needs-more-memory", imageRef=hungry)
    for ident in (inactive, queued.id, hungry):
        s.client.delete_image(ident)
    create("image-deleted", imageRef=inactive)
    create("image-no-uuid", imageRef="worker-image")
    create("flavor-unknown", flavorRef="no-such-flavor")
    create("network-unknown", networks=[{"uuid": UNKNOWN}])
    create("network-no-uuid", networks=[{"uuid": "lab-net"}])
    create("no-networks", networks=None)
    create("keypair-unknown", key_name="no-such-key")
    create("security-group-unknown", security_groups=[{"name": "no-such-group"}])
    create("zone-unknown", availability_zone="no-such-zone")
    create("user-data-no-base64", user_data="!!!not base64")
    create("metadata-129-items", metadata={f"k{i}": "v" for i in range(129)})
    create("metadata-value-too-long", metadata={"key": "x" * 256})
    create("metadata-value-no-text", metadata={"key": 1})
    create("name-empty", name="")
    create("name-too-long", name="n" * 256)
    s.nova("create-refused-no-body", "POST", SERVERS, {})


def quotas(s: Session) -> None:
    """Refusals with one server of one core and 512 MiB standing."""
    first = s.create("standing")
    s.rest(first, "ACTIVE")
    cases: tuple[tuple[str, dict[str, int]], ...] = (
        ("instances", {"instances": 1}),
        ("cores", {"cores": 1}),
        ("ram", {"ram": 600}),
        ("instances-and-cores", {"instances": 1, "cores": 1}),
        ("ports", {"ports": 1}),
    )
    for name, limits in cases:
        s.client.set_quota("vmpool", **limits)
        s.nova(f"create-refused-quota-{name}", "POST", SERVERS, s.order())
        if name == "instances":
            s.get("limits-at-quota", "nova-api", "/v2.1/limits")
        s.client.reset_quota()
    s.client.set_quota(instances=11)
    many = s.order(min_count=11, max_count=11)
    s.nova("create-refused-quota-several-at-once", "POST", SERVERS, many)
    s.client.reset_quota()
    s.client.wipe("vmpool")


# ---------------------------------------------------------------------- a server's life
def life(s: Session) -> None:
    """One server from its creation to its end, each request of a pool on the way."""
    order = s.order(metadata={"pool": "pool-1", **SLOW})
    ident = s.nova("create-accepted", "POST", SERVERS, order).json()["server"]["id"]
    s.out.normaliser.name(ident, "server of the recorded life")
    s.task(ident, "spawning")
    time.sleep(1.0)  # its port is made beside the spawn; with it the view has security groups

    def act(name: str, action: str) -> None:
        s.nova(name, "POST", ACTION, {action: None}, server=ident)

    s.nova("server-build-spawning", "GET", SERVER, server=ident)
    act("stop-refused-while-building", "os-stop")
    s.rest(ident, "ACTIVE")
    s.nova("server-active", "GET", SERVER, server=ident)
    act("start-refused-active", "os-start")
    s.nova("metadata-get", "GET", METADATA, server=ident)
    added = {"metadata": {"owner": "user-2", "lab_stop_delay": "2", "lab_start_delay": "2"}}
    s.nova("metadata-post", "POST", METADATA, added, server=ident)
    too_many = {"metadata": {f"k{i}": "v" for i in range(128)}}
    s.nova("metadata-post-too-many", "POST", METADATA, too_many, server=ident)
    s.nova("metadata-item-delete", "DELETE", METADATA + "/owner", server=ident)
    s.nova("metadata-item-delete-unknown", "DELETE", METADATA + "/owner", server=ident)
    s.nova("rename", "PUT", SERVER, {"server": {"name": "vm-renamed"}}, server=ident)
    s.nova("rename-empty", "PUT", SERVER, {"server": {"name": ""}}, server=ident)
    act("stop-accepted", "os-stop")
    s.nova("server-active-powering-off", "GET", SERVER, server=ident)
    act("stop-refused-powering-off", "os-stop")
    act("start-refused-powering-off", "os-start")
    s.rest(ident, "SHUTOFF")
    s.nova("server-shutoff", "GET", SERVER, server=ident)
    act("stop-refused-shutoff", "os-stop")
    act("start-accepted", "os-start")
    s.nova("server-shutoff-powering-on", "GET", SERVER, server=ident)
    s.rest(ident, "ACTIVE")
    s.nova("reboot-refused-kind", "POST", ACTION, {"reboot": {"type": "warm"}}, server=ident)
    reset = {"os-resetState": {"state": "error"}}
    s.nova("reset-state-refused", "POST", ACTION, reset, server=ident)
    slow_end = {"metadata": {"lab_destroy_delay": "3"}}
    s.nova("metadata-post-slow-end", "POST", METADATA, slow_end, server=ident)
    s.nova("delete-accepted", "DELETE", SERVER, server=ident)
    s.task(ident, "deleting")
    s.nova("server-active-deleting", "GET", SERVER, server=ident)
    act("stop-refused-deleting", "os-stop")
    s.nova("delete-accepted-again", "DELETE", SERVER, server=ident)
    s.client.wait_gone(ident)
    gone(s, ident)


def gone(s: Session, ident: str) -> None:
    s.nova("server-gone", "GET", SERVER, server=ident)
    s.nova("delete-gone", "DELETE", SERVER, server=ident)
    for name, action in (("stop-gone", "os-stop"), ("start-gone", "os-start")):
        s.nova(name, "POST", ACTION, {action: None}, server=ident)
    s.nova("metadata-post-gone", "POST", METADATA, {"metadata": {"a": "b"}}, server=ident)
    s.nova("rename-gone", "PUT", SERVER, {"server": {"name": "x"}}, server=ident)
    s.nova("server-never-was", "GET", SERVER, server=UNKNOWN)
    s.nova("server-no-uuid", "GET", SERVER, server="vm-1")


def errors(s: Session) -> None:
    """The three ways to ERROR, and what such a server still accepts."""
    impossible = s.facts["flavors"]["m1.impossible"]
    hostless = s.create("no-host", flavorRef=impossible)
    s.rest(hostless, "ERROR")
    s.nova("server-error-no-valid-host", "GET", SERVER, server=hostless)
    s.nova("stop-refused-no-valid-host", "POST", ACTION, {"os-stop": None}, server=hostless)
    s.nova("start-refused-no-valid-host", "POST", ACTION, {"os-start": None}, server=hostless)
    aborted = s.create("aborted", metadata={"lab_spawn_error": "no space left on device"})
    s.rest(aborted, "ERROR")
    s.nova("server-error-build-aborted", "GET", SERVER, server=aborted)
    s.nova("stop-error-build-aborted", "POST", ACTION, {"os-stop": None}, server=aborted)
    broken = s.create("broken")
    s.rest(broken, "ACTIVE")
    s.act(broken, "os-resetState", {"state": "error"})
    s.nova("server-error-reset-state", "GET", SERVER, server=broken)
    s.nova("start-refused-error", "POST", ACTION, {"os-start": None}, server=broken)
    s.nova("stop-accepted-error", "POST", ACTION, {"os-stop": None}, server=broken)
    s.nova("delete-accepted-error", "DELETE", SERVER, server=hostless)
    s.client.wipe("vmpool")


def other_statuses(s: Session) -> None:
    """Statuses that a pool never asks for and an operator may cause."""
    for status, action, arguments in (
        ("PAUSED", "pause", None),
        ("SUSPENDED", "suspend", None),
        ("RESCUE", "rescue", {"rescue_image_ref": s.image}),
    ):
        ident = s.create(f"vm-{status.lower()}")
        s.rest(ident, "ACTIVE")
        s.act(ident, action, arguments)
        s.rest(ident, status)
        s.nova(f"server-{status.lower()}", "GET", SERVER, server=ident)
        name = f"stop-refused-{status.lower()}"
        s.nova(name, "POST", ACTION, {"os-stop": None}, server=ident)
        name = f"start-refused-{status.lower()}"
        s.nova(name, "POST", ACTION, {"os-start": None}, server=ident)
    locked = s.create("vm-locked")
    s.rest(locked, "ACTIVE")
    s.act(locked, "lock", {"locked_reason": "maintenance"})
    s.nova("server-locked", "GET", SERVER, server=locked)
    s.nova("stop-refused-locked", "POST", ACTION, {"os-stop": None}, server=locked)
    s.nova("delete-refused-locked", "DELETE", SERVER, server=locked)
    s.act(locked, "unlock")
    building = s.create("vm-scheduling", metadata=SLOW)
    s.nova("server-build-just-created", "GET", SERVER, server=building)
    s.nova("delete-accepted-building", "DELETE", SERVER, server=building)
    s.client.wipe("vmpool")


def cell_down(s: Session) -> None:
    """What is answered while the database of the servers does not answer.

    Since microversion 2.69 the views go on with the little that another database knows:
    rows with the status UNKNOWN and without name or metadata. Only a query that ends in a
    lock's time-out is treated so; other errors of the database make Nova answer 500.
    """
    ident = s.create("vm-in-lost-cell", metadata={"pool": "pool-1"})
    s.rest(ident, "ACTIVE")
    s.out.normaliser.name(ident, "server in the lost cell")
    requests = {
        "cell-down-servers-detail": f"{SERVERS}/detail",
        "cell-down-servers-list": SERVERS,
        "cell-down-servers-detail-by-status": f"{SERVERS}/detail?status=ACTIVE",
        "cell-down-servers-detail-page-1": f"{SERVERS}/detail?limit=1",
        "cell-down-server": SERVER,
    }
    with s.client.locked_table("nova.instances"), ThreadPoolExecutor(len(requests)) as pool:
        for name, template in requests.items():
            pool.submit(s.nova, name, "GET", template, server=ident)
    s.client.wipe("vmpool")


def lists(s: Session) -> None:
    detail = f"{SERVERS}/detail"
    s.nova("servers-detail-empty", "GET", detail)
    idents = []
    for number in (1, 2, 3):  # the lists are sorted by creation, to the second
        idents.append(s.create(f"vm-{number}", metadata={"pool": "pool-1", "n": str(number)}))
        s.rest(idents[-1], "ACTIVE")
        s.out.normaliser.name(idents[-1], f"server vm-{number} of the lists")
        time.sleep(1.1)
    s.act(idents[1], "os-stop")
    s.rest(idents[1], "SHUTOFF")
    s.nova("servers-list", "GET", SERVERS)
    s.nova("servers-detail", "GET", detail)
    s.nova("servers-detail-page-1", "GET", detail + "?limit=1")
    page = detail + "?limit=1&marker={server}"
    s.nova("servers-detail-page-2", "GET", page, server=idents[2])
    s.nova("servers-detail-page-3", "GET", page, server=idents[1])
    s.nova("servers-detail-page-after-last", "GET", page, server=idents[0])
    s.nova("servers-detail-limit-0", "GET", detail + "?limit=0")
    s.nova("servers-detail-limit-nonsense", "GET", detail + "?limit=x")
    s.nova("servers-detail-limit-above-max", "GET", SERVERS + "?limit=5000")
    s.nova("servers-list-by-name", "GET", SERVERS + "?name=^vm-2$")
    s.nova("servers-list-by-status", "GET", SERVERS + "?status=SHUTOFF")
    time.sleep(1.1)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())  # two of the three change
    s.client.delete_servers([idents[2]])
    s.client.wait_gone(idents[2])
    s.nova("servers-detail-marker-gone", "GET", page, server=idents[2])
    s.nova("servers-detail-marker-unknown", "GET", page, server=UNKNOWN)
    s.act(idents[0], "os-stop")
    s.rest(idents[0], "SHUTOFF")
    path = detail + "?changes-since={since}"
    answer = s.nova("servers-detail-changes-since", "GET", path, since=since)
    if "DELETED" not in {row["status"] for row in answer.json()["servers"]}:
        raise LabError("changes-since shows no DELETED row: record again")
    s.nova("servers-detail-changes-since-nonsense", "GET", detail + "?changes-since=x")
    s.client.wipe("vmpool")
