"""The served simulated cloud: a process of its own, and the real openstacksdk as its client."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import msgspec
import openstack
import pytest
from keystoneauth1 import exceptions as keystone_errors
from openstack import exceptions as sdk_errors

from poolsm.testing import QUICK, CloudConfig, Fault, image_id_of, network_id_of, project_id_of

ROOT = Path(__file__).parents[2]
IMAGE, NETWORK = image_id_of("worker-image"), network_id_of("lab-net")

# openstacksdk warns of itself whenever a configuration is made.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


class Served:
    """A running served cloud."""

    def __init__(self, process, ready):
        self.process = process
        self.ready = ready

    def sim(self, method="GET", path="", value=None):
        data = None if value is None else msgspec.json.encode(value)
        request = urllib.request.Request(self.ready["sim_url"] + path, data, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def connect(self, project="vm"):
        os.environ["OS_CLIENT_CONFIG_FILE"] = self.ready["clouds_yaml"]
        return openstack.connect(cloud=f"sim-{project}")

    def token(self):
        connection = self.connect()
        return connection.session.get_token()

    def until(self, what):
        for _ in range(200):
            value = what()
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError("waited 10 s in vain")


@contextmanager
def serving(folder, *options, **config):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.json"
    file.write_bytes(msgspec.json.encode(CloudConfig(speeds=QUICK, **config)))
    process = subprocess.Popen(
        [sys.executable, "-m", "poolsm_runners.cloud.served", "--port", "0",
         "--config", str(file), "--state", str(folder), *options],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}"},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield Served(process, json.loads(process.stdout.readline()))
    finally:
        process.terminate()
        code = process.wait(10)
        process.stdout.close()
    assert code == 0


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served"), "--speed", "2") as served:
        yield served


@pytest.fixture
def served(shared):
    yield shared
    shared.sim("DELETE", "/faults")


def create(connection, name="vm-1", **more):
    return connection.compute.create_server(
        name=name, image_id=IMAGE, flavor_id="1", networks=[{"uuid": NETWORK}], **more
    )


def test_the_sdk_lists_creates_and_deletes(served):
    vm, infra = served.connect(), served.connect("infra")
    assert vm.current_project_id == project_id_of("vm")
    assert infra.current_project_id == project_id_of("infra")
    assert vm.image.find_image("worker-image").id == IMAGE
    assert {one.name for one in infra.image.images()} == {
        "worker-image", "worker-image-old", "desktop-image",
    }  # fmt: skip
    assert [one.name for one in vm.compute.flavors()][-1] == "m1.impossible"
    assert vm.network.find_network("lab-net").id == NETWORK
    server = create(vm, metadata={"poolsm_command": "c-1"}, key_name="lab-key")
    server = vm.compute.wait_for_server(server, interval=0.05)
    assert server.addresses["lab-net"][0]["addr"].startswith("10.77.0.")
    assert server.flavor.name == "m1.tiny"
    vm.compute.stop_server(server)
    served.until(lambda: vm.compute.get_server(server.id).status == "SHUTOFF")
    vm.compute.set_server_metadata(server, user_id="u")
    assert [one.metadata["user_id"] for one in vm.compute.servers()] == ["u"]
    assert served.sim(path="/creates") == {"c-1": 1}
    vm.compute.delete_server(server)
    vm.compute.wait_for_delete(server, interval=0.05)
    served.until(lambda: list(vm.compute.servers()) == [])  # DELETED is shown for a moment
    (story,) = served.sim(path="/servers?project=vm")
    assert (story["status"], story["command_id"]) == ("gone", "c-1")


def test_the_sdk_reads_all_pages(served):
    vm = served.connect()
    ids = {create(vm, f"page-{number}").id for number in range(7)}
    assert ids <= {one.id for one in vm.compute.servers(limit=2)}
    assert len(list(vm.image.images(limit=1))) == 3
    assert len(list(vm.compute.flavors(limit=1))) == 4


def test_the_sdk_understands_refusals(served):
    vm = served.connect()
    with pytest.raises(sdk_errors.BadRequestException, match="Can not find requested image"):
        vm.compute.create_server(name="x", image_id=NETWORK, flavor_id="1", networks="none")
    with pytest.raises(sdk_errors.NotFoundException, match="No image found with ID"):
        vm.image.get_image(NETWORK)
    with pytest.raises(sdk_errors.NotFoundException, match="could not be found"):
        vm.compute.get_server(NETWORK)
    served.sim("POST", "/hands", {"action": "set_quota", "arguments": {"instances": 0}})
    with pytest.raises(sdk_errors.ForbiddenException, match="Quota exceeded for instances"):
        create(vm)
    served.sim("POST", "/hands", {"action": "set_quota", "arguments": {"instances": 5000}})


def test_bad_credentials(served):
    with pytest.raises(keystone_errors.Unauthorized, match="requires authentication"):
        openstack.connect(
            auth_url=served.ready["sim_url"].replace("/sim", "/v3"),
            username="sim", password="wrong", project_name="vm",
            user_domain_id="default", project_domain_id="default",
        ).session.get_token()  # fmt: skip


def test_a_token_that_expired_is_renewed(served):
    vm = served.connect()
    list(vm.compute.servers())
    assert served.sim("POST", "/tokens/expire")["expired"] >= 1
    list(vm.compute.servers())


def test_tokens_have_the_life_of_the_config(tmp_path):
    with serving(tmp_path, token_life_s=1) as served:
        token = served.token()
        assert ask(served, "GET", "/compute/v2.1/servers", token)[0] == 200
        time.sleep(1.2)
        assert ask(served, "GET", "/compute/v2.1/servers", token)[0] == 401


def ask(served, method, path, token, body=None, *, timeout=5):
    connection = http.client.HTTPConnection("127.0.0.1", served.ready["port"], timeout=timeout)
    headers = {"X-Auth-Token": token, "OpenStack-API-Version": "compute 2.69"}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def order(name="raw", command=""):
    return json.dumps(
        {
            "server": {
                "name": name, "imageRef": IMAGE, "flavorRef": "1", "networks": "none",
                "metadata": {"poolsm_command": command},
            }
        }
    )  # fmt: skip


def test_faults_over_http(served):
    token = served.token()
    path = "/compute/v2.1/servers"
    served.sim("POST", "/faults", Fault(kind="refuse", status=503, retry_after_s=9))
    assert ask(served, "GET", path, token)[0] == 503
    served.sim("PUT", "/faults", [Fault(kind="hang", count=1), Fault(kind="cut", count=1)])
    with pytest.raises(TimeoutError):
        ask(served, "GET", path, token, timeout=0.5)
    with pytest.raises(http.client.IncompleteRead):
        ask(served, "GET", path, token)
    served.sim("PUT", "/faults", [Fault(kind="drop_after", count=1)])
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(served, "POST", path, token, order(command="dropped"))
    assert served.sim(path="/creates")["dropped"] == 1
    served.sim("PUT", "/faults", [Fault(kind="delay", delay_ms=600, count=1)])
    began = time.monotonic()
    assert ask(served, "GET", path, token)[0] == 200
    assert 0.25 < time.monotonic() - began < 3  # at twice the speed
    served.sim("POST", "/faults", Fault(kind="hang", name="mine"))
    served.sim("DELETE", "/faults?name=mine")
    assert ask(served, "GET", path, token)[0] == 200
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.sim("POST", "/faults", {"kind": "hickup"})
    assert "one of refuse" in refused.value.read().decode()


def test_manipulation_and_inspection_over_http(served):
    deed = {"action": "add_server", "arguments": {"name": "foreign", "metadata": {"a": "b"}}}
    server_id = served.sim("POST", "/hands", deed)["result"]
    token = served.token()
    path = f"/compute/v2.1/servers/{server_id}"
    assert ask(served, "GET", path, token)[0] == 200
    vanish = {"action": "vanish", "arguments": {"server_id": server_id}, "at_ms": 1}
    served.sim("POST", "/hands", vanish)
    assert ask(served, "GET", path, token)[0] == 404
    overview = served.sim()
    assert overview["live"]["vm"] >= 1
    assert {"operation": "get", "status": 404} in [
        {key: one[key] for key in ("operation", "status")} for one in overview["calls"]
    ]
    assert isinstance(served.sim(path="/writes"), list)
    with pytest.raises(urllib.error.HTTPError):
        served.sim("POST", "/hands", {"action": "explode"})


def test_a_request_that_has_arrived_is_carried_out(served):
    """The client is gone before the answer: killed with SIGKILL, its sockets closed."""
    token = served.token()
    served.sim("POST", "/faults", Fault(kind="delay", delay_ms=20_000, operations=("create",)))
    body = order(command="killed")
    request = (
        f"POST /compute/v2.1/servers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {token}\r\n"
        f"OpenStack-API-Version: compute 2.69\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    code = (
        "import os, socket, sys, time\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "s.sendall(sys.stdin.buffer.read())\n"
        "print('sent', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(served.ready["port"])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as client:  # fmt: skip
        client.stdin.write(request.encode())
        client.stdin.close()
        assert client.stdout.readline() == b"sent\n"
        client.kill()
    served.until(lambda: served.sim(path="/creates").get("killed") == 1)


def test_half_a_request_has_no_effect(served):
    token = served.token()
    body = order(command="half")
    head = (
        f"POST /compute/v2.1/servers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {token}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.ready["port"])) as connection:
        connection.sendall((head + body[: len(body) // 2]).encode())
    time.sleep(0.3)
    assert "half" not in served.sim(path="/creates")


def test_a_bad_config_is_one_line(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"max_limit": "many"}')
    result = subprocess.run(
        [sys.executable, "-m", "poolsm_runners.cloud.served", "--config", str(file),
         "--state", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}"},
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.startswith("simulated cloud: ")
    assert result.stderr.count("\n") == 1
