"""The gateway over a scripted transport, and over the answers recorded from a real OpenStack."""

import json
from pathlib import Path

import msgspec
import pytest

from poolsm import answers
from poolsm.commands import (
    ClaimServer,
    CreateServer,
    DeleteServer,
    Expectation,
    FetchImage,
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
from poolsm_runners.cloud import decode
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import (
    INFRA,
    VM,
    Answer,
    Deadlines,
    ListingError,
    Projects,
    Reply,
    TransportError,
)
from poolsm_runners.cloud.refusals import parse_refusal, retry_after

RECORDED = Path(__file__).parents[1] / "recorded" / "openstack"
WHY = Reason("R0 test", "1 = 1")
POOL = PoolKey("pool-1", "user-1")
MINE = {"serverpool_id": "pool-1", "user_id": "user-1", "reattrib": "false"}
FREE = Expectation(pool=POOL, attributed=False)


class Scripted:
    """Answers what it was told to, in order, and remembers what it was asked."""

    def __init__(self, *script):
        self.script = list(script)
        self.asked = []
        self.once = []

    async def projects(self):
        return self._next()

    async def request(self, project, service, method, path, *, body=None, deadline_s, once=False):
        parsed = None if body is None else json.loads(body)
        self.asked.append((project, service, method, path, parsed, deadline_s))
        self.once.append(once)
        return self._next()

    async def close(self):
        self.script = []

    def _next(self):
        one = self.script.pop(0)
        if isinstance(one, Exception):
            raise one
        return one


def ok(value, status=200):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Reply(status, {}, body)


def gateway(*script, page_limit=2):
    transport = Scripted(*script)
    return Gateway(transport, Deadlines(), page_limit=page_limit), transport


def row(server_id, **more):
    return {"id": server_id, "status": "ACTIVE", **more}


def link(query):
    return [{"rel": "next", "href": f"http://elsewhere:1/v2.1/servers/detail?{query}"}]


def error(status, key, message, **more):
    return ok({key: {"code": status, "message": message, **more}}, status)


GONE = error(404, "itemNotFound", "Instance s-1 could not be found.")


def as_event(answer):
    return CallAnswered(
        command_id="c", at_ms=0, started_ms=0, **{k: getattr(answer, k) for k in (
            "http_status", "transport_error", "error_kind", "message", "retry_after_s", "unmet",
        )}
    )  # fmt: skip


END = ok({"servers": []})


# --- listings ------------------------------------------------------------------------------


async def test_a_listing_follows_the_links_to_its_end():
    cloud, transport = gateway(
        ok({"servers": [row("1"), row("2")], "servers_links": link("limit=2&marker=2")}),
        ok({"servers": [row("3")]}),
        END,
    )
    assert [one.server_id for one in await cloud.list_servers()] == ["1", "2", "3"]
    assert [asked[:4] for asked in transport.asked] == [
        (VM, "compute", "GET", "/servers/detail?limit=2"),
        (VM, "compute", "GET", "/servers/detail?limit=2&marker=2"),
        (VM, "compute", "GET", "/servers/detail?limit=2&marker=3"),
    ]
    assert transport.asked[0][5] == Deadlines().list_s


async def test_a_full_last_page_may_be_followed_by_an_empty_one():
    cloud, _ = gateway(
        ok({"servers": [row("1"), row("2")], "servers_links": link("limit=2&marker=2")}),
        ok({"servers": []}),
    )
    assert len(await cloud.list_servers()) == 2


async def test_a_service_may_give_shorter_pages_than_asked_for():
    cloud, _ = gateway(
        ok({"servers": [row("1")], "servers_links": link("limit=2&marker=1")}),
        ok({"servers": [row("2")]}),
        END,
    )
    assert len(await cloud.list_servers()) == 2


async def test_duplicates_are_left_for_the_core_to_refuse():
    cloud, _ = gateway(
        ok({"servers": [row("1"), row("2")], "servers_links": link("limit=2&marker=2")}),
        ok({"servers": [row("2")]}),
        END,
    )
    assert [one.server_id for one in await cloud.list_servers()] == ["1", "2", "2"]


FULL = {"servers": [row("1"), row("2")]}
BROKEN = {
    "failed page": (error(500, "computeFault", "Unexpected API Error."), "500 Unexpected API"),
    "vanished marker": (error(400, "badRequest", "marker [2] not found"), "marker [2] not found"),
    "proxy": (ok(b"<html><h1>502 Bad Gateway</h1>", 502), "502 502 Bad Gateway"),
    "link to itself": (ok({**FULL, "servers_links": link("limit=2&marker=2")}), "leads back"),
    "link to the start": (ok({**FULL, "servers_links": link("limit=2")}), "leads back"),
    "truncated": (ok(b'{"servers": [{"id": "3", "stat'), "unreadable"),
    "empty body": (ok(b""), "unreadable"),
    "html and 200": (ok(b"<html>maintenance</html>"), "unreadable"),
    "not this listing": (ok({}), "unreadable"),
    "record without an id": (ok({"servers": [{"status": "ACTIVE"}]}), "unreadable"),
    "record without a status": (ok({"servers": [{"id": "3"}]}), "unreadable"),
    "metadata of another shape": (ok({"servers": [row("3", metadata={"a": 1})]}), "unreadable"),
    "no utf-8": (ok(b'{"servers": [{"id": "\xff", "status": "ACTIVE"}]}'), "unreadable"),
    "no answer": (TransportError("timeout", "no answer within 60 s"), "no answer within 60 s"),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_any_doubt_about_one_page_fails_the_listing(what):
    second, text = BROKEN[what]
    cloud, _ = gateway(ok({**FULL, "servers_links": link("limit=2&marker=2")}), second)
    with pytest.raises(ListingError) as failure:
        await cloud.list_servers()
    assert text in failure.value.message
    assert failure.value.message.startswith("/servers/detail")
    if isinstance(second, TransportError):
        assert failure.value.transport_error == "timeout"
    else:
        assert failure.value.http_status in {second.status, None}


async def test_the_end_is_an_empty_page_or_one_that_is_far_from_full():
    for first in (FULL, {"servers": [row("2")]}):
        cloud, transport = gateway(ok(first), ok({"servers": [row("3")]}), END)
        assert len(await cloud.list_servers()) == len(first["servers"]) + 1
        assert [asked[3] for asked in transport.asked] == [
            "/servers/detail?limit=2",
            "/servers/detail?limit=2&marker=2",
            "/servers/detail?limit=2&marker=3",
        ]
    cloud, transport = gateway(ok(FULL), page_limit=5)
    await cloud.list_servers()
    assert len(transport.asked) == 1


async def test_servers_are_listed_without_a_limit_which_would_hide_those_of_a_lost_cell():
    cloud, transport = gateway(
        ok({"servers": [row("1"), row("2")]}), ok({"servers": [row("1")]}), page_limit=None
    )
    await cloud.list_servers()
    await cloud.list_servers()
    assert [asked[3] for asked in transport.asked] == ["/servers/detail"] * 2


PAGES = (
    ok({"servers": [row("1"), row("2")], "servers_links": link("marker=2")}),
    ok({"servers": [row("3"), row("4")]}),
    END,
)


async def test_several_pages_prove_no_absence_by_themselves():
    partial = ok({"server": {"id": "4", "status": "UNKNOWN"}})
    cloud, transport = gateway(*PAGES, PAGES[0], END, GONE, partial, page_limit=None)
    assert len(await cloud.list_servers()) == 4
    records = await cloud.list_servers()
    assert [(one.server_id, one.status) for one in records] == [
        ("1", "ACTIVE"), ("2", "ACTIVE"), ("4", "UNKNOWN"),
    ]  # fmt: skip
    assert [asked[3] for asked in transport.asked[-2:]] == ["/servers/3", "/servers/4"]


async def test_several_pages_do_not_lose_a_server_that_was_just_made():
    made = ok({"server": row("9", status="BUILD")})
    created = ok({"server": {"id": "9"}}, 202)
    cloud, _ = gateway(created, *PAGES, made, page_limit=None)
    await cloud.execute(create())
    assert "9" in {one.server_id for one in await cloud.list_servers()}


@pytest.mark.parametrize("bad", [
    TransportError("timeout", "late"), ok(b"<h1>404</h1>", 404), error(500, "computeFault", "x"),
])  # fmt: skip
async def test_an_absence_that_cannot_be_confirmed_fails_the_listing(bad):
    cloud, _ = gateway(*PAGES, PAGES[0], END, GONE, bad, page_limit=None)
    await cloud.list_servers()
    with pytest.raises(ListingError, match="one that the listing lacks"):
        await cloud.list_servers()


async def test_pages_that_never_end_are_no_listing(monkeypatch):
    monkeypatch.setattr("poolsm_runners.cloud.gateway.MAX_PAGES", 3)
    pages = [
        ok({"servers": [row(str(n))], "servers_links": link(f"limit=2&marker={n}")})
        for n in range(3)
    ]
    cloud, _ = gateway(*pages)
    with pytest.raises(ListingError, match="more than 3 pages"):
        await cloud.list_servers()


async def test_each_service_is_asked_in_its_own_way():
    image = {"id": "i", "status": "active", "visibility": "private", "owner": "p", "name": None}
    cloud, transport = gateway(
        ok({"images": [image, image], "next": "/v2/images?limit=2&marker=i"}),
        ok({"images": []}),
        ok({"flavors": [{"id": "1", "name": "m1", "vcpus": 1, "ram": 512, "disk": 1}]}),
        ok({"flavors": []}),
        ok({"networks": [{"id": "n", "name": "net", "status": "ACTIVE", "tenant_id": "p",
                          "shared": True}]}),
        ok({"networks": []}),
    )  # fmt: skip
    images = await cloud.list_images(INFRA)
    assert [(one.image_id, one.owner, one.name) for one in images] == [("i", "p", None)] * 2
    flavors = await cloud.list_flavors("vm")
    assert (flavors[0].flavor_id, flavors[0].ram_mb) == ("1", 512)
    networks = await cloud.list_networks("vm")
    assert (networks[0].owner, networks[0].shared) == ("p", True)
    assert [asked[:4] for asked in transport.asked] == [
        (INFRA, "image", "GET", "/images?limit=2"),
        (INFRA, "image", "GET", "/images?limit=2&marker=i"),
        (VM, "compute", "GET", "/flavors/detail?limit=2"),
        (VM, "compute", "GET", "/flavors/detail?limit=2&marker=1"),
        (VM, "network", "GET", "/networks?limit=2"),
        (VM, "network", "GET", "/networks?limit=2&marker=n"),
    ]


async def test_projects_that_cannot_be_had_are_a_failed_listing():
    cloud, _ = gateway(Projects("a", "b"), TransportError("auth", "refused"))
    assert await cloud.projects() == Projects("a", "b")
    with pytest.raises(ListingError) as failure:
        await cloud.projects()
    assert failure.value.transport_error == "auth"


# --- records -------------------------------------------------------------------------------


def test_a_server_becomes_a_record():
    record = decode.server(json.dumps({"server": {
        "id": "s", "status": "ERROR", "name": "n", "OS-EXT-STS:task_state": "spawning",
        "metadata": {"a": "b"}, "image": {"id": "i", "links": []},
        "flavor": {"original_name": "m1.tiny", "vcpus": 1}, "key_name": "k",
        "addresses": {"net": [{"addr": "10.0.0.1", "version": 4}, {"addr": "fd::1"}],
                      "b": [{"addr": "10.1.0.1"}]},
        "created": "2026-01-02T03:04:05Z", "progress": 7,
        "fault": {"code": 500, "message": "No valid host was found. "},
    }}).encode())  # fmt: skip
    assert record.task_state == "spawning"
    assert record.image_id == "i"
    assert record.flavor_id == "m1.tiny"
    assert record.addresses == ("net:10.0.0.1", "net:fd::1", "b:10.1.0.1")
    assert record.fault == "No valid host was found. "
    assert record.progress == 7
    assert record.metadata == {"a": "b"}


@pytest.mark.parametrize(
    ("flavor", "expected"),
    [
        ({"id": "1", "links": []}, "1"),
        ({"original_name": "m1.tiny", "ram": 512}, "m1.tiny"),
        ({}, None),
        (None, None),
    ],
)
def test_both_shapes_of_a_flavor(flavor, expected):
    assert decode.servers_page(
        json.dumps({"servers": [row("s", flavor=flavor)]}).encode()
    ).records[0].flavor_id == expected  # fmt: skip


def test_a_server_booted_from_volume_has_no_image():
    page = decode.servers_page(json.dumps({"servers": [row("s", image="")]}).encode())
    assert page.records[0].image_id is None


def test_the_partial_record_of_a_cell_that_is_down():
    record = decode.server(recorded("cell-down-server").body)
    assert (record.status, record.name, record.metadata) == ("UNKNOWN", None, None)
    assert record.flavor_id == "m1.tiny"
    assert record.metadata != {}


def recorded(name):
    answer = json.loads((RECORDED / f"{name}.json").read_text())
    body = answer["body"]
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Reply(answer["status"], answer["headers"], raw)


def recorded_names(prefix, *, refused):
    return [
        path.stem
        for path in sorted(RECORDED.glob(f"{prefix}*.json"))
        if (recorded(path.stem).status >= 400) == refused
    ]


@pytest.mark.parametrize("name", recorded_names("server-", refused=False))
def test_every_recorded_server_is_read(name):
    record = decode.server(recorded(name).body)
    shown = json.loads(recorded(name).body)["server"]
    assert record.server_id == shown["id"]
    assert record.status == shown["status"]
    assert record.metadata == shown.get("metadata")
    assert record.task_state == shown.get("OS-EXT-STS:task_state")


def with_details(name):
    request = json.loads((RECORDED / f"{name}.json").read_text())["request"]
    return "/servers/detail" in request["path"]


@pytest.mark.parametrize(
    "name", [*filter(with_details, recorded_names("servers-detail", refused=False))]
)
def test_every_recorded_page_is_read(name):
    page = decode.servers_page(recorded(name).body)
    assert len(page.records) == len(json.loads(recorded(name).body)["servers"])


CLASSIFIED = [
    (recorded_names(prefix, refused=True), kind)
    for prefix, kind in [("create-", "CreateServer"), ("stop-", "StopServer"),
                         ("start-", "StartServer"), ("delete-", "DeleteServer"),
                         ("rename-", "RenameServer"), ("metadata-post", "ClaimServer")]
]  # fmt: skip


@pytest.mark.parametrize("name", [name for names, _ in CLASSIFIED for name in names])
def test_every_recorded_refusal_is_novas_own_word(name):
    reply = recorded(name)
    ((key, value),) = json.loads(reply.body).items()
    refusal = parse_refusal(reply, 0.0)
    assert refusal.kind == key
    if "user_data" not in value["message"]:
        assert refusal.message == " ".join(value["message"].split())


# --- commands ------------------------------------------------------------------------------


def create(**more):
    return CreateServer(
        **{
            "command_id": "c-1", "reason": WHY, "pool": POOL, "name": "pool-1-c-1",
            "image_id": "image", "flavor_id": "flavor", "networks": ("n-1", "n-2"),
            "key_name": "key", "user_data": UserDataRef(), "metadata": {"user_id": "user-1"},
            **more,
        }
    )  # fmt: skip


async def test_create_posts_everything_and_only_once():
    cloud, transport = gateway(ok({"server": {"id": "s-1", "adminPass": "x"}}, 202))
    answer = await cloud.execute(create(), user_data="I2Nsb3Vk")
    assert answer == Answer(202, server_id="s-1")
    assert transport.once == [True]
    assert transport.asked == [(VM, "compute", "POST", "/servers", {"server": {
        "name": "pool-1-c-1", "imageRef": "image", "flavorRef": "flavor",
        "networks": [{"uuid": "n-1"}, {"uuid": "n-2"}], "key_name": "key",
        "config_drive": True, "user_data": "I2Nsb3Vk", "metadata": {"user_id": "user-1"},
    }}, Deadlines().create_s)]  # fmt: skip


async def test_create_without_networks_key_and_user_data():
    cloud, transport = gateway(ok({"server": {"id": "s-1"}}, 202))
    await cloud.execute(create(networks=(), key_name=None))
    body = transport.asked[0][4]["server"]
    assert body["networks"] == "none"
    assert "key_name" not in body
    assert "user_data" not in body


async def test_a_create_accepted_without_a_readable_id_is_still_accepted():
    cloud, _ = gateway(ok(b"", 202))
    answer = await cloud.execute(create())
    assert (answer.http_status, answer.server_id) == (202, None)
    assert "unreadable" in answer.message


@pytest.mark.parametrize("kind", ["timeout", "connection", "not_sent", "auth", "other"])
async def test_a_create_without_an_answer(kind):
    cloud, transport = gateway(TransportError(kind, "why"))
    answer = await cloud.execute(create())
    assert (answer.http_status, answer.transport_error, answer.message) == (None, kind, "why")
    assert len(transport.asked) == 1


SECRET = "c2VjcmV0IHNlY3JldCBzZWNyZXQ="


@pytest.mark.parametrize(
    "text",
    [
        f"Invalid input for field/attribute user_data. Value: {SECRET}. {SECRET!r} is too long",
        f"something else about {SECRET}",
        "x" * 1990 + SECRET,
    ],
)
async def test_user_data_never_comes_back_in_a_message(text):
    cloud, _ = gateway(error(400, "badRequest", text))
    answer = await cloud.execute(create(), user_data=SECRET)
    assert SECRET[:10] not in repr(answer)
    assert answers.classify("CreateServer", as_event(answer)).kind == answers.INVALID


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (StopServer(reason=WHY, server_id="s-1"), ("POST", "/action", {"os-stop": None})),
        (StartServer(reason=WHY, server_id="s-1"), ("POST", "/action", {"os-start": None})),
        (RenameServer(reason=WHY, server_id="s-1", name="n"),
         ("PUT", "", {"server": {"name": "n"}})),
        (RebuildServer(reason=WHY, server_id="s-1", image_id="i", name="n"),
         ("POST", "/action", {"rebuild": {"imageRef": "i", "name": "n"}})),
        (FindServer(reason=WHY, server_id="s-1"), ("GET", "", None)),
    ],
)  # fmt: skip
async def test_commands_without_an_expectation_are_one_request(command, asked):
    cloud, transport = gateway(ok({"server": row(command.server_id)}, 202))
    answer = await cloud.execute(command)
    assert answer.http_status == 202
    assert answer.server_id == command.server_id
    method, rest, body = asked
    assert [one[2:5] for one in transport.asked] == [(method, f"/servers/s-1{rest}", body)]
    assert transport.once == [False]


