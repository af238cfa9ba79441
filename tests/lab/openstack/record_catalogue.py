"""Recorded: signing in, discovery, images, flavors, key pairs, networks."""

from typing import Any

from tests.lab.openstack.record_session import Session
from tests.lab.openstack.recorder import UNKNOWN
from tests.lab.openstack.settings import PASSWORD

SERVERS = "/v2.1/servers"


# -------------------------------------------------------------------------- signing in
def _credentials(user: str, password: str, project: str) -> dict[str, Any]:
    domain = {"id": "default"}
    who = {"name": user, "domain": domain, "password": password}
    return {
        "auth": {
            "identity": {"methods": ["password"], "password": {"user": who}},
            "scope": {"project": {"name": project, "domain": domain}},
        }
    }


def identity(s: Session) -> None:
    for name, user, password, project in (
        ("token-accepted", "vmpool", PASSWORD, "vmpool"),
        ("token-bad-password", "vmpool", "wrong", "vmpool"),
        ("token-no-role-in-project", "vmpool", PASSWORD, "infra"),
        ("token-unknown-project", "vmpool", PASSWORD, "nowhere"),
    ):
        body = _credentials(user, password, project)
        s.out.record(name, "POST", "keystone", "/v3/auth/tokens", body=body)
    s.out.record("servers-bad-token", "GET", "nova-api", SERVERS, token="gAAAAA-wrong")
    s.out.record("servers-no-token", "GET", "nova-api", SERVERS)
    s.out.record("images-bad-token", "GET", "glance", "/v2/images", token="gAAAAA-wrong")


def discovery(s: Session) -> None:
    """What a client asks before its first real request."""
    for name, service, path in (
        ("discovery-keystone", "keystone", "/"),
        ("discovery-keystone-v3", "keystone", "/v3"),
        ("discovery-nova", "nova-api", "/"),
        ("discovery-nova-v2.1", "nova-api", "/v2.1"),
        ("discovery-nova-v2.1-slash", "nova-api", "/v2.1/"),
        ("discovery-glance", "glance", "/"),
        ("discovery-glance-versions", "glance", "/versions"),
        ("discovery-neutron", "neutron", "/"),
    ):
        s.get(name, service, path)
    s.get("microversion-too-new", "nova-api", SERVERS, microversion="compute 2.999")
    s.get("microversion-nonsense", "nova-api", SERVERS, microversion="compute x")


# --------------------------------------------------------- images, flavors and the rest
def images(s: Session) -> None:
    path = "/v2/images"
    s.get("images-list", "glance", path)
    s.get("images-list-by-name", "glance", f"{path}?name=worker-image")
    s.get("images-list-by-unknown-name", "glance", f"{path}?name=no-such-image")
    first = s.get("images-page-1", "glance", f"{path}?limit=1").json()
    marker = first["images"][0]["id"]
    s.get("images-page-2", "glance", path + "?limit=1&marker={image}", image=marker)
    s.get("images-marker-unknown", "glance", path + "?limit=1&marker={image}", image=UNKNOWN)
    s.get("image-get", "glance", path + "/{image}", image=s.image)
    s.get("image-get-unknown", "glance", path + "/{image}", image=UNKNOWN)
    # Glance answers an error in JSON only to a client that asks for JSON and nothing else
    any_form = {"accept": "*/*", "image": UNKNOWN}
    s.get("image-get-unknown-html", "glance", path + "/{image}", **any_form)
    foreign = s.client.image_id("infra", "worker-image")
    s.get("image-get-of-another-project", "glance", path + "/{image}", image=foreign)
    extra = s.client.create_image("recorded-image")
    s.out.normaliser.name(extra, "image recorded-image")
    s.client.deactivate_image(extra)
    s.get("image-get-deactivated", "glance", path + "/{image}", image=extra)
    s.client.delete_image(extra)
    s.get("image-get-deleted", "glance", path + "/{image}", image=extra)
    snapshot = s.client.create_snapshot("recorded-snapshot")
    s.get("image-get-snapshot", "glance", path + "/{image}", image=snapshot)
    s.client.delete_image(snapshot)


def catalogue(s: Session) -> None:
    s.get("flavors-list", "nova-api", "/v2.1/flavors")
    s.get("flavors-detail", "nova-api", "/v2.1/flavors/detail")
    s.get("flavors-page-1", "nova-api", "/v2.1/flavors/detail?limit=1")
    s.get("flavors-page-2", "nova-api", "/v2.1/flavors/detail?limit=1&marker=1")
    s.get("flavors-page-last", "nova-api", "/v2.1/flavors/detail?limit=10&marker=99")
    s.get("flavors-marker-unknown", "nova-api", "/v2.1/flavors/detail?marker=no-such-flavor")
    s.get("flavor-get", "nova-api", "/v2.1/flavors/1")
    s.get("flavor-get-unknown", "nova-api", "/v2.1/flavors/no-such-flavor")
    s.get("keypair-get", "nova-api", "/v2.1/os-keypairs/lab-key")
    s.get("keypair-get-unknown", "nova-api", "/v2.1/os-keypairs/no-such-key")
    s.get("keypairs-list", "nova-api", "/v2.1/os-keypairs")
    s.get("limits", "nova-api", "/v2.1/limits")
    project = s.facts["projects"]["vmpool"]
    quota = "/v2.1/os-quota-sets/{project}/detail"
    s.get("quota-detail", "nova-api", quota, project=project)
    path = "/v2.0/networks"
    s.get("networks-list", "neutron", path)
    s.get("networks-list-by-name", "neutron", f"{path}?name=lab-net")
    s.get("networks-list-by-unknown-name", "neutron", f"{path}?name=no-such-net")
    s.get("network-get-unknown", "neutron", path + "/{network}", network=UNKNOWN)
    net = s.facts["networks"]["lab-net"]
    s.get("network-get", "neutron", path + "/{network}", network=net)
    second = s.client.admin.network.create_network(name="lab-net-2", is_shared=True)
    s.get("networks-page-1", "neutron", f"{path}?limit=1&sort_key=name&sort_dir=asc")
    page_2 = path + "?limit=1&sort_key=name&sort_dir=asc&marker={network}"
    s.get("networks-page-2", "neutron", page_2, network=net)
    s.client.admin.network.delete_network(second)
    s.get("networks-marker-unknown", "neutron", path + "?limit=1&marker={network}", network=UNKNOWN)
