"""The simulated cloud when nothing is wrong: lives, listings, images, quotas, inspection."""

import copy
import json
import time

import pytest
from sim_tools import IMAGE, MINUTE, NETWORK, T0, Client, message

from poolsm.testing import (
    INFRA,
    VM,
    CloudConfig,
    FlavorConfig,
    ImageConfig,
    NetworkConfig,
    Quotas,
    Speeds,
    Spread,
    project_id_of,
    read_config,
)


def states(client, server_id):
    return [(status, task) for _, status, task in client.cloud.server(server_id).history]


def test_a_server_boots_as_nova_shows_it():
    client = Client()
    server_id = client.create(key_name="lab-key", user_data="aGk=", config_drive=True)
    assert client.show(server_id)["addresses"] == {}
    client.wait(MINUTE)
    view = client.show(server_id)
    assert states(client, server_id) == [
        ("BUILD", "scheduling"),
        ("BUILD", None),
        ("BUILD", "networking"),
        ("BUILD", "spawning"),
        ("ACTIVE", None),
    ]
    assert view["addresses"]["lab-net"][0]["addr"] == "10.77.0.10"
    assert view["config_drive"] == "True"
    assert client.cloud.server(server_id).user_data == "aGk="


def test_stop_start_and_delete_take_their_time():
    client = Client()
    server_id = client.active()
    assert client.act(server_id, "os-stop") == 202
    assert client.show(server_id)["OS-EXT-STS:task_state"] == "powering-off"
    client.wait(MINUTE)
    assert client.show(server_id)["status"] == "SHUTOFF"
    assert client.act(server_id, "os-start") == 202
    client.wait(MINUTE)
    assert client.delete(server_id) == 204
    assert client.show(server_id)["OS-EXT-STS:task_state"] == "deleting"
    seen = set()
    for _ in range(1000):
        client.wait(10)
        view = client.show(server_id)
        seen.add(view if isinstance(view, int) else view["status"])
        if view == 404:
            break
    assert seen == {"ACTIVE", "DELETED", 404}
    assert client.page()["servers"] == []
    assert client.cloud.server(server_id).deleted_by == "api"


def test_a_delete_during_the_boot_waits_for_its_end():
    client = Client(CloudConfig(speeds=Speeds(spawning_ms=Spread(20_000, 20_000))))
    server_id = client.create()
    client.wait(5_000)
    assert client.delete(server_id) == 204
    client.wait(10_000)
    view = client.show(server_id)
    assert (view["status"], view["OS-EXT-STS:task_state"]) == ("BUILD", "deleting")
    client.wait(10_000)
    assert client.show(server_id) == 404


def test_a_delete_before_the_scheduling_is_immediate():
    client = Client()
    server_id = client.create()
    assert client.delete(server_id) == 204
    client.wait(400)
    assert client.show(server_id) == 404


def test_a_rebuild_keeps_id_and_power_and_changes_image_and_name():
    client = Client()
    server_id = client.active()
    other = client.cloud.hands.add_image(ImageConfig("new", VM))
    body = {"rebuild": {"imageRef": other, "name": "renamed"}}
    reply = client.ask("POST", f"/servers/{server_id}/action", body)
    assert reply.status == 202
    assert client.show(server_id)["status"] == "REBUILD"
    client.wait(MINUTE)
    view = client.show(server_id)
    assert (view["status"], view["name"], view["image"]["id"]) == ("ACTIVE", "renamed", other)


def test_metadata_cannot_be_written_before_the_end_of_the_boot():
    client = Client()
    server_id = client.create()
    reply = client.ask("POST", f"/servers/{server_id}/metadata", {"metadata": {"a": "b"}})
    assert reply.status == 409
    assert "while it is in vm_state building" in message(reply)


def test_an_impossible_flavor_ends_in_no_valid_host():
    client = Client()
    server_id = client.create(flavorRef="99")
    client.wait(1000)
    view = client.show(server_id)
    assert view["status"] == "ERROR"
    assert view["fault"]["message"] == "No valid host was found. "
    assert message(client.ask("POST", f"/servers/{server_id}/action", {"os-stop": None})) == (
        f"Instance {server_id} is not ready"
    )