async def test_an_id_never_leads_elsewhere():
    cloud, transport = gateway(GONE)
    await cloud.execute(FindServer(reason=WHY, server_id="../os-keypairs?x"))
    assert transport.asked[0][3] == "/servers/..%2Fos-keypairs%3Fx"


async def test_find_returns_the_record():
    cloud, _ = gateway(ok({"server": row("s-1", metadata={})}))
    answer = await cloud.execute(FindServer(reason=WHY, server_id="s-1"))
    assert answer.server is not None
    assert answer.server.metadata == {}


async def test_find_does_not_believe_another_servers_record():
    cloud, _ = gateway(ok({"server": row("s-2")}))
    answer = await cloud.execute(FindServer(reason=WHY, server_id="s-1"))
    assert answer.http_status is None
    assert answer.transport_error == "unreadable"


def delete():
    return DeleteServer(reason=WHY, server_id="s-1", expect=FREE)


def claim(**more):
    wanted = {**MINE, "reattrib": "true", "poolsm_claimant": "me", **more}
    return ClaimServer(reason=WHY, server_id="s-1", expect=FREE, metadata=wanted)


async def test_delete_reads_then_deletes():
    cloud, transport = gateway(ok({"server": row("s-1", metadata=MINE)}), Reply(204, {}, b""))
    assert await cloud.execute(delete()) == Answer(204, server_id="s-1")
    assert [one[2:4] for one in transport.asked] == [
        ("GET", "/servers/s-1"),
        ("DELETE", "/servers/s-1"),
    ]


