"""The simulated cloud answers as the real OpenStack did, in the same situation.

Every recorded answer is here, or named in ``NOT_SIMULATED`` with the reason: a new recording
fails until one of both is done.
"""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from situations import HEADERS, RECORDED, Situation, arranged, recording, the_cloud

from poolsm.testing.replies import service_error
from poolsm_runners.cloud.served_identity import Tokens, denied, version_documents

NOT_SIMULATED = {
    "keypair": "key pairs are neither listed nor read",
    "keypairs": "key pairs are neither listed nor read",
    "limits": "quotas are learned from refusals",
    "quota": "quotas are learned from refusals",
    "reboot": "no pool reboots",
    "servers-detail-changes-since": "listings are always whole",
    "servers-detail-changes-since-nonsense": "listings are always whole",
}
SERVICES = {"nova-api": "compute", "glance": "image", "neutron": "network"}
NAMES = sorted(path.stem for path in RECORDED.glob("*.json") if path.stem != "legend")

# Values that differ from run to run or from cloud to cloud: only their types must agree.
VARIES = {
    "created",
    "updated",
    "hostId",
    "user_id",
    "adminPass",
    "addr",
    "OS-EXT-IPS-MAC:mac_addr",
    "OS-SRV-USG:launched_at",
    "href",
    "checksum",
    "os_hash_algo",
    "os_hash_value",
    "created_at",
    "updated_at",
    "revision_number",
    "subnets",
    "tenant_id",
    "project_id",
    "fault.created",
}
# How a hypervisor counts a server that an operator set aside is the hypervisor's own affair.
OF_THE_HYPERVISOR = {
    name: ["OS-EXT-STS:power_state"]
    for name in ("server-paused", "server-suspended", "server-rescue")
}
# Properties that whoever uploaded an image gave it.
OWNER_SPECIFIED = ("owner_specified.", "image_type")


def test_there_are_recordings():
    assert len(NAMES) > 100
    unused = [key for key in NOT_SIMULATED if not any(name.startswith(key) for name in NAMES)]
    assert unused == []


def skipped(name):
    return NOT_SIMULATED.get(name) or NOT_SIMULATED.get(name.split("-")[0])


def simulated(name, recorded, s):
    """The simulated cloud's answer to the recorded request."""
    request = recorded["request"]
    path = request["path"].removeprefix("/v2.1").removeprefix("/v2.0").removeprefix("/v2")
    for field, value in request["ids"].items():
        path = path.replace(f"{{{field}}}", s.ids.get(value, value))
    headers = {
        **HEADERS,
        "accept": request["accept"],
        "openstack-api-version": request["microversion"],
    }
    return s.ask(
        request["method"], path, request["body"], headers, service=SERVICES[request["service"]]
    )


def body_of(reply):
    if not reply.body:
        return None
    if "json" in reply.headers["content-type"]:
        return json.loads(reply.body)
    return reply.body.decode()


def kind(headers):
    return headers.get("content-type", "").split(";")[0]


def kin(value):
    """The JSON type, numbers being one."""
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, int | float) else type(value).__name__


def differences(found, wanted, where=""):
    """How an answer differs from the recorded one."""
    key = where.rpartition(".")[2]
    if isinstance(wanted, dict) and isinstance(found, dict):
        keys = {k for k in {*wanted, *found} if not k.startswith(OWNER_SPECIFIED)}
        out = [f"{where}.{k}: not recorded" for k in sorted(keys - wanted.keys())]
        out += [f"{where}.{k}: missing" for k in sorted(keys - found.keys())]
        for k in sorted(keys & wanted.keys() & found.keys()):
            out += differences(found[k], wanted[k], f"{where}.{k}")
        return out
    if isinstance(wanted, list) and isinstance(found, list):
        if len(found) != len(wanted):
            return [f"{where}: {len(found)} items, recorded {len(wanted)}"]
        pairs = zip(found, wanted, strict=True)
        return [text for f, w in pairs for text in differences(f, w, where)]
    if key in ("href", "next", "first") and isinstance(wanted, str):
        return [] if query(found) == query(wanted) else [f"{where}: {found} != {wanted}"]
    if key in VARIES:
        # An empty text and a missing value are facts; any other text is as good as another.
        same = kin(found) == kin(wanted) and bool(found) == bool(wanted)
        known = wanted is None or found is None
        optional = key in ("checksum", "os_hash_algo", "os_hash_value")
        return [] if same or (known and optional) else [f"{where}: {found!r} != {wanted!r}"]
    return [] if found == wanted else [f"{where}: {found!r} != {wanted!r}"]


def query(url):
    return parse_qs(urlsplit(url).query)


def with_ids(value, ids):
    text = json.dumps(value)
    for recorded_id, simulated_id in ids.items():
        text = text.replace(recorded_id, simulated_id)
    return json.loads(text)


