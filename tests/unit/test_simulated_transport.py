"""The gateway over the embedded simulated cloud, on a clock that only jumps."""

import asyncio

import pytest
from sim_tools import IMAGE, NETWORK, T0

from poolsm.commands import (
    ClaimServer,
    CreateServer,
    DeleteServer,
    Expectation,
    FindServer,
    Reason,
    RenameServer,
    StopServer,
    UserDataRef,
)
from poolsm.spec import PoolKey
from poolsm.testing import INFRA, VM, CloudConfig, Fault, SimulatedCloud, project_id_of
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import Deadlines, ListingError, Projects, TransportError
from poolsm_runners.cloud.simulated import SimulatedTransport

WHY = Reason("R0 test", "1 = 1")
POOL = PoolKey("p", "u")


class JumpingClock:
    """Sleeping is jumping; the tasks take turns."""

    def __init__(self):
        self.time_ms = T0

    def now_ms(self):
        return self.time_ms

    def elapsed_ms(self):
        return self.time_ms

    def step_ms(self):
        return 0

    async def sleep(self, seconds):
        self.time_ms += round(seconds * 1000)
        await asyncio.sleep(0)


def made(*faults, **config):
    cloud = SimulatedCloud(CloudConfig(**config))
    cloud.set_faults(faults)
    clock = JumpingClock()
    transport = SimulatedTransport(cloud, clock)
    return cloud, clock, transport, Gateway(transport, Deadlines(), page_limit=3)


def create(command_id="c-1"):
    return CreateServer(
        reason=WHY,
        pool=POOL,
        image_id=IMAGE,
        flavor_id="1",
        networks=(NETWORK,),
        key_name="lab-key",
        user_data=UserDataRef(),
        metadata={"serverpool_id": "p", "user_id": "u", "reattrib": "false"},
    ).with_id(command_id)


async def test_the_gateway_works_on_it_from_create_to_delete():
    cloud, clock, _, gateway = made()
    answer = await gateway.execute(create(), "aGk=")
    assert answer.http_status == 202
    await clock.sleep(60)
    (record,) = await gateway.list_servers()
    assert (record.server_id, record.status, record.flavor_id) == (
        answer.server_id,
        "ACTIVE",
        "m1.tiny",
    )
    assert record.addresses == ("lab-net:10.77.0.10",)
    assert cloud.server(record.server_id).user_data == "aGk="
    expect = Expectation(pool=POOL, attributed=False)
    metadata = {"reattrib": "true"}
    claim = ClaimServer(reason=WHY, server_id=record.server_id, expect=expect, metadata=metadata)
    assert (await gateway.execute(claim)).http_status == 200
    rename = RenameServer(reason=WHY, server_id=record.server_id, name="q-1")
    assert (await gateway.execute(rename)).http_status == 200
    delete = DeleteServer(reason=WHY, server_id=record.server_id, expect=expect)
    assert "reattrib" in (await gateway.execute(delete)).unmet
    stop = StopServer(reason=WHY, server_id=record.server_id)
    assert (await gateway.execute(stop)).http_status == 202
    expect = Expectation(pool=POOL, attributed=True)
    delete = DeleteServer(reason=WHY, server_id=record.server_id, expect=expect)
    assert (await gateway.execute(delete)).http_status == 204
    await clock.sleep(60)
    found = await gateway.execute(FindServer(reason=WHY, server_id=record.server_id))
    assert (found.http_status, found.error_kind) == (404, "itemNotFound")
    assert await gateway.list_servers() == []


async def test_all_listings_are_complete():
    cloud, _, _, gateway = made()
    for number in range(7):
        cloud.hands.add_server(f"p-{number}")
    assert len(await gateway.list_servers()) == 7
    assert len(await gateway.list_images(VM)) == 3
    assert {one.owner for one in await gateway.list_images(INFRA)} == {project_id_of(INFRA)}
    assert "m1.tiny" in [one.name for one in await gateway.list_flavors("vm")]
    assert [one.name for one in await gateway.list_networks("vm")] == ["lab-net"]
    assert await gateway.projects() == Projects(project_id_of(VM), project_id_of(INFRA))


@pytest.mark.parametrize("kind", ["lost_marker", "garbage", "cut", "refuse", "hang"])
async def test_a_listing_with_a_fault_is_no_listing(kind):
    cloud, _, _, gateway = made(max_limit=3)
    for number in range(7):
        cloud.hands.add_server(f"p-{number}")
    cloud.add_fault(Fault(kind=kind, operations=("list",), count=1))
    with pytest.raises(ListingError):
        await gateway.list_servers()
    assert len(await gateway.list_servers()) == 7


async def test_a_listing_without_its_links_is_complete_or_none():
    cloud, _, _, gateway = made(max_limit=3)
    for number in range(7):
        cloud.hands.add_server(f"p-{number}")
    cloud.add_fault(Fault(kind="no_next_link"))
    try:
        found = len(await gateway.list_servers())
    except ListingError:
        found = 7
    assert found == 7


@pytest.mark.parametrize(
    ("kind", "error", "exists", "waited_s"),
    [
        ("hang", "timeout", 0, 60),
        ("hang_after", "timeout", 1, 60),
        ("delay", "timeout", 1, 60),
        ("drop", "connection", 0, 0),
        ("drop_after", "connection", 1, 0),
        ("cut", "connection", 1, 0),
        ("unreachable", "not_sent", 0, 0),
    ],
)
async def test_how_a_create_can_be_left_without_an_answer(kind, error, exists, waited_s):
    cloud, clock, _, gateway = made(Fault(kind=kind, delay_ms=90_000))
    answer = await gateway.execute(create())
    assert (answer.transport_error, answer.http_status) == (error, None)
    assert cloud.live_count() == exists
    assert abs((clock.time_ms - T0) / 1000 - waited_s) < 1


async def test_an_answer_in_time_is_waited_for():
    _, clock, _, gateway = made(Fault(kind="delay", delay_ms=5_000))
    assert (await gateway.execute(create())).http_status == 202
    assert clock.time_ms - T0 >= 5_000


async def test_a_401_is_tried_once_more_but_never_a_create():
    cloud, _, _, gateway = made(Fault(kind="refuse", status=401, count=1))
    assert await gateway.list_servers() == []
    assert cloud.call_count("list") == 2
    cloud.set_faults((Fault(kind="refuse", status=401, count=1),))
    assert (await gateway.execute(create())).http_status == 401
    assert cloud.call_count("create") == 1


@pytest.mark.parametrize("kind", ["refuse", "hang", "unreachable"])
async def test_no_token_is_an_error_of_authentication(kind):
    _, _, transport, _ = made(Fault(kind=kind, operations=("auth",), status=401))
    with pytest.raises(TransportError) as raised:
        await transport.projects()
    assert raised.value.kind == "auth"
    await transport.close()