async def test_claim_adds_to_the_metadata():
    cloud, transport = gateway(
        ok({"server": row("s-1", metadata=MINE)}), ok({"metadata": claim().metadata})
    )
    assert await cloud.execute(claim()) == Answer(200, server_id="s-1")
    assert transport.asked[1][2:5] == (
        "POST", "/servers/s-1/metadata", {"metadata": claim().metadata},
    )  # fmt: skip


async def test_a_claim_that_is_already_written_is_not_written_again():
    record = row("s-1", metadata={**claim().metadata, "more": "x"})
    cloud, transport = gateway(ok({"server": record}))
    answer = await cloud.execute(claim())
    assert answer.http_status == 200
    assert answer.server is not None
    assert answer.unmet == ""
    assert len(transport.asked) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        {**MINE, "user_id": "somebody"},
        {**MINE, "serverpool_id": "other"},
        {**MINE, "reattrib": "true"},
        {},
        None,
    ],
)
@pytest.mark.parametrize("command", [delete(), claim()], ids=["delete", "claim"])
async def test_nothing_is_done_to_a_server_that_is_not_what_was_expected(command, metadata):
    cloud, transport = gateway(ok({"server": row("s-1", metadata=metadata)}))
    answer = await cloud.execute(command)
    assert answer.unmet
    assert answer.server is not None
    assert answers.classify(type(command).__name__, as_event(answer)).kind == answers.UNMET
    assert len(transport.asked) == 1


