"""The transport against a local peer that misbehaves in each way that matters.

The peer is Keystone and the services in one, on raw sockets, so that it can answer byte by
byte, stop half way, or not at all.
"""

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time

import pytest

from poolsm_runners.cloud.openstack import OpenStackTransport
from poolsm_runners.cloud.port import INFRA, VM, Projects, TransportError
from poolsm_runners.cloud.threads import AbandonedError, Call, CallThreads

# openstacksdk warns of itself whenever a configuration is made.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

GRACE_S = 0.35  # beyond a deadline, on a busy machine


class Peer:
    """One cloud on one port. ``seen`` is every request: method, path, token, body."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.compute_url = f"{self.url}/compute/v2.1"
        self.seen = []
        self.headers = []
        self.tokens = 0
        self.password = "right"
        self.keystone = "answers"
        self.refused_tokens = set()
        self.done = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.done.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def sent(self, path):
        return [one for one in self.seen if one[1].endswith(path)]

    def _accept(self):
        while not self.done.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            with contextlib.suppress(OSError):
                while self._one(connection, stream):
                    pass
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _one(self, connection, stream):
        line = stream.readline().split()
        if len(line) != 3 or not line[2].startswith(b"HTTP/"):
            return False
        headers = {}
        while (header := stream.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
        body = stream.read(int(headers.get("content-length", 0)))
        method, path = line[0].decode("latin-1"), line[1].decode("latin-1")
        token = headers.get("x-auth-token", "")
        self.seen.append((method, path, token, body))
        self.headers.append(headers)
        if path.startswith("/v3"):
            return self._keystone(connection, method, path, body)
        if path in {"/image", "/image/"}:
            version = {"id": "v2.9", "status": "CURRENT",
                       "links": [{"rel": "self", "href": f"{self.url}/image/v2/"}]}  # fmt: skip
            return reply(connection, 300, {"versions": [version]})
        if path in {"/compute/v2.1", "/compute/v2.1/"}:
            version = {"id": "v2.1", "status": "CURRENT", "version": "2.96", "min_version": "2.1",
                       "links": [{"rel": "self", "href": f"{self.url}/compute/v2.1/"}]}  # fmt: skip
            return reply(connection, 200, {"version": version})
        if token in self.refused_tokens:
            error = {"error": {"code": 401, "message": "authenticate"}}
            return reply(connection, 401, error)
        behaviour = path.partition("?")[0].rsplit("/", 1)[1].replace("-", "_")
        return getattr(self, behaviour)(connection)

    def _keystone(self, connection, method, path, body):
        if self.keystone == "hangs":
            self.done.wait()
            return False
        if self.keystone == "drips":
            return self.drip(connection)
        if self.keystone == "slow":
            time.sleep(0.6)
        if method == "GET":
            links = [{"rel": "self", "href": f"{self.url}/v3/"}]
            return reply(
                connection, 200, {"version": {"id": "v3.14", "status": "stable", "links": links}}
            )
        auth = json.loads(body)["auth"]
        if auth["identity"]["password"]["user"]["password"] != self.password:
            message = "The request you have made requires authentication."
            return reply(connection, 401, {"error": {"code": 401, "message": message}})
        self.tokens += 1
        project = auth["scope"]["project"]["name"]
        return reply(
            connection, 201, self._token(project), {"X-Subject-Token": f"token-{self.tokens}"}
        )

    def _token(self, project):
        urls = {
            "compute": self.compute_url,
            "image": f"{self.url}/image",
            "network": f"{self.url}/network",
        }
        catalog = [
            {"type": kind, "name": kind, "id": kind, "endpoints": [
                {"interface": "public", "region": "R", "region_id": "R", "id": kind, "url": url}
            ]}
            for kind, url in urls.items()
        ]  # fmt: skip
        return {"token": {
            "methods": ["password"], "user": {"id": "u", "name": "u", "domain": {"id": "default"}},
            "project": {"id": f"id-of-{project}", "name": project, "domain": {"id": "default"}},
            "roles": [], "catalog": catalog, "issued_at": "2026-01-01T00:00:00.000000Z",
            "expires_at": "2999-01-01T00:00:00.000000Z",
        }}  # fmt: skip

    # What the services do, by the last word of the path.

    def ok(self, connection):
        return reply(connection, 200, {"fine": True}, {"X-Some": "Thing"})

    def gone(self, connection):
        return reply(connection, 204, None)

    def large(self, connection):
        return reply(connection, 200, {"x": "y" * 3_000_000})

    def unavailable(self, connection):
        return reply(connection, 503, {"serviceUnavailable": {}}, {"Retry-After": "7"})

    def redirect(self, connection):
        return reply(connection, 307, None, {"Location": f"{self.compute_url}/ok"})

    def loop(self, connection):
        return reply(connection, 302, None, {"Location": f"{self.compute_url}/loop"})

    def hang(self, connection):
        self.done.wait()
        return False

    def hang_up(self, connection):
        return False

    def drip(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        return self._drip(connection, b"x")

    def drip_chunks(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        return self._drip(connection, b"1\r\nx\r\n")

    def drip_headers(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        return self._drip(connection, b"X-A: b\r\n")

    def drip_a_header(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
        return self._drip(connection, b"b")

    def cut(self, connection):
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"servers": [')
        return False

    def cut_chunk(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nabc")
        return False

    def cut_between_chunks(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        return False

    def garbage(self, connection):
        connection.sendall(b"SSH-2.0-OpenSSH\r\n")
        return False

    def chunked(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
        return True

    def until_close(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc")
        return False

    def _drip(self, connection, piece):
        for _ in range(900):
            if self.done.wait(0.02):
                break
            connection.sendall(piece)
        return False


def reply(connection, status, value, headers=None):
    body = b"" if value is None else json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json"]
    lines += [f"{name}: {text}" for name, text in (headers or {}).items()]
    if status != 204:
        lines.append(f"Content-Length: {len(body)}")
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return True


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def peer(tmp_path, monkeypatch):
    peer = Peer()
    configure(tmp_path, monkeypatch, peer.url)
    yield peer
    peer.close()


def configure(tmp_path, monkeypatch, url, password="right"):
    def cloud(project):
        auth = {"auth_url": f"{url}/v3", "username": "u", "password": password,
                "project_name": project, "user_domain_id": "default",
                "project_domain_id": "default"}  # fmt: skip
        return {"auth": auth, "region_name": "R"}

    clouds = {"clouds": {"school": cloud("vms"), "school-infra": cloud("infra")}}
    (tmp_path / "clouds.yaml").write_text(json.dumps(clouds))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    for name in ("OS_CLOUD", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def transport(peer):
    transport = OpenStackTransport("school", "school-infra")
    yield transport
    await transport.close()


async def get(transport, path, deadline_s=5.0, **more):
    return await transport.request(
        VM, "compute", more.pop("method", "GET"), path, deadline_s=deadline_s, **more
    )


async def failing(transport, path, deadline_s=5.0, **more):
    """The error of a call, and how long it took; the token is there before."""
    await get(transport, "/ok")
    began = time.monotonic()
    with pytest.raises(TransportError) as failure:
        await get(transport, path, deadline_s, **more)
    return failure.value, time.monotonic() - began


async def until(condition, seconds=3.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


# --- what works ----------------------------------------------------------------------------


async def test_an_answer_comes_whole(transport, peer):
    reply = await get(transport, "/ok?limit=9")
    assert (reply.status, json.loads(reply.body)) == (200, {"fine": True})
    assert reply.headers["x-some"] == "Thing"
    assert peer.seen[-1][1] == "/compute/v2.1/ok?limit=9"
    sent = peer.headers[-1]
    assert sent["openstack-api-version"] == "compute 2.69"
    assert sent["x-auth-token"] == "token-1"
    assert sent["user-agent"].startswith("poolsm")


@pytest.mark.parametrize(
    ("path", "status", "size"),
    [("/gone", 204, 0), ("/large", 200, 3_000_009), ("/chunked", 200, 6), ("/until_close", 200, 3)],
)
async def test_every_framing_of_a_body(transport, path, status, size):
    reply = await get(transport, path)
    assert (reply.status, len(reply.body)) == (status, size)


async def test_projects_and_services(transport, peer):
    assert await transport.projects() == Projects("id-of-vms", "id-of-infra")
    await transport.request(INFRA, "image", "GET", "/ok", deadline_s=5)
    assert peer.seen[-1][1:3] == ("/image/v2/ok", "token-2")
    assert "openstack-api-version" not in peer.headers[-1]
    await transport.request(VM, "network", "GET", "/ok", deadline_s=5)
    assert peer.seen[-1][1:3] == ("/network/v2.0/ok", "token-1")


async def test_one_cloud_may_serve_as_both(peer):
    transport = OpenStackTransport("school")
    assert await transport.projects() == Projects("id-of-vms", "id-of-vms")
    await transport.request(INFRA, "image", "GET", "/ok", deadline_s=5)
    assert peer.tokens == 1
    await transport.close()


async def test_connections_are_kept(transport, peer):
    for _ in range(3):
        await get(transport, "/ok")
    assert len(peer.sent("/ok")) == 3


async def test_a_body_is_sent_as_it_is(transport, peer):
    await get(transport, "/ok", method="POST", body=b'{"a": 1}', once=True)
    assert peer.seen[-1][3] == b'{"a": 1}'
    assert peer.headers[-1]["content-type"] == "application/json"


# --- deadlines -----------------------------------------------------------------------------

SLOW = ["/hang", "/drip", "/drip_chunks", "/drip_headers", "/drip_a_header"]


@pytest.mark.parametrize("path", SLOW)
async def test_a_call_ends_at_its_deadline_and_so_does_its_thread(peer, path):
    threads = CallThreads()
    transport = OpenStackTransport("school", threads=threads)
    error, took_s = await failing(transport, path, deadline_s=0.5)
    assert error.kind == "timeout"
    assert 0.4 < took_s < 0.5 + GRACE_S
    await until(lambda: threads.stuck == 0)
    assert (await get(transport, "/ok")).status == 200
    await transport.close()


async def test_many_hanging_calls_exhaust_nothing_and_stop_nobody(peer):
    threads = CallThreads(limit=8, stuck_limit=4)
    transport = OpenStackTransport("school", threads=threads)
    await get(transport, "/ok")
    for _ in range(3):
        calls = [get(transport, path, 0.4) for path in SLOW + SLOW[:3]]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {one.kind for one in results} == {"timeout"}
        began = time.monotonic()
        assert (await get(transport, "/ok")).status == 200
        assert time.monotonic() - began < GRACE_S
    await until(lambda: threads.stuck == 0)
    await transport.close()


async def test_the_event_loop_is_never_held_up(transport):
    await get(transport, "/ok")
    gaps = []

    async def watch():
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - began - 0.01)

    watching = asyncio.create_task(watch())
    await asyncio.gather(
        *(get(transport, path, 0.5) for path in SLOW + ["/large"] * 5), return_exceptions=True
    )
    watching.cancel()
    assert max(gaps) < 0.25


async def test_a_cancelled_call_frees_its_thread(peer):
    threads = CallThreads()
    transport = OpenStackTransport("school", threads=threads)
    await get(transport, "/ok")
    task = asyncio.create_task(get(transport, "/hang", 60))
    await until(lambda: peer.sent("/hang"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: threads.stuck == 0)
    await transport.close()


@pytest.mark.parametrize("keystone", ["hangs", "drips"])
async def test_keystone_has_the_same_deadline(peer, keystone):
    peer.keystone = keystone
    threads = CallThreads()
    transport = OpenStackTransport("school", threads=threads)
    began = time.monotonic()
    with pytest.raises(TransportError) as failure:
        await get(transport, "/ok", 1.5, method="POST", once=True)
    assert failure.value.kind == "not_sent"
    assert time.monotonic() - began < 1.5 + GRACE_S
    await until(lambda: threads.stuck == 0)
    peer.keystone = "answers"
    assert (await get(transport, "/ok")).status == 200
    assert peer.sent("/ok")[0][0] == "GET"
    await transport.close()


async def test_what_is_reported_as_not_sent_is_never_sent_later(peer, transport):
    await get(transport, "/ok")
    peer.refused_tokens.add("token-1")
    await get(transport, "/ok", method="POST", once=True)  # 401: the next call needs a token
    peer.keystone = "slow"
    with pytest.raises(TransportError) as failure:
        await get(transport, "/gone", 0.3, method="POST", once=True)
    assert failure.value.kind == "not_sent"
    await asyncio.sleep(1.5)
    assert peer.sent("/gone") == []


def test_leave_to_send_and_giving_up_exclude_each_other():
    call = Call(60)
    call.enter("request")
    assert call.abandon() is False
    with pytest.raises(AbandonedError):
        call.sending(None)
    assert call.sent is False
    call = Call(60)
    call.enter("request")
    call.sending(None)
    assert call.abandon() is True


async def test_threads_that_cannot_be_interrupted_are_bounded():
    threads = CallThreads(limit=2, stuck_limit=3)
    release = threading.Event()

    def work(call):
        release.wait()
        return "late"

    for _ in range(3):
        with pytest.raises(TransportError) as failure:
            await threads.run(work, 0.05)
        assert failure.value.kind == "not_sent"
    assert threads.stuck == 3
    with pytest.raises(TransportError, match="3 earlier calls hang") as failure:
        await threads.run(work, 5)
    assert failure.value.kind == "not_sent"
    release.set()
    await until(lambda: threads.stuck == 0)
    assert await threads.run(work, 5) == "late"


async def test_waiting_for_a_thread_counts_towards_the_deadline():
    threads = CallThreads(limit=1)
    first = asyncio.create_task(threads.run(lambda call: time.sleep(0.5), 5))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    with pytest.raises(TransportError, match="no free thread"):
        await threads.run(lambda call: None, 0.2)
    assert time.monotonic() - began < 0.2 + GRACE_S
    await first


# --- what did not come ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/cut", "/cut_chunk", "/cut_between_chunks", "/garbage", "/hang_up"]
)
async def test_a_broken_answer_is_no_answer(transport, peer, path):
    error, _ = await failing(transport, path, method="POST", once=True)
    assert error.kind == "connection"
    assert len(peer.sent(path)) == 1


async def test_a_refused_connection_is_proof_that_nothing_was_sent(peer, transport):
    port = free_port()
    peer.compute_url = f"http://127.0.0.1:{port}/v2.1"
    with pytest.raises(TransportError) as failure:
        await get(transport, "/ok", method="POST", once=True)
    assert failure.value.kind == "not_sent"
    assert failure.value.message == f"127.0.0.1:{port}: Connection refused"


async def test_a_name_that_does_not_exist_is_too(peer, transport, monkeypatch):
    def no_such_name(host, *rest, **more):
        if host == "nova.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest, **more)

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    peer.compute_url = "http://nova.invalid:8774/v2.1"
    with pytest.raises(TransportError) as failure:
        await get(transport, "/ok", method="POST", once=True)
    assert failure.value.kind == "not_sent"
    assert failure.value.message == "nova.invalid:8774: Name or service not known"


async def test_a_connection_that_is_never_accepted_is_too(peer, transport):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        others = [socket.socket() for _ in range(4)]
        for other in others:
            other.setblocking(False)  # noqa: FBT003 - the socket's own call
            other.connect_ex(full.getsockname())
        peer.compute_url = f"http://127.0.0.1:{full.getsockname()[1]}/v2.1"
        with pytest.raises(TransportError) as failure:
            await get(transport, "/ok", 1.0, method="POST", once=True)
        for other in others:
            other.close()
    assert failure.value.kind == "not_sent"


async def test_tls_where_there_is_none_sends_nothing(peer, transport):
    peer.compute_url = peer.compute_url.replace("http:", "https:")
    with pytest.raises(TransportError) as failure:
        await get(transport, "/ok", 2.0, method="POST", once=True)
    assert failure.value.kind == "not_sent"
    assert peer.sent("/ok") == []


@pytest.mark.parametrize("service", ["compute", "image", "network"])
async def test_a_503_is_an_answer_and_is_not_tried_again(transport, peer, service):
    began = time.monotonic()
    reply = await transport.request(VM, service, "GET", "/unavailable", deadline_s=20)
    assert (reply.status, reply.headers["retry-after"]) == (503, "7")
    assert len(peer.sent("/unavailable")) == 1
    assert time.monotonic() - began < 5


async def test_a_post_is_not_led_elsewhere(transport, peer):
    reply = await get(transport, "/redirect", method="POST", body=b"{}", once=True)
    assert reply.status == 307
    assert peer.sent("/ok") == []
    assert (await get(transport, "/redirect")).status == 200
    assert (await get(transport, "/loop")).status == 302


# --- tokens --------------------------------------------------------------------------------


async def test_a_refused_token_is_renewed_once(transport, peer):
    peer.refused_tokens.add("token-1")
    assert (await get(transport, "/ok")).status == 200
    assert [one[2] for one in peer.sent("/ok")] == ["token-1", "token-2"]


async def test_what_is_sent_once_is_not_sent_again_with_a_new_token(transport, peer):
    peer.refused_tokens.add("token-1")
    reply = await get(transport, "/ok", method="POST", body=b"{}", once=True)
    assert reply.status == 401
    assert [one[:3] for one in peer.sent("/ok")] == [("POST", "/compute/v2.1/ok", "token-1")]
    assert (await get(transport, "/ok", method="POST", body=b"{}", once=True)).status == 200
    assert peer.sent("/ok")[-1][2] == "token-2"


async def test_a_cloud_that_refuses_every_token_is_asked_twice(transport, peer):
    peer.refused_tokens |= {"token-1", "token-2"}
    assert (await get(transport, "/ok")).status == 401
    assert len(peer.sent("/ok")) == 2
    assert (await get(transport, "/ok")).status == 200  # with a fresh token from the start
    assert peer.sent("/ok")[-1][2] == "token-3"
    assert len(peer.sent("/ok")) == 3


async def test_many_refusals_of_one_token_renew_it_once(transport, peer):
    await get(transport, "/ok")
    peer.refused_tokens.add("token-1")
    replies = await asyncio.gather(*(get(transport, "/ok") for _ in range(8)))
    assert {one.status for one in replies} == {200}
    assert peer.tokens == 2


# --- errors an operator reads --------------------------------------------------------------


async def test_a_wrong_password(peer, tmp_path, monkeypatch):
    configure(tmp_path, monkeypatch, peer.url, password="wrong-secret")
    transport = OpenStackTransport("school")
    with pytest.raises(TransportError) as failure:
        await transport.projects()
    assert failure.value.kind == "auth"
    assert failure.value.message.startswith(
        f"cloud 'school': {peer.url}/v3 refused the credentials: The request you have made"
    )
    assert "\n" not in failure.value.message
    assert "wrong-secret" not in str(failure.value)
    await transport.close()


async def test_a_keystone_that_is_not_there(tmp_path, monkeypatch):
    url = f"http://127.0.0.1:{free_port()}"
    configure(tmp_path, monkeypatch, url)
    transport = OpenStackTransport("school")
    with pytest.raises(TransportError) as failure:
        await transport.projects()
    assert failure.value.kind == "not_sent"
    assert failure.value.message == f"cloud 'school': {url}/v3 gave no token: Connection refused"
    await transport.close()


async def test_an_unknown_cloud_names_the_file_and_what_it_has(peer, tmp_path):
    transport = OpenStackTransport("shcool")
    with pytest.raises(TransportError) as failure:
        await transport.projects()
    assert failure.value.message == (
        f"no cloud 'shcool': {tmp_path}/clouds.yaml has school, school-infra"
    )
    await transport.close()


async def test_no_configuration_at_all_names_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "missing.yaml"))
    monkeypatch.setattr("openstack.config.loader.CONFIG_FILES", ["/etc/openstack/clouds.yaml"])
    transport = OpenStackTransport("school")
    with pytest.raises(TransportError) as failure:
        await transport.projects()
    assert "no clouds.yaml" in failure.value.message
    assert f"{tmp_path}/missing.yaml, /etc/openstack/clouds.yaml" in failure.value.message
    await transport.close()


async def test_a_configuration_that_is_mended_is_read_again(peer, tmp_path, monkeypatch):
    transport = OpenStackTransport("school")
    good = (tmp_path / "clouds.yaml").read_text()
    (tmp_path / "clouds.yaml").write_text('{"clouds": {"other": {}}}')
    with pytest.raises(TransportError):
        await transport.projects()
    (tmp_path / "clouds.yaml").write_text(good)
    assert (await transport.projects()).vm_project_id == "id-of-vms"
    await transport.close()


async def test_os_cloud_is_the_default(peer, monkeypatch):
    monkeypatch.setenv("OS_CLOUD", "school-infra")
    transport = OpenStackTransport("")
    assert (await transport.projects()).vm_project_id == "id-of-infra"
    await transport.close()


async def test_logs_hold_no_secret(transport, caplog):
    caplog.set_level(logging.DEBUG)
    await get(transport, "/ok", method="POST", body=b'{"user_data": "hush"}', once=True)
    with pytest.raises(TransportError):
        await get(transport, "/cut", method="POST", body=b'{"user_data": "hush"}', once=True)
    assert "hush" not in caplog.text
    assert "token-1" not in caplog.text
    assert "right" not in caplog.text
