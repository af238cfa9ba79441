"""What the loop relies on in a cloud: one suite for the simulated one and for real OpenStack.

``simulated`` is the gateway over function calls, ``served`` the same cloud in another process
over HTTP and openstacksdk, ``lab`` a real OpenStack (tests/lab/openstack).
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
import uuid
from operator import attrgetter
from pathlib import Path

import msgspec
import pytest
from attrs import evolve

from poolsm import answers
from poolsm.commands import (
    COMMAND_ID,
    ClaimServer,
    CreateServer,
    DeleteServer,
    Expectation,
    FindServer,
    Reason,
    RebuildServer,
    RenameServer,
    StartServer,
    StopServer,
    UserDataRef,
)
from poolsm.events import CallAnswered
from poolsm.spec import PoolKey
from poolsm.testing import QUICK, CloudConfig, SimulatedCloud, image_id_of, network_id_of
from poolsm_runners.clock import FastClock
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.openstack import OpenStackTransport
from poolsm_runners.cloud.port import INFRA, VM, Deadlines, ListingError
from poolsm_runners.cloud.simulated import SimulatedTransport
from tests.lab.openstack import client
from tests.lab.openstack.settings import LabImpossibleError

# openstacksdk warns of itself whenever a configuration is made.
pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.timeout(600),
]

ROOT = Path(__file__).parents[2]
WHY = Reason("R0 contract", "1 = 1")
POOL = PoolKey("contract", "contract-user")
FREE = Expectation(pool=POOL, attributed=False)
PAGE = 3  # the simulated clouds give no longer pages
CONFIG = CloudConfig(speeds=QUICK, max_limit=PAGE)
USER_DATA = "I2Nsb3VkLWNvbmZpZwp7fQo="


class Site:
    """A cloud to be tested: what is in it, and what an operator can do to it."""

    patience_s = 20.0
    flavor = "1"
    impossible_flavor = "99"
    key = "lab-key"

    def image(self, project=VM):
        return image_id_of("worker-image", project)

    @property
    def network(self):
        return network_id_of("lab-net")

    def transport(self):
        raise NotImplementedError

    def limit_instances(self, instances):
        raise NotImplementedError

    def lift_limit(self):
        self.limit_instances(5000)

    def close(self):
        """Give everything back."""


class Simulated(Site):
    def __init__(self):
        self.cloud = SimulatedCloud(CONFIG)
        self.clock = FastClock()

    def transport(self):
        return SimulatedTransport(self.cloud, self.clock)

    def limit_instances(self, instances):
        self.cloud.hands.set_quota(VM, instances=instances)


class Served(Site):
    def __init__(self, folder):
        (folder / "config.json").write_bytes(msgspec.json.encode(CONFIG))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "poolsm_runners.cloud.served",
             "--state", str(folder), "--config", str(folder / "config.json")],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}"},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.ready = json.loads(self.process.stdout.readline())
        os.environ["OS_CLIENT_CONFIG_FILE"] = self.ready["clouds_yaml"]

    def transport(self):
        os.environ["OS_CLIENT_CONFIG_FILE"] = self.ready["clouds_yaml"]
        return OpenStackTransport("sim-vm", "sim-infra")

    def limit_instances(self, instances):
        deed = {"action": "set_quota", "arguments": {"project": VM, "instances": instances}}
        request = urllib.request.Request(
            f"{self.ready['sim_url']}/hands", json.dumps(deed).encode(), method="POST"
        )
        urllib.request.urlopen(request, timeout=10).close()

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.process.stdout.close()


class RealLab(Site):
    patience_s = 120.0

    def __init__(self):
        self.lab = client.start()
        self.facts = self.lab.facts
        self.flavor = self.facts["flavors"]["m1.tiny"]
        self.impossible_flavor = self.facts["flavors"]["m1.impossible"]
        self.key = self.facts["keypair"]

    def image(self, project=VM):
        return self.lab.image_id("vmpool" if project == VM else "infra", "worker-image")

    @property
    def network(self):
        return self.facts["networks"]["lab-net"]

    def transport(self):
        os.environ["OS_CLIENT_CONFIG_FILE"] = str(self.lab.lab.clouds_yaml)
        return OpenStackTransport("lab-manager-vmpool", "lab-manager-infra")

    def limit_instances(self, instances):
        self.lab.set_quota("vmpool", instances=instances)

    def lift_limit(self):
        self.lab.reset_quota("vmpool")


@pytest.fixture(
    scope="module", params=["simulated", "served", pytest.param("lab", marks=pytest.mark.lab)]
)
def site(request, tmp_path_factory):
    before = os.environ.get("OS_CLIENT_CONFIG_FILE")
    if request.param == "simulated":
        site = Simulated()
    elif request.param == "served":
        site = Served(tmp_path_factory.mktemp("served"))
    else:
        try:
            site = RealLab()
        except LabImpossibleError as reason:
            pytest.skip(f"no lab here: {reason}")
    yield site
    site.close()
    if before is None:
        os.environ.pop("OS_CLIENT_CONFIG_FILE", None)
    else:
        os.environ["OS_CLIENT_CONFIG_FILE"] = before


@pytest.fixture
async def cloud(site):
    """A gateway; what the test leaves behind is deleted."""
    gateway = Gateway(site.transport(), Deadlines())
    yield gateway
    doomed = [one for one in await gateway.list_servers() if ours(one)]
    for record in doomed:
        await gateway._write("DELETE", f"/servers/{record.server_id}", None, record.server_id)
    for record in doomed:
        await gone(site, gateway, record.server_id)
    await gateway.close()


def ours(record):
    return (record.metadata or {}).get("user_id") == POOL.user_id


def metadata(**more):
    return {"user_id": POOL.user_id, "serverpool_id": POOL.serverpool_id,
            "reattrib": "false", **more}  # fmt: skip


def create(site, **more):
    fields = {
        "reason": WHY, "pool": POOL, "image_id": site.image(), "flavor_id": site.flavor,
        "networks": (), "key_name": None, "user_data": UserDataRef(), "metadata": metadata(),
        **more,
    }  # fmt: skip
    name = fields.pop("name", None)
    command = CreateServer(**fields).with_id(str(uuid.uuid4()))
    return command if name is None else evolve(command, name=name)


def kind_of(command, answer):
    """What the core makes of an answer."""
    event = CallAnswered(
        command_id="c", at_ms=0, started_ms=0, http_status=answer.http_status,
        transport_error=answer.transport_error, error_kind=answer.error_kind,
        message=answer.message, retry_after_s=answer.retry_after_s, unmet=answer.unmet,
    )  # fmt: skip
    name = command if isinstance(command, str) else type(command).__name__
    return answers.classify(name, event).kind


async def find(cloud, server_id):
    return await cloud.execute(FindServer(reason=WHY, server_id=server_id))


async def rest(site, cloud, server_id, status):
    """The record once the server is in a status with nothing under way."""
    ends = time.monotonic() + site.patience_s
    while True:
        record = (await find(cloud, server_id)).server
        assert record is not None
        if record.status == status and record.task_state is None:
            return record
        assert time.monotonic() < ends, f"{record.status}/{record.task_state}, not {status}"
        await asyncio.sleep(0.1)


async def gone(site, cloud, server_id):
    ends = time.monotonic() + site.patience_s
    while (answer := await find(cloud, server_id)).http_status != 404:
        assert time.monotonic() < ends
        await asyncio.sleep(0.1)
    return answer


async def built(site, cloud, **more):
    answer = await cloud.execute(create(site, **more))
    assert answer.http_status == 202, answer
    return await rest(site, cloud, answer.server_id, "ACTIVE")


# --- a server's life -----------------------------------------------------------------------


async def test_the_life_of_a_server(site, cloud):
    command = create(site, networks=(site.network,), key_name=site.key, metadata=metadata(x="y"))
    answer = await cloud.execute(command, USER_DATA)
    assert kind_of(command, answer) == answers.DONE
    server_id = answer.server_id
    assert server_id

    found = await find(cloud, server_id)
    assert found.server.status in {"BUILD", "ACTIVE"}
    record = await rest(site, cloud, server_id, "ACTIVE")
    assert record.name == command.name == f"contract-{command.command_id}"
    assert record.metadata == metadata(x="y", **{COMMAND_ID: command.command_id})
    assert record.image_id == site.image()
    assert record.flavor_id == "m1.tiny"  # the name, from microversion 2.47 on
    assert record.key_name == site.key
    assert len(record.addresses) == 1
    assert record.addresses[0].startswith("lab-net:10.77.")
    assert record.created.endswith("Z")
    assert record.fault is None
    listed = [one for one in await cloud.list_servers() if one.server_id == server_id]
    assert listed == [record]

    stop, start = (kind(reason=WHY, server_id=server_id) for kind in (StopServer, StartServer))
    refused = await cloud.execute(start)
    assert (refused.http_status, refused.error_kind) == (409, "conflictingRequest")
    assert kind_of(start, refused) == answers.ALREADY
    assert kind_of(stop, await cloud.execute(stop)) == answers.DONE
    await rest(site, cloud, server_id, "SHUTOFF")
    refused = await cloud.execute(stop)
    assert refused.http_status == 409
    assert kind_of(stop, refused) == answers.ALREADY
    assert kind_of(start, await cloud.execute(start)) == answers.DONE
    await rest(site, cloud, server_id, "ACTIVE")

    delete = DeleteServer(reason=WHY, server_id=server_id, expect=FREE)
    answer = await cloud.execute(delete)
    assert (answer.http_status, kind_of(delete, answer)) == (204, answers.DONE)
    answer = await gone(site, cloud, server_id)
    assert kind_of("FindServer", answer) == answers.GONE
    for late in (delete, stop, start, RenameServer(reason=WHY, server_id=server_id, name="n")):
        assert kind_of(late, await cloud.execute(late)) == answers.GONE
    assert server_id not in {one.server_id for one in await cloud.list_servers()}


async def test_a_server_for_which_there_is_no_host(site, cloud):
    answer = await cloud.execute(create(site, flavor_id=site.impossible_flavor))
    assert answer.http_status == 202
    record = await rest(site, cloud, answer.server_id, "ERROR")
    assert record.fault.startswith("No valid host was found.")
    assert not answers.is_quota_text(record.fault)
    stop = StopServer(reason=WHY, server_id=answer.server_id)
    refused = await cloud.execute(stop)
    assert refused.http_status == 409
    assert kind_of(stop, refused) == answers.REFUSED
    delete = DeleteServer(reason=WHY, server_id=answer.server_id, expect=FREE)
    assert kind_of(delete, await cloud.execute(delete)) == answers.DONE
    await gone(site, cloud, answer.server_id)


# --- compare and act -----------------------------------------------------------------------


async def test_claim_and_rename(site, cloud):
    record = await built(site, cloud, metadata=metadata(kept="yes"))
    claim = ClaimServer(
        reason=WHY, server_id=record.server_id, expect=FREE,
        metadata=metadata(reattrib="true", poolsm_claimant="me", serverpool_id="other"),
    )  # fmt: skip
    assert kind_of(claim, await cloud.execute(claim)) == answers.DONE
    record = (await find(cloud, record.server_id)).server
    assert record.metadata.items() >= claim.metadata.items()
    assert record.metadata["kept"] == "yes"
    assert COMMAND_ID in record.metadata

    again = await cloud.execute(claim)
    assert (again.http_status, again.unmet) == (200, "")
    assert again.server.metadata == record.metadata

    other = evolve(claim, metadata=metadata(reattrib="true", poolsm_claimant="you"))
    refused = await cloud.execute(other)
    assert kind_of(other, refused) == answers.UNMET
    assert (await find(cloud, record.server_id)).server == record

    rename = RenameServer(reason=WHY, server_id=record.server_id, name="other-1")
    assert kind_of(rename, await cloud.execute(rename)) == answers.DONE
    assert (await find(cloud, record.server_id)).server.name == "other-1"


async def test_what_is_not_as_expected_is_not_deleted(site, cloud):
    record = await built(site, cloud, metadata=metadata(reattrib="true"))
    delete = DeleteServer(reason=WHY, server_id=record.server_id, expect=FREE)
    answer = await cloud.execute(delete)
    assert kind_of(delete, answer) == answers.UNMET
    assert answer.server == record
    assert (await find(cloud, record.server_id)).server == record


async def test_rebuild_keeps_the_server(site, cloud):
    record = await built(site, cloud)
    images = {one.name: one.image_id for one in await cloud.list_images(VM)}
    rebuild = RebuildServer(
        reason=WHY, server_id=record.server_id, image_id=images["desktop-image"], name="again-1"
    )
    assert kind_of(rebuild, await cloud.execute(rebuild)) == answers.DONE
    after = await rest(site, cloud, record.server_id, "ACTIVE")
    assert (after.image_id, after.name) == (images["desktop-image"], "again-1")
    assert after.metadata == record.metadata


# --- refusals ------------------------------------------------------------------------------

NOBODY = "00000000-0000-4000-8000-00000000dead"
REFUSALS = {
    "image unknown": ({"image_id": NOBODY}, "", 400, answers.IMAGE, "Can not find requested image"),
    "image of another project": ({"image_id": INFRA}, "", 400, answers.IMAGE, "Can not find"),
    "image ref no uuid": ({"image_id": "jupyter"}, "", 400, answers.IMAGE, "attribute imageRef"),
    "flavor unknown": ({"flavor_id": "77"}, "", 400, answers.INVALID, "Flavor 77 could not be"),
    "network unknown": ({"networks": (NOBODY,)}, "", 400, answers.INVALID, f"Network {NOBODY}"),
    "key unknown": ({"key_name": "nokey"}, "", 400, answers.INVALID, "Invalid key_name provided"),
    "too many metadata items": (
        {"metadata": metadata(**{f"k{n}": "v" for n in range(126)})},
        "", 403, answers.INVALID, "metadata items exceeds 128",
    ),
    "metadata value too long": (
        {"metadata": metadata(k="v" * 300)}, "", 400, answers.INVALID, "Invalid input for",
    ),
    "name empty": ({"name": ""}, "", 400, answers.INVALID, "Invalid input for"),
    "user-data too large": ({}, "QUFB" * 20_000, 400, answers.INVALID, "user_data"),
    "user-data no base64": ({}, "!secret!", 400, answers.INVALID, "user_data"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refused_create(site, cloud, case):
    fields, user_data, status, kind, text = REFUSALS[case]
    if fields.get("image_id") == INFRA:
        fields = {"image_id": site.image(INFRA)}
    command = create(site, **fields)
    answer = await cloud.execute(command, user_data)
    assert (answer.http_status, kind_of(command, answer)) == (status, kind), answer
    assert text in answer.message
    assert answer.error_kind in {"badRequest", "forbidden"}
    if user_data:
        assert user_data[:8] not in repr(answer)
    assert not [one for one in await cloud.list_servers() if ours(one)]


async def test_over_quota(site, cloud):
    used = len(await cloud.list_servers())
    command = create(site)
    await asyncio.to_thread(site.limit_instances, used)
    try:
        answer = await cloud.execute(command)
    finally:
        await asyncio.to_thread(site.lift_limit)
    assert (answer.http_status, answer.error_kind) == (403, "forbidden")
    assert answer.message.startswith("Quota exceeded for instances: Requested 1, but already used")
    assert kind_of(command, answer) == answers.QUOTA
    assert answer.retry_after_s is None


async def test_servers_that_never_were(site, cloud):
    for command in (
        FindServer(reason=WHY, server_id=NOBODY),
        DeleteServer(reason=WHY, server_id=NOBODY, expect=FREE),
        StopServer(reason=WHY, server_id=NOBODY),
        RenameServer(reason=WHY, server_id=NOBODY, name="n"),
        ClaimServer(reason=WHY, server_id=NOBODY, expect=FREE, metadata={"a": "b"}),
    ):
        answer = await cloud.execute(command)
        assert (answer.http_status, answer.error_kind) == (404, "itemNotFound")
        assert kind_of(command, answer) == answers.GONE
        assert NOBODY in answer.message


# --- listings ------------------------------------------------------------------------------


async def listed(site, gateway):
    """A listing that the core would accept.

    While servers are being built a real Nova shows some on two pages, or leads back to a page
    that was; both are refused, and the next listing is another chance.
    """
    ends = time.monotonic() + site.patience_s
    while True:
        try:
            records = await gateway.list_servers()
        except ListingError as error:
            if "leads back" not in error.message:
                raise
        else:
            if len({one.server_id for one in records}) == len(records):
                return records
        assert time.monotonic() < ends
        await asyncio.sleep(0.1)


async def test_a_listing_has_the_servers_of_all_pages(site, cloud):
    ids = set()
    in_pages = Gateway(site.transport(), Deadlines(), page_limit=2)
    try:
        for _ in range(2 * PAGE):
            answer = await in_pages.execute(create(site))
            assert answer.http_status == 202
            ids.add(answer.server_id)
        for gateway in (in_pages, cloud, in_pages):  # while they are being built
            assert ids <= {one.server_id for one in await listed(site, gateway)}
        for server_id in ids:
            await rest(site, cloud, server_id, "ACTIVE")
        in_one, by_two = [
            sorted(filter(ours, await gateway.list_servers()), key=attrgetter("server_id"))
            for gateway in (cloud, in_pages)
        ]
        assert ids <= {one.server_id for one in in_one}
        assert by_two == in_one
        doomed = min(ids)
        await cloud.execute(DeleteServer(reason=WHY, server_id=doomed, expect=FREE))
        await gone(site, cloud, doomed)
        for gateway in (cloud, in_pages):
            assert doomed not in {one.server_id for one in await gateway.list_servers()}
        assert len(await in_pages.list_images(VM)) == len(await cloud.list_images(VM))
        assert await in_pages.list_flavors("vm") == await cloud.list_flavors("vm")
        assert await in_pages.list_networks("vm") == await cloud.list_networks("vm")
    finally:
        await in_pages.close()


async def test_projects_and_their_images(site, cloud):
    projects = await cloud.projects()
    assert projects.vm_project_id != projects.infra_project_id
    for project, owner in ((VM, projects.vm_project_id), (INFRA, projects.infra_project_id)):
        images = await cloud.list_images(project)
        own = {one.name: one for one in images if one.owner == owner}
        assert {"worker-image", "worker-image-old", "desktop-image"} <= own.keys()
        image = own["worker-image"]
        assert image.image_id == site.image(project)
        assert (image.status, image.visibility) == ("active", "private")
        assert image.created.endswith("Z")
    assert site.image(INFRA) not in {one.image_id for one in await cloud.list_images(VM)}


async def test_flavors_and_networks(site, cloud):
    flavors = {one.name: one for one in await cloud.list_flavors("vm")}
    assert (flavors["m1.tiny"].flavor_id, flavors["m1.tiny"].ram_mb) == (site.flavor, 512)
    networks = {one.name: one for one in await cloud.list_networks("vm")}
    assert networks["lab-net"].network_id == site.network
    assert (networks["lab-net"].shared, networks["lab-net"].status) == (True, "ACTIVE")