def test_pages_are_newest_first_and_complete():
    client = Client(CloudConfig(max_limit=3))
    names = [f"p-{number}" for number in range(7)]
    for name in names:
        client.create(name)
    found, path = [], "/servers/detail?limit=1000"
    for _ in range(4):
        page = json.loads(client.ask("GET", path).body)
        found += [one["name"] for one in page["servers"]]
        links = page.get("servers_links")
        if not links:
            break
        path = links[0]["href"].partition("/v2.1")[2]
    assert found == names[::-1]


def test_a_full_last_page_links_to_an_empty_one():
    client = Client()
    client.create("p-1")
    page = client.page("?limit=1")
    marker = page["servers"][0]["id"]
    assert page["servers_links"][0]["href"].endswith(f"?limit=1&marker={marker}")
    assert client.page(f"?limit=1&marker={marker}") == {"servers": []}


def test_a_server_that_appears_between_two_pages_does_not_disturb_them():
    client = Client()
    for name in ("p-1", "p-2", "p-3"):
        client.create(name)
        client.wait(1000)
    first = client.page("?limit=2")["servers"]
    client.create("p-4")
    rest = client.page(f"?limit=2&marker={first[-1]['id']}")["servers"]
    assert [one["name"] for one in first + rest] == ["p-3", "p-2", "p-1"]


def test_the_name_filter_is_a_regular_expression():
    client = Client()
    for name in ("p-1", "p-10", "q-1"):
        client.create(name)
    assert client.names("?name=p-1") == ["p-10", "p-1"]
    assert client.names("?name=^p-1$") == ["p-1"]
    assert client.names("?status=ACTIVE") == []


def test_projects_do_not_see_each_other():
    client = Client()
    server_id = client.create()
    assert client.ask("GET", f"/servers/{server_id}", project=INFRA).status == 404
    assert json.loads(client.ask("GET", "/servers/detail", project=INFRA).body)["servers"] == []


def images(client, project):
    reply = client.ask("GET", "/images?limit=1000", project=project, service="image")
    return sorted(one["name"] for one in json.loads(reply.body)["images"])


def test_a_listing_of_images_shows_own_public_and_accepted_shared_ones():
    config = CloudConfig(
        images=(
            ImageConfig("own", VM),
            ImageConfig("private", INFRA),
            ImageConfig("public", INFRA, visibility="public"),
            ImageConfig("community", INFRA, visibility="community"),
            ImageConfig("offered", INFRA, visibility="shared"),
            ImageConfig("accepted", INFRA, visibility="shared", members=(VM,)),
        )
    )
    client = Client(config)
    assert images(client, VM) == ["accepted", "own", "public"]
    assert images(client, INFRA) == ["accepted", "offered", "private", "public"]


def test_images_come_in_pages_of_25_unless_asked():
    many = tuple(ImageConfig(f"image-{n}", VM) for n in range(30))
    client = Client(CloudConfig(images=many))
    page = json.loads(client.ask("GET", "/images", service="image").body)
    assert len(page["images"]) == 25
    rest = client.ask("GET", page["next"].removeprefix("/v2"), service="image")
    assert len(json.loads(rest.body)["images"]) == 5


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"imageRef": "00000000-0000-4000-8000-000000000000"}, 400, "Can not find requested image"),
        ({"flavorRef": "x"}, 400, "Flavor x could not be found."),
        ({"key_name": "x"}, 400, "Invalid key_name provided."),
        ({"name": ""}, 400, "attribute name"),
        ({"name": " p"}, 400, "Can not start or end with whitespace."),
        ({"user_data": "A" * 65_536}, 400, "attribute user_data"),
        ({"user_data": "abc"}, 400, "is not a 'base64'"),
        ({"metadata": {f"k{n}": "v" for n in range(129)}}, 403, "exceeds 128"),
        ({"metadata": {"k": "v" * 256}}, 400, "attribute k"),
        ({"metadata": {"ü": "v"}}, 400, "attribute metadata"),
        ({"surprise": 1}, 400, "Additional properties are not allowed ('surprise'"),
    ],
)
def test_refused_creates_leave_nothing(change, status, text):
    client = Client()
    reply = client.ask("POST", "/servers", client.order(**change))
    assert reply.status == status
    assert text in message(reply)
    assert client.cloud.servers() == []
    assert client.cloud.call_count("create", status) == 1