@pytest.mark.parametrize("command", [delete(), claim()], ids=["delete", "claim"])
async def test_a_server_that_is_gone_ends_the_command(command):
    cloud, transport = gateway(GONE)
    answer = await cloud.execute(command)
    assert (answer.http_status, answer.error_kind) == (404, "itemNotFound")
    assert answers.classify(type(command).__name__, as_event(answer)).kind == answers.GONE
    assert len(transport.asked) == 1


async def test_a_404_that_is_not_novas_proves_nothing():
    cloud, _ = gateway(ok(b"<html><body><h1>404 Not Found</h1></body></html>", 404))
    answer = await cloud.execute(delete())
    assert (answer.error_kind, answer.message) == ("", "404 Not Found")
    assert answers.classify("DeleteServer", as_event(answer)).kind == answers.UNKNOWN


@pytest.mark.parametrize("bad", [
    TransportError("timeout", "no answer"), TransportError("connection", "cut"), ok(b"{"),
])  # fmt: skip
async def test_when_the_reading_fails_the_command_was_not_sent(bad):
    cloud, transport = gateway(bad)
    answer = await cloud.execute(delete())
    assert answer.transport_error == answers.NOT_SENT
    assert "reading the server first" in answer.message
    assert len(transport.asked) == 1


async def test_when_the_deletion_itself_is_not_answered_nothing_is_known():
    cloud, _ = gateway(
        ok({"server": row("s-1", metadata=MINE)}), TransportError("timeout", "no answer")
    )
    answer = await cloud.execute(delete())
    assert answer.transport_error == "timeout"
    assert answers.classify("DeleteServer", as_event(answer)).kind == answers.UNKNOWN