def special(name, recorded):
    """Answers of parts that stand before the services: tokens and version documents."""
    config = the_cloud().config
    request = recorded["request"]
    if name.startswith("token-"):
        return denied()
    if name.endswith(("-bad-token", "-no-token")):
        return service_error(SERVICES[request["service"]], 401, "", accept=request["accept"])
    if name.startswith("discovery-"):
        place = {"nova-api": "/compute", "glance": "/image", "neutron": "/network"}
        path = (place.get(request["service"], "") + request["path"]).rstrip("/") or "/"
        return version_documents(config)[path]
    return None


@pytest.mark.parametrize("name", [n for n in NAMES if not skipped(n) and n != "token-accepted"])
def test_answers_as_recorded(name):
    recorded = recording(name)
    s = Situation()
    reply = special(name, recorded)
    if reply is None:
        s = arranged(name, recorded)
        reply = simulated(name, recorded, s)
    found = body_of(reply)
    assert reply.status == recorded["status"], found
    if name == "create-accepted":
        s.ids[recorded["body"]["server"]["id"]] = found["server"]["id"]
    wanted = with_ids(recorded["body"], s.ids)
    for key in OF_THE_HYPERVISOR.get(name, ()):
        wanted["server"][key] = found["server"][key]
    if name.startswith("discovery-"):
        found, wanted = essence(found), essence(wanted)
    assert differences(found, wanted) == []
    assert kind(reply.headers) == kind(recorded["headers"])
    version = recorded["headers"].get("openstack-api-version")
    if version and reply.status < 400 and not name.startswith("discovery-"):
        assert reply.headers["openstack-api-version"] == version


def essence(document):
    """What a client reads of a version document: which versions there are."""
    versions = document.get("versions", document)
    versions = versions.get("values", versions) if isinstance(versions, dict) else versions
    versions = [versions["version"]] if isinstance(versions, dict) else versions
    fields = ("id", "status", "version", "min_version")
    rows = [{k: one[k] for k in fields if k in one} for one in versions]
    return {one["id"]: one for one in rows if one["id"] != "v2.0" or one["status"] != "DEPRECATED"}


def test_token_as_recorded():
    recorded = recording("token-accepted")
    request = json.loads(json.dumps(recorded["request"]["body"]))
    tokens = Tokens(the_cloud().config)
    user = request["auth"]["identity"]["password"]["user"]
    user["name"], user["password"] = "sim", "sim"
    request["auth"]["scope"]["project"]["name"] = "vm"
    project = tokens.wanted_project(json.dumps(request).encode())
    assert project == "vm"
    reply = tokens.issue(project)
    found, wanted = json.loads(reply.body)["token"], recorded["body"]["token"]
    assert reply.status == recorded["status"]
    assert tokens.project_of(reply.headers["x-subject-token"]) == "vm"
    assert found.keys() == wanted.keys()
    assert found["project"].keys() == wanted["project"].keys()
    assert found["user"].keys() == wanted["user"].keys()
    assert found["catalog"][0].keys() == wanted["catalog"][0].keys()
    endpoint = wanted["catalog"][0]["endpoints"][0]
    assert found["catalog"][0]["endpoints"][0].keys() == endpoint.keys()


@pytest.mark.parametrize("case", ["bad password", "unknown project"])
def test_bad_credentials_get_no_project(case):
    request = json.loads(json.dumps(recording("token-accepted")["request"]["body"]))
    user = request["auth"]["identity"]["password"]["user"]
    user["name"], user["password"] = "sim", "wrong" if case == "bad password" else "sim"
    request["auth"]["scope"]["project"]["name"] = "vm" if case == "bad password" else "nowhere"
    assert Tokens(the_cloud().config).wanted_project(json.dumps(request).encode()) is None


# --- the comparison itself ------------------------------------------------------------------


def tampered(recorded, change):
    copy = json.loads(json.dumps(recorded))
    change(copy)
    return copy


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["body"]["server"].update(status="SHUTOFF"),
        lambda r: r["body"]["server"].update(name="other"),
        lambda r: r["body"]["server"].update(extra=1),
        lambda r: r["body"]["server"].pop("metadata"),
        lambda r: r["body"]["server"]["flavor"].update(original_name="m1.small"),
        lambda r: r["body"]["server"].update(addresses={}),
        lambda r: r["body"]["server"].update(created=None),
    ],
)
def test_a_different_answer_is_noticed(change):
    recorded = recording("server-active")
    s = arranged("server-active", recorded)
    found = body_of(simulated("server-active", recorded, s))
    assert differences(found, with_ids(recorded["body"], s.ids)) == []
    assert differences(found, with_ids(tampered(recorded, change)["body"], s.ids)) != []


def test_a_different_message_is_noticed():
    recorded = recording("stop-refused-shutoff")
    s = arranged("stop-refused-shutoff", recorded)
    found = body_of(simulated("stop-refused-shutoff", recorded, s))
    other = tampered(recorded, lambda r: r["body"]["conflictingRequest"].update(message="No"))
    assert differences(found, with_ids(recorded["body"], s.ids)) == []
    assert differences(found, with_ids(other["body"], s.ids)) != []