def test_a_quota_is_full_until_a_server_is_gone():
    client = Client(CloudConfig(vm_quotas=Quotas(instances=1)))
    server_id = client.active()
    reply = client.ask("POST", "/servers", client.order("p-2"))
    assert (reply.status, message(reply)) == (
        403,
        "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances",
    )
    client.delete(server_id)
    client.wait(MINUTE)
    client.create("p-2")
    client.cloud.hands.set_quota(instances=-1)
    client.create("p-3")


def test_addresses_are_given_back_and_can_run_out():
    client = Client(CloudConfig(networks=(NetworkConfig("lab-net", "10.0.0.0/28"),)))
    ids = [client.create(f"p-{number}") for number in range(6)]
    client.wait(MINUTE)
    ended = [client.cloud.server(server_id) for server_id in ids]
    assert sorted(one.status for one in ended) == ["ACTIVE"] * 5 + ["ERROR"]
    (failed,) = [one for one in ended if one.status == "ERROR"]
    assert "No fixed IP addresses" in client.show(failed.server_id)["fault"]["message"]
    client.delete(next(one.server_id for one in ended if one.status == "ACTIVE"))
    client.wait(MINUTE)
    client.active("p-7")


def test_one_seed_is_one_history_whoever_watches():
    def run(watching):
        client = Client(seed=7)
        ids = [client.create(f"p-{number}") for number in range(3)]
        for _ in range(100):
            client.now_ms += 100
            if watching:
                client.page()
        client.cloud.advance(client.now_ms)
        return [client.cloud.server(server_id) for server_id in ids]

    assert run(watching=True) == run(watching=False)
    other = Client(seed=8)
    assert other.create() != Client(seed=7).create()


def test_the_boot_times_follow_the_config():
    slow = Speeds(spawning_ms=Spread(1000, 1000, tail=0.5, tail_ms=100_000))
    client = Client(CloudConfig(speeds=slow))
    for number in range(50):
        client.create(f"p-{number}")
    client.wait(5_000)
    early = sum(one.status == "ACTIVE" for one in client.cloud.live_servers())
    assert 10 < early < 40
    client.wait(3 * MINUTE)
    assert all(one.status == "ACTIVE" for one in client.cloud.live_servers())


def test_next_ms_leads_through_everything_that_happens():
    client = Client()
    server_id = client.create()
    while (at_ms := client.cloud.next_ms()) is not None:
        client.cloud.advance(at_ms)
    assert client.cloud.server(server_id).status == "ACTIVE"


def test_what_the_cloud_knows():
    client = Client()
    server_id = client.create("p-1", command="c-1")
    client.create("p-2", command="c-1")
    client.create("p-3", command="c-2")
    client.wait(MINUTE)
    client.delete(server_id)
    client.delete(server_id)
    client.wait(MINUTE)
    cloud = client.cloud
    assert cloud.creates_by_command() == {"c-1": 2, "c-2": 1}
    assert cloud.deletes_by_server() == {server_id: 2}
    assert (cloud.live_count(), len(cloud.servers(VM)), len(cloud.servers(INFRA))) == (2, 3, 0)
    assert cloud.calls == {("create", 202): 3, ("delete", 204): 2}
    assert [one.operation for one in cloud.writes] == ["create"] * 3 + ["delete"] * 2


def test_others_change_the_cloud():
    client = Client()
    server_id = client.active()
    hands = client.cloud.hands
    hands.vanish(server_id)
    assert client.show(server_id) == 404
    assert client.page()["servers"] == []
    hands.restore(server_id)
    hands.set_status(server_id, "PAUSED")
    assert client.show(server_id)["status"] == "PAUSED"
    hands.set_status(server_id, "SURPRISE")
    assert client.show(server_id)["status"] == "UNKNOWN"
    hands.set_metadata(server_id, {"other": "x"})
    assert client.show(server_id)["metadata"] == {"other": "x"}
    hands.lock(server_id)
    assert client.delete(server_id) == 409
    foreign = hands.add_server("foreign", {"a": "b"}, age_ms=2 * MINUTE)
    assert client.names() == ["p-1", "foreign"]
    hands.kill(foreign)
    assert client.cloud.server(foreign).deleted_by == "cloud"
    assert client.cloud.live_count() == 1


