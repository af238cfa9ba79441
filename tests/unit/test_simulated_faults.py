"""What can go wrong in the simulated cloud, each kind once."""

import json

import pytest
from sim_tools import MINUTE, Client, message

from poolsm.testing import KINDS, OPERATIONS, VM, Fault
from poolsm.testing.faults import ABSENT, AFTER, BEFORE, LIFE, PAGE, READ, RECORD


def client_with(*faults):
    client = Client()
    client.cloud.set_faults(faults)
    return client


def test_kinds_are_all_different():
    assert (
        len(set(KINDS)) == len(KINDS) == sum(map(len, (BEFORE, AFTER, PAGE, ABSENT, RECORD, LIFE)))
    )
    assert set(READ) <= set(KINDS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "hickup"},
        {"kind": "hang", "operations": ("creat",)},
        {"kind": "hang", "project": "x"},
    ],
)
def test_a_fault_that_could_never_happen_is_refused(wrong):
    with pytest.raises(ValueError, match="one of"):
        Fault(**wrong)


# --- before and after the effect ------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "made", "answered"),
    [
        ("refuse", 0, 503),
        ("hang", 0, "hang"),
        ("drop", 0, "cut"),
        ("unreachable", 0, "unreachable"),
        ("refuse_after", 1, 503),
        ("hang_after", 1, "hang"),
        ("drop_after", 1, "cut"),
        ("cut", 1, "cut"),
        ("delay", 1, 202),
    ],
)
def test_whether_the_server_is_made(kind, made, answered):
    client = client_with(Fault(kind=kind, operations=("create",), delay_ms=90_000))
    reply = client.ask("POST", "/servers", client.order(command="c-1"))
    assert client.cloud.live_count() == made
    if isinstance(answered, str):
        assert getattr(reply, answered)
    else:
        assert reply.status == answered
    assert (reply.delay_ms >= 90_000) == (kind == "delay")
    assert client.cloud.creates_by_command() == ({"c-1": 1} if made else {})


def test_a_request_that_a_proxy_holds_back_is_carried_out_later():
    client = client_with(Fault(kind="late", operations=("create",), delay_ms=90_000))
    assert client.ask("POST", "/servers", client.order()).hang
    client.wait(89_999)
    assert client.cloud.live_count() == 0
    client.wait(1)
    assert client.cloud.live_count() == 1
    assert client.cloud.next_ms() is not None


@pytest.mark.parametrize(
    ("status", "service", "key"),
    [(401, "compute", "error"), (403, "compute", "forbidden"), (404, "compute", "itemNotFound"),
     (409, "compute", "conflictingRequest"), (429, "compute", "overLimit"),
     (503, "compute", "serviceUnavailable"), (500, "compute", "computeFault"),
     (503, "network", "NeutronError"), (401, "network", "error")],
)  # fmt: skip
def test_storms_speak_the_services_language(status, service, key):
    client = client_with(Fault(kind="refuse", status=status, message="storm", retry_after_s=7))
    reply = client.ask(
        "GET", "/networks" if service == "network" else "/servers/x", service=service
    )
    assert reply.status == status
    assert list(json.loads(reply.body)) == [key]
    assert reply.headers.get("retry-after") == ("7" if status != 401 else None)


def test_glance_speaks_html_unless_asked_for_json():
    client = client_with(Fault(kind="refuse", status=503, message="storm"))
    plain = client.ask("GET", "/images", service="image", headers={"accept": "*/*"})
    assert plain.headers["content-type"].startswith("text/html")
    assert json.loads(client.ask("GET", "/images", service="image").body)["title"] == (
        "Service Unavailable"
    )


def test_a_proxys_error_is_nobodys_json():
    client = client_with(Fault(kind="refuse", status=502, html=True, retry_after_s=3))
    reply = client.ask("GET", "/servers/x")
    assert (reply.status, reply.headers["content-type"]) == (502, "text/html")
    assert reply.headers["retry-after"] == "3"
    assert b"502 Bad Gateway" in reply.body


