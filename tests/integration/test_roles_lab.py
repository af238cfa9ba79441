"""What the documentation says of roles: a real Keystone, real policies, a user of its own."""

import asyncio
import json
import os
import uuid
import warnings

import openstack
import pytest
from attrs import frozen

from poolsm.commands import (
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
from poolsm.spec import PoolKey
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.openstack import OpenStackTransport
from poolsm_runners.cloud.port import INFRA, VM, Deadlines, ListingError
from tests.integration.running import ROOT, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

KEY = PoolKey("roles", "test")
WHY = Reason("test", "test")
POLICIES = {
    "CreateServer": "os_compute_api:servers:create",
    "ClaimServer": "os_compute_api:server-metadata:create",
    "RenameServer": "os_compute_api:servers:update",
    "StopServer": "os_compute_api:servers:stop",
    "StartServer": "os_compute_api:servers:start",
    "RebuildServer": "os_compute_api:servers:rebuild",
    "DeleteServer": "os_compute_api:servers:delete",
}


@frozen
class Account:
    """A user of its own, and clouds.yaml for it."""

    lab: object
    user: object

    def may(self, project, role):
        admin = self.lab.admin.identity
        found = next(r for r in admin.roles() if r.name == role)
        admin.assign_project_role_to_user(self.lab.project_id(project), self.user, found.id)


@pytest.fixture
def clouds_yaml(tmp_path, monkeypatch):
    """Where every cloud of the test is looked up."""
    file = tmp_path / "clouds.yaml"
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    return file


@pytest.fixture
def account(empty, clouds_yaml):
    """A user without any role; gone behind the test."""
    name = f"least-{uuid.uuid4().hex[:8]}"
    admin = empty.admin.identity
    user = admin.create_user(name=name, password=name, domain_id="default")
    clouds = {
        cloud: {
            "auth": {
                "auth_url": empty.facts["auth_url"],
                "username": name,
                "password": name,
                "user_domain_id": "default",
                "project_id": empty.project_id(project),
            },
            "region_name": empty.facts["region"],
        }
        for cloud, project in (("vms", "vmpool"), ("images", "infra"))
    }
    clouds_yaml.write_text(json.dumps({"clouds": clouds}))  # JSON is YAML
    yield Account(empty, user)
    admin.delete_user(user)


async def listings(cloud):
    """How many records each listing has."""
    found = {"servers": len(await cloud.list_servers())}
    for project in (VM, INFRA):
        found[f"images {project}"] = len(await cloud.list_images(project))
        found[f"flavors {project}"] = len(await cloud.list_flavors(project))
        found[f"networks {project}"] = len(await cloud.list_networks(project))
    return found


async def everything(lab, cloud, server_id=None):
    """Every command on one server, made by ``cloud`` or given; answers by kind."""
    images, answers = lab.facts["images"]["vmpool"], {}

    async def ask(command, user_data=""):
        answer = await cloud.execute(command, user_data)
        answers[type(command).__name__] = answer
        return answer

    async def settle(status):
        def settled():
            row = lab.server(server_id)
            return (row["status"], row["OS-EXT-STS:task_state"]) == (status, None)

        await asyncio.to_thread(until, status, settled, 40)

    made = await ask(create(lab), "IyEvYmluL3NoCg==")
    server_id = made.server_id or server_id
    await settle("ACTIVE")
    await ask(FindServer(reason=WHY, server_id=server_id))
    tags = {"reattrib": "true", "poolsm_claimant": "carol"}
    expect = Expectation(KEY, attributed=False)
    claimed = await ask(ClaimServer(reason=WHY, server_id=server_id, expect=expect, metadata=tags))
    await ask(RenameServer(reason=WHY, server_id=server_id, name="renamed"))
    if (await ask(StopServer(reason=WHY, server_id=server_id))).http_status == 202:
        await settle("SHUTOFF")
    await ask(StartServer(reason=WHY, server_id=server_id))
    await settle("ACTIVE")
    image_id = images["worker-image-old"]
    await ask(RebuildServer(reason=WHY, server_id=server_id, image_id=image_id, name="rebuilt"))
    await settle("ACTIVE")
    expect = Expectation(KEY, attributed=claimed.http_status == 200)
    await ask(DeleteServer(reason=WHY, server_id=server_id, expect=expect))
    return answers


def create(lab):
    draft = CreateServer(
        reason=WHY,
        pool=KEY,
        image_id=lab.facts["images"]["vmpool"]["worker-image"],
        flavor_id=lab.facts["flavors"]["m1.tiny"],
        networks=(lab.facts["networks"]["lab-net"],),
        key_name=None,
        user_data=UserDataRef(),
        metadata=tags_of(),
    )
    return draft.with_id(str(uuid.uuid4()))


def tags_of():
    return {"serverpool_id": KEY.serverpool_id, "user_id": KEY.user_id, "reattrib": "false"}


async def tried(lab, server_id=None):
    cloud = Gateway(OpenStackTransport("vms", "images"), Deadlines())
    try:
        await cloud.projects()
        return await listings(cloud), await everything(lab, cloud, server_id)
    finally:
        await cloud.close()


def test_member_and_reader_is_enough(account):
    account.may("vmpool", "member")
    account.may("infra", "reader")
    found, answers = asyncio.run(tried(account.lab))
    assert found["images infra"] == found["images vm"] == 3
    assert found["networks infra"] == found["networks vm"] == 1
    refused = {kind: a.message for kind, a in answers.items() if (a.http_status or 999) >= 300}
    assert not refused


def test_a_reader_sees_everything_and_changes_nothing(account):
    lab = account.lab
    account.may("vmpool", "reader")
    account.may("infra", "reader")
    row = lab.create_server("theirs", metadata=tags_of())
    found, answers = asyncio.run(tried(lab, row["id"]))
    assert found["servers"] == 1
    told = {kind: a.message for kind, a in answers.items() if a.http_status == 403}
    assert set(told) == set(POLICIES)
    for kind, policy in POLICIES.items():
        assert told[kind] == f"Policy doesn't allow {policy} to be performed."
    assert lab.server(row["id"])["status"] == "ACTIVE"


def test_the_access_rules_of_the_documentation_are_enough(account, clouds_yaml):
    account.may("vmpool", "member")
    account.may("infra", "reader")
    narrowed = {cloud: narrow(account, cloud) for cloud in ("vms", "images")}
    clouds_yaml.write_text(json.dumps({"clouds": narrowed}))
    try:
        _, answers = asyncio.run(tried(account.lab))
    except ListingError as error:
        if error.http_status != 401:
            raise
        pytest.skip("the services of this lab do not know their types; `down` and `up` it")
    refused = {kind: a.message for kind, a in answers.items() if (a.http_status or 999) >= 300}
    assert not refused


def narrow(account, cloud):
    """A cloud of clouds.yaml with an application credential for the documented calls alone."""
    file = os.environ["OS_CLIENT_CONFIG_FILE"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        config = openstack.config.OpenStackConfig(config_files=[file], load_envvars=False)
        session = config.get_one(cloud=cloud).get_session()
    rules = ROOT / f"docs/examples/access-rules-{'vms' if cloud == 'vms' else 'infra'}.json"
    body = {"name": f"narrow-{uuid.uuid4().hex}", "access_rules": json.loads(rules.read_text())}
    url = f"{account.lab.facts['auth_url']}/users/{account.user.id}/application_credentials"
    made = session.post(url, json={"application_credential": body}).json()["application_credential"]
    return {
        "auth_type": "v3applicationcredential",
        "auth": {
            "auth_url": account.lab.facts["auth_url"],
            "application_credential_id": made["id"],
            "application_credential_secret": made["secret"],
        },
        "region_name": account.lab.facts["region"],
    }


def test_without_a_role_there_is_no_signing_in(account):
    account.may("vmpool", "member")
    with pytest.raises(ListingError, match="refused the credentials"):
        asyncio.run(tried(account.lab))