def test_manipulations_can_be_set_for_later():
    client = Client()
    server_id = client.active()
    hands = client.cloud.hands
    hands.schedule(client.now_ms + 1000, "set_status", server_id=server_id, status="SHUTOFF")
    flavor = {"flavor_id": "7", "name": "x", "ram_mb": 1, "vcpus": 1, "disk_gb": 1}
    hands.schedule(client.now_ms + 1000, "add_flavor", **flavor)
    client.wait(999)
    assert client.show(server_id)["status"] == "ACTIVE"
    client.wait(1)
    assert client.show(server_id)["status"] == "SHUTOFF"
    client.create("p-2", flavorRef="7")
    with pytest.raises(ValueError, match="one of vanish"):
        hands.schedule(client.now_ms, "no_such_thing")
    with pytest.raises(ValueError, match="simulated cloud"):
        hands.carry_out('{"action": "vanish", "arguments": {"server_id": "nobody"}}')


def test_the_rest_of_the_cloud_changes_too():
    client = Client()
    hands = client.cloud.hands
    hands.add_key_pair("k")
    client.create("p-1", key_name="k")
    hands.remove_key_pair("k")
    assert client.ask("POST", "/servers", client.order(key_name="k")).status == 400
    hands.remove_image(IMAGE)
    assert message(client.ask("POST", "/servers", client.order())) == "Can not find requested image"
    private = hands.add_image(ImageConfig("theirs", INFRA))
    assert client.ask("POST", "/servers", client.order(imageRef=private)).status == 400
    hands.set_image(private, visibility="shared")
    hands.accept_image(private, VM)
    client.create("p-2", imageRef=private)
    hands.set_image(private, status="deactivated")
    assert "is not active" in message(
        client.ask("POST", "/servers", client.order(imageRef=private))
    )
    hands.remove_flavor("1")
    hands.add_flavor(FlavorConfig("9", "m9", 1, 1, 1))
    assert client.ask("POST", "/servers", client.order()).status == 400


def test_a_cloud_can_be_copied_in_the_middle():
    client = Client()
    server_id = client.create()
    twin = Client(cloud=copy.deepcopy(client.cloud))
    client.wait(MINUTE)
    assert twin.cloud.server(server_id).status == "BUILD"
    twin.wait(MINUTE)
    assert twin.cloud.server(server_id) == client.cloud.server(server_id)


def test_config_as_json():
    config = read_config(b'{"vm_quotas": {"instances": 3}, "networks": [{"name": "n"}]}')
    assert config.vm_quotas == Quotas(instances=3)
    assert config.vm_project_id == project_id_of(VM)
    assert config.networks == (NetworkConfig("n"),)
    with pytest.raises(ValueError, match=r"vm_quotas\.instances"):
        read_config(b'{"vm_quotas": {"instances": "many"}}')


def test_nonsense_is_answered_not_raised():
    client = Client()
    for method, path, body in (
        ("POST", "/servers", b"{"),
        ("POST", "/servers", b"[]"),
        ("POST", "/servers", {"server": []}),
        ("PUT", "/servers/x", b"\xff"),
        ("GET", "/nothing", None),
        ("GET", "/", None),
        ("PATCH", "/servers/detail", None),
        ("GET", "/servers/detail?limit=-1", None),
    ):
        for service in ("compute", "image", "network", "identity"):
            assert client.ask(method, path, body, service=service).status >= 400
    server_id = client.active()
    for body in ({}, {"rebuild": {}}, {"rebuild": None}, {"unknown": None}):
        assert client.ask("POST", f"/servers/{server_id}/action", body).status == 400
    assert client.ask("GET", "/servers/detail?name=(").status == 500
    network = {"networks": [{"uuid": NETWORK}, {"port": "x"}]}
    assert client.ask("POST", "/servers", client.order(**network)).status == 400


def test_ten_thousand_servers_are_listed_quickly():
    client = Client(CloudConfig(vm_quotas=Quotas(instances=-1)))
    for number in range(10_000):
        client.now_ms = T0 + number
        client.create(f"p-{number}")
    client.wait(MINUTE)

    def listing():
        query, count = "?limit=1000", 0
        while True:
            body = client.ask("GET", f"/servers/detail{query}").body
            count += body.count(b'"hostId"')
            tail = body.partition(b'"servers_links"')[2]
            if not tail:
                return count
            query = "?limit=1000&marker=" + tail.partition(b"marker=")[2][:36].decode()

    began = time.perf_counter()
    assert listing() == 10_000
    assert listing() == 10_000
    assert time.perf_counter() - began < 5  # 0.3 s where this was written