def test_answers_that_never_came_are_counted_as_0():
    client = client_with(Fault(kind="hang"))
    client.ask("GET", "/servers/detail")
    assert client.cloud.calls == {("list", 0): 1}


# --- whom, when, how often ------------------------------------------------------------------


def test_a_fault_is_aimed_at_a_pool_a_name_or_a_server():
    for aim, hit in (
        ({"pool": "a"}, {"a-1"}),
        ({"name_prefix": "b-"}, {"b-1"}),
        ({"operations": ("delete",)}, set()),
        ({"project": "infra"}, set()),
        ({"project": "vm"}, {"a-1", "b-1"}),
    ):
        client = client_with(Fault(kind="refuse", **aim))
        statuses = {
            name: client.ask("POST", "/servers", client.order(name, pool=name[0])).status
            for name in ("a-1", "b-1")
        }
        assert {name for name, status in statuses.items() if status == 503} == hit, aim
    client = Client()
    one, other = client.active("a-1"), client.active("a-2")
    client.cloud.add_fault(Fault(kind="refuse", server_id=one))
    assert (client.show(one), client.show(other)["name"]) == (503, "a-2")
    assert client.names() == ["a-2", "a-1"]


def test_a_fault_has_a_time_and_a_number():
    client = Client()
    now = client.now_ms
    client.cloud.add_fault(Fault(kind="refuse", from_ms=now + 10, until_ms=now + 20))
    seen = []
    for _ in range(3):
        seen.append(client.show("x"))
        client.wait(10)
    assert seen == [404, 503, 404]
    client.cloud.set_faults((Fault(kind="refuse", count=2),))
    assert [client.show("x") for _ in range(3)] == [503, 503, 404]
    assert [happened for _, happened in client.cloud.faults()] == [2]


def test_a_fault_may_happen_or_not_and_the_same_with_one_seed():
    def run(seed):
        client = Client(seed=seed)
        client.cloud.add_fault(Fault(kind="refuse", probability=0.5))
        return [client.show("x") for _ in range(100)]

    assert run(1) == run(1) != run(2)
    assert 30 < run(1).count(503) < 70


def test_faults_are_removed_by_name_or_all():
    client = client_with(Fault(kind="refuse", name="a"), Fault(kind="hang", name="b"))
    assert client.cloud.remove_faults("a") == 1
    assert client.ask("GET", "/servers/x").hang
    client.cloud.heal()
    assert client.show("x") == 404


def test_faults_change_nothing_for_the_others():
    def run(*faults):
        client = client_with(*faults)
        ids = [client.create(f"p-{number}") for number in range(3)]
        client.wait(MINUTE)
        return [client.cloud.server(server_id) for server_id in ids]

    assert run() == run(Fault(kind="refuse", operations=("list",), probability=0.3))


# --- the life of a server -------------------------------------------------------------------


def test_a_boot_fails_with_a_text():
    client = client_with(Fault(kind="spawn_error", message="no space left on device", count=1))
    server_id = client.create()
    client.wait(MINUTE)
    view = client.show(server_id)
    assert view["status"] == "ERROR"
    assert view["fault"]["message"] == (
        f"Build of instance {server_id} aborted: no space left on device"
    )
    assert client.act(server_id, "os-stop") == 409
    client.active("p-2")
    client.cloud.set_faults((Fault(kind="spawn_error", fault_text="Quota exceeded {id}"),))
    other = client.create("p-3")
    client.wait(MINUTE)
    assert client.show(other)["fault"]["message"] == f"Quota exceeded {other}"
    assert client.delete(other) == 204
    client.wait(MINUTE)
    assert client.show(other) == 404