async def test_fetch_image_is_no_call():
    cloud, _ = gateway()
    with pytest.raises(TypeError, match="FetchImage"):
        await cloud.execute(FetchImage(reason=WHY, pool=POOL, image_ref="x"))


# --- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind", "message"),
    [
        (error(409, "conflictingRequest", "busy\n  now"), "conflictingRequest", "busy now"),
        (error(404, "error", "not here"), "", "not here"),
        (ok({"itemNotFound": {"code": 200, "message": "m"}}, 404), "", "m"),
        (ok({"itemNotFound": {"code": 404, "message": "m"}, "x": 1}, 404), "", ""),
        (ok({"itemNotFound": "text"}, 404), "", "text"),
        (ok(b"<html><head><title>t</title></head><p>502 <b>Bad</b></p>", 502), "", "502 Bad"),
        (ok(b"\xff\xfe", 500), "", "\ufffd\ufffd"),
        (ok(b"", 504), "", ""),
        (ok([], 500), "", "[]"),
    ],
)
def test_only_novas_own_error_bodies_have_a_kind(reply, kind, message):
    refusal = parse_refusal(reply, 0.0)
    assert (refusal.kind, refusal.message) == (kind, message)


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
LATER = "Wed, 21 Oct 2026 07:30:00 GMT"


@pytest.mark.parametrize(
    ("header", "date", "seconds"),
    [
        ("7", "", 7),
        ("1.2", "", 2),
        ("0", "", 0),
        ("-5", "", 0),
        ("99999999999", "", 86_400),
        ("nan", "", None),
        (LATER, DATE, 120),
        (DATE, LATER, 0),
        (LATER, "", 130),  # from now_s
        (LATER, "nonsense", 130),
        ("nonsense", DATE, None),
        ("", DATE, None),
    ],
)
def test_retry_after(header, date, seconds):
    now_s = 1792567670.0  # ten seconds before DATE
    assert retry_after(header, date, now_s) == seconds


def test_novas_own_retry_after_in_the_body():
    body = msgspec.json.encode({"overLimit": {"code": 413, "message": "m", "retryAfter": "9"}})
    assert parse_refusal(Reply(413, {}, body), 0.0).retry_after_s == 9
    assert parse_refusal(Reply(413, {"retry-after": "3"}, body), 0.0).retry_after_s == 3
