"""The proxy itself: the truth passes unchanged, and each lie is told as it says."""

import http.client
import json
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import yaml

from poolsm.testing import QUICK, CloudConfig, network_id_of
from poolsm.testing.config import image_id_of
from tests.integration.served import serving
from tests.lying.bending import is_of_lost_half
from tests.lying.lies import KINDS, Lie
from tests.lying.proxied import lying

SERVERS = 4


class Client:
    """A signed-in client that believes the catalog."""

    def __init__(self, clouds_yaml):
        cloud = yaml.safe_load(Path(clouds_yaml).read_text())["clouds"]["sim-vm"]["auth"]
        user = {"name": cloud["username"], "password": cloud["password"]}
        auth = {
            "identity": {
                "methods": ["password"],
                "password": {"user": user | {"domain": {"id": "default"}}},
            },
            "scope": {"project": {"name": "vm", "domain": {"id": "default"}}},
        }
        self.auth_url = cloud["auth_url"]
        answer = requests.post(f"{self.auth_url}/auth/tokens", json={"auth": auth}, timeout=5)
        assert answer.status_code == 201
        self.headers = {
            "X-Auth-Token": answer.headers["X-Subject-Token"],
            "X-OpenStack-Nova-API-Version": "2.69",
            "Connection": "close",
        }
        catalog = answer.json()["token"]["catalog"]
        self.endpoints = {one["type"]: one["endpoints"][0]["url"] for one in catalog}

    def get(self, path, timeout=2, service="compute"):
        url = path if path.startswith("http") else self.endpoints[service] + path
        return requests.get(url, headers=self.headers, timeout=timeout)

    def create(self, name, timeout=2):
        body = {
            "server": {
                "name": name,
                "imageRef": image_id_of("worker-image"),
                "flavorRef": "1",
                "networks": [{"uuid": network_id_of("lab-net")}],
            }
        }
        url = self.endpoints["compute"] + "/servers"
        return requests.post(url, json=body, headers=self.headers, timeout=timeout)

    def names(self):
        return {one["name"] for one in self.listed()}

    def listed(self):
        return self.get("/servers/detail").json()["servers"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cloud")
    with serving(folder, CloudConfig(speeds=QUICK)) as found:
        yield found


@pytest.fixture(scope="module")
def proxied(cloud, tmp_path_factory):
    with lying(tmp_path_factory.mktemp("proxy"), cloud.clouds_yaml) as found:
        yield found


@pytest.fixture(scope="module")
def direct(cloud):
    return Client(cloud.clouds_yaml)


@pytest.fixture
def client(proxied, direct):
    """A client of the proxy, and so many servers in the cloud; the truth again afterwards."""
    made = Client(proxied.clouds_yaml)
    while len(direct.names()) < SERVERS:
        direct.create(f"server-{time.monotonic_ns()}")
    yield made
    proxied.truth()
    proxied.set_page_limit(0)
    proxied.open()


def test_a_client_that_signs_in_at_the_proxy_never_leaves_it(client, proxied, direct):
    real = urlsplit(direct.auth_url).netloc
    for url in client.endpoints.values():
        assert urlsplit(url).netloc != real
    proxied.set_page_limit(1)
    page = client.get("/servers/detail").json()
    (link,) = page["servers_links"]
    assert link["href"].startswith(client.endpoints["compute"])
    assert len(client.get(link["href"]).json()["servers"]) == 1
    assert real not in json.dumps(page)


def test_the_truth_passes_as_it_is_and_is_written_down(client, proxied, direct):
    before = len(proxied.exchanges())
    assert client.names() == direct.names()
    assert client.get("/v2/images", service="image").status_code == 200
    assert client.create("by-proxy").status_code == 202
    listed, images, created = proxied.exchanges(before)
    assert (listed.service, listed.operation, listed.real_status) == ("compute", "list", 200)
    assert images.service == "image"
    assert (created.operation, created.forwarded, created.status) == ("create", True, 202)
    assert proxied.writes()[-1] == created


@pytest.mark.parametrize(
    "error",
    [(401, False, None), (403, True, None), (404, False, None), (409, False, None),
     (429, False, 7), (503, False, 3), (500, False, None), (502, True, None), (504, True, None)],
)  # fmt: skip
def test_an_error_before_the_effect_and_one_after_it(client, proxied, direct, error):
    status, html, retry_after_s = error
    more = {"status": status, "html": html, "retry_after_s": retry_after_s}
    for kind, made in (("refuse", False), ("refuse_after", True)):
        name = f"{kind}-{status}"
        proxied.tell(Lie(kind=kind, operations=("create",), **more))
        answer = client.create(name)
        assert answer.status_code == status
        assert answer.headers.get("Retry-After") == (str(retry_after_s) if retry_after_s else None)
        assert answer.text.startswith("<html>") is html
        assert (name in direct.names()) is made


def test_a_write_that_is_only_pretended(client, proxied, direct):
    proxied.tell(Lie(kind="pretend", operations=("create", "delete")))
    answer = client.create("pretended")
    assert answer.status_code == 202
    assert "pretended" not in direct.names()
    assert client.get(f"/servers/{answer.json()['server']['id']}").status_code == 404
    there = direct.listed()[0]["id"]
    url = f"{client.endpoints['compute']}/servers/{there}"
    assert requests.delete(url, headers=client.headers, timeout=5).status_code == 204
    assert there in {one["id"] for one in direct.listed()}


@pytest.mark.parametrize("kind", ["hang", "hang_after", "drop", "drop_after", "late", "cut"])
def test_no_whole_answer_before_the_effect_or_after_it(client, proxied, direct, kind):
    proxied.tell(Lie(kind=kind, operations=("create",), delay_ms=1000))
    began = time.monotonic()
    with pytest.raises(requests.RequestException) as failure:
        client.create(kind, timeout=0.5)
    hangs = kind in {"hang", "hang_after", "late"}
    assert isinstance(failure.value, requests.Timeout) is hangs
    assert (time.monotonic() - began >= 0.5) is hangs
    assert (kind in direct.names()) is (kind in {"hang_after", "drop_after", "cut"})
    if kind == "late":
        until = time.monotonic() + 10
        while kind not in direct.names():
            assert time.monotonic() < until
            time.sleep(0.1)


def test_broken_bodies(client, proxied):
    proxied.tell(Lie(kind="broken_chunks", operations=("list",)))
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        client.get("/servers/detail")
    proxied.tell(Lie(kind="cut", operations=("list",)))
    with pytest.raises(requests.exceptions.RequestException):
        client.get("/servers/detail")
    proxied.tell(Lie(kind="drip", operations=("list",), delay_ms=50))
    where = urlsplit(client.endpoints["compute"])
    connection = http.client.HTTPConnection(where.netloc, timeout=5)
    connection.request("GET", where.path + "/servers/detail", headers=client.headers)
    answer = connection.getresponse()
    began = time.monotonic()
    answer.read(10)
    assert 0.4 < time.monotonic() - began < 4
    connection.close()
    proxied.tell(Lie(kind="half_json", operations=("list",)))
    with pytest.raises(requests.exceptions.JSONDecodeError):
        client.listed()
    proxied.tell(Lie(kind="not_json", operations=("list",)))
    assert client.get("/servers/detail").text.startswith("<html>")
    proxied.tell(Lie(kind="error_body", operations=("list",)))
    answer = client.get("/servers/detail")
    assert (answer.status_code, list(answer.json())) == (200, ["computeFault"])


def test_bent_listings(client, proxied, direct):
    true = direct.listed()
    ids = {one["id"] for one in true}

    def listed(kind, **more):
        proxied.tell(Lie(kind=kind, operations=("list",), **more))
        return client.listed()

    assert listed("empty_list") == []
    assert [one["id"] for one in listed("short_list")] == [
        one["id"] for one in true[: len(true) // 2]
    ]
    assert {one["id"] for one in listed("half_list")} == {i for i in ids if not is_of_lost_half(i)}
    assert len(listed("duplicate")) == 2 * len(true)
    assert {one["id"] for one in listed("omit", server_id=true[0]["id"])} == ids - {true[0]["id"]}
    assert all(one["metadata"] == {} for one in listed("blank_metadata"))
    partial = listed("partial_record")
    assert {one["id"] for one in partial} == ids
    assert all(one["status"] == "UNKNOWN" and "name" not in one for one in partial)
    assert {one["id"] for one in listed("garbage")} == {None}
    shuffled = listed("shuffle")
    assert {one["id"] for one in shuffled} == ids
    proxied.set_page_limit(2)
    proxied.tell(Lie(kind="no_next_link", operations=("list",)))
    assert list(client.get("/servers/detail").json()) == ["servers"]
    proxied.tell(Lie(kind="lost_marker", operations=("list",)))
    assert client.get("/servers/detail").status_code == 200
    marked = client.get(f"/servers/detail?limit=1&marker={true[0]['id']}")
    assert marked.status_code == 400
    assert "marker" in marked.json()["badRequest"]["message"]


def test_a_stale_listing_is_an_older_answer(client, proxied):
    client.get("/servers/detail")
    assert client.create("younger").status_code == 202
    assert "younger" in client.names()
    proxied.tell(Lie(kind="stale", operations=("list",), age_ms=3_600_000))
    assert "younger" not in client.names()


def test_closed_doors_refuse_and_open_again_at_the_same_address(client, proxied):
    where = urlsplit(client.auth_url)
    proxied.shut()
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((where.hostname, where.port), 2)
    proxied.open()
    assert client.listed()


def test_what_cannot_be_told_is_refused(proxied):
    with pytest.raises(ValueError, match="lie 'boot_hang'"):
        Lie(kind="boot_hang")
    with pytest.raises(ValueError, match="operation 'lst'"):
        Lie(kind="drop", operations=("lst",))
    assert len(set(KINDS)) == len(KINDS)