def test_a_boot_hangs_and_can_be_deleted():
    client = client_with(Fault(kind="boot_hang"))
    server_id = client.create()
    client.wait(60 * MINUTE)
    view = client.show(server_id)
    assert (view["status"], view["OS-EXT-STS:task_state"]) == ("BUILD", "spawning")
    assert client.delete(server_id) == 204
    client.wait(MINUTE)
    assert client.show(server_id) == 404


def test_a_boot_takes_long():
    client = client_with(Fault(kind="boot_slow", delay_ms=10 * MINUTE, name_prefix="p-"))
    slow, quick = client.create("p-1"), client.create("q-1")
    client.wait(9 * MINUTE)
    assert (client.show(slow)["status"], client.show(quick)["status"]) == ("BUILD", "ACTIVE")
    client.wait(2 * MINUTE)
    assert client.show(slow)["status"] == "ACTIVE"


def test_a_delete_that_is_stuck_is_helped_by_another():
    client = Client()
    server_id = client.active()
    client.cloud.add_fault(Fault(kind="stuck", operations=("delete",), count=1))
    assert client.delete(server_id) == 204
    client.wait(60 * MINUTE)
    assert client.show(server_id)["OS-EXT-STS:task_state"] == "deleting"
    assert client.delete(server_id) == 204
    client.wait(MINUTE)
    assert client.show(server_id) == 404


@pytest.mark.parametrize(
    ("kind", "task", "end"),
    [("ignore", None, "ACTIVE"), ("fails", "powering-off", "ACTIVE"),
     ("stuck", "powering-off", "ACTIVE")],
)  # fmt: skip
def test_a_stop_that_does_not_stop(kind, task, end):
    client = Client()
    server_id = client.active()
    client.cloud.add_fault(Fault(kind=kind, operations=("stop",)))
    assert client.act(server_id, "os-stop") == 202
    assert client.show(server_id)["OS-EXT-STS:task_state"] == task
    client.wait(MINUTE)
    view = client.show(server_id)
    assert view["status"] == end
    assert view["OS-EXT-STS:task_state"] == (task if kind == "stuck" else None)


def test_a_claim_that_is_accepted_and_forgotten():
    client = Client()
    server_id = client.active()
    client.cloud.add_fault(Fault(kind="ignore", operations=("metadata", "rename", "delete")))
    body = {"metadata": {"user_id": "other"}}
    assert client.ask("POST", f"/servers/{server_id}/metadata", body).status == 200
    assert client.ask("PUT", f"/servers/{server_id}", {"server": {"name": "x"}}).status == 200
    assert client.delete(server_id) == 204
    client.wait(MINUTE)
    view = client.show(server_id)
    assert (view["name"], view["metadata"]["user_id"]) == ("p-1", "u")


# --- listings -------------------------------------------------------------------------------


def five(*faults):
    client = Client()
    for number in range(5):
        client.active(f"p-{number}", pool="even" if number % 2 == 0 else "odd")
    client.cloud.set_faults(faults)
    return client


ALL = ["p-4", "p-3", "p-2", "p-1", "p-0"]


def test_a_link_to_the_next_page_is_missing():
    client = five(Fault(kind="no_next_link", count=1))
    assert "servers_links" not in client.page("?limit=2")
    assert "servers_links" in client.page("?limit=2")


def test_a_page_is_short_and_so_has_no_link():
    client = five(Fault(kind="short_page", count=1))
    assert [one["name"] for one in client.page("?limit=3")["servers"]] == ALL[:2]
    client.cloud.set_faults((Fault(kind="short_page"),))
    assert "servers_links" not in client.page("?limit=3")


def test_a_marker_is_lost():
    client = five(Fault(kind="lost_marker"))
    marker = client.page("?limit=2")["servers"][-1]["id"]
    reply = client.ask("GET", f"/servers/detail?limit=2&marker={marker}")
    assert (reply.status, message(reply)) == (400, f"marker [{marker}] not found")


def test_a_listing_is_old():
    client = five()
    newest = client.page()["servers"][0]["id"]
    client.wait(3 * MINUTE)
    client.delete(newest)
    client.create("p-5")
    client.wait(MINUTE)
    assert client.names() == ["p-5", *ALL[1:]]
    client.cloud.add_fault(Fault(kind="stale", age_ms=MINUTE + 1))
    assert client.names() == ALL
    assert client.names("?limit=2") == ALL[:2]
    assert client.names(f"?marker={newest}") == ALL[1:]
    assert client.show(newest) == 404


def test_a_listing_is_shuffled_or_doubled_or_has_holes():
    client = five(Fault(kind="shuffle"))
    orders = [client.names() for _ in range(20)]
    assert all(sorted(order) == sorted(ALL) for order in orders)
    assert any(order != ALL for order in orders)
    client.cloud.set_faults((Fault(kind="duplicate", name_prefix="p-3"),))
    assert client.names() == ["p-4", "p-3", "p-3", "p-2", "p-1", "p-0"]
    client.cloud.set_faults((Fault(kind="omit", pool="odd"),))
    assert client.names() == ["p-4", "p-2", "p-0"]
    assert client.names("?limit=2") == ["p-4", "p-2"]
    client.cloud.set_faults((Fault(kind="garbage", count=1),))
    assert client.page()["servers"][0] == {"id": None, "status": 17}


def test_metadata_is_blank():
    client = five(Fault(kind="blank_metadata", pool="odd"))
    rows = client.page()["servers"]
    assert [bool(one["metadata"]) for one in rows] == [True, False, True, False, True]
    assert client.show(rows[1]["id"])["metadata"] == {}


def test_a_cell_is_down():
    client = five(Fault(kind="cell_down", pool="odd"))
    rows = client.page()["servers"]
    assert [one["status"] for one in rows] == ["UNKNOWN"] * 2 + ["ACTIVE"] * 3
    assert all("name" not in one and "metadata" not in one for one in rows[:2])
    assert client.names("?limit=1000") == ["p-4", "p-2", "p-0"]
    view = client.show(rows[0]["id"])
    assert (view["status"], "metadata" in view) == ("UNKNOWN", False)
    client.cloud.set_faults((Fault(kind="partial_record", pool="odd"),))
    assert [one["status"] for one in client.page("?limit=1000")["servers"]].count("UNKNOWN") == 2


def test_every_operation_can_be_refused():
    client = Client()
    server_id = client.active()
    requests = {
        "auth": ("POST", "/auth/tokens", {}, "identity"),
        "create": ("POST", "/servers", client.order(), "compute"),
        "list": ("GET", "/servers/detail?limit=9", None, "compute"),
        "get": ("GET", f"/servers/{server_id}", None, "compute"),
        "delete": ("DELETE", f"/servers/{server_id}", None, "compute"),
        "stop": ("POST", f"/servers/{server_id}/action", {"os-stop": None}, "compute"),
        "start": ("POST", f"/servers/{server_id}/action", {"os-start": None}, "compute"),
        "rebuild": ("POST", f"/servers/{server_id}/action", {"rebuild": {}}, "compute"),
        "metadata": ("POST", f"/servers/{server_id}/metadata", {"metadata": {}}, "compute"),
        "rename": ("PUT", f"/servers/{server_id}", {"server": {"name": "x"}}, "compute"),
        "flavors": ("GET", "/flavors/detail", None, "compute"),
        "images": ("GET", "/images", None, "image"),
        "image": ("GET", "/images/x", None, "image"),
        "networks": ("GET", "/networks", None, "network"),
    }
    assert requests.keys() == set(OPERATIONS)
    for operation, (method, path, body, service) in requests.items():
        client.cloud.set_faults((Fault(kind="refuse", operations=(operation,), status=418),))
        assert client.ask(method, path, body, service=service).status == 418, operation
        assert client.cloud.call_count(operation, 418) == 1
    assert client.cloud.live_count(VM) == 1
