"""Neutron as far as it is used: listing the networks that a project sees."""

from __future__ import annotations

from urllib.parse import urlencode

from poolsm.testing.config import stable_id
from poolsm.testing.replies import Json, Refused, SimReply, json_reply, neutron_error
from poolsm.testing.world import Network, World


def refuse_network(status: int, kind: str, message: str) -> Refused:
    """Neutron's refusal, to be raised."""
    return Refused(neutron_error(status, kind, message))


def list_networks(world: World, project: str, query: dict[str, str]) -> SimReply:
    """``GET /networks``: own and shared ones, ordered by id when paged."""
    shown = [
        network
        for network in world.networks.values()
        if network.config.shared or network.config.project == project
    ]
    name = query.get("name")
    if name is not None:
        shown = [network for network in shown if network.config.name == name]
    if "limit" not in query:
        return json_reply(200, {"networks": [view(world, network) for network in shown]})
    by_name = query.get("sort_key") == "name"
    shown.sort(
        key=lambda network: (network.config.name if by_name else "", network.network_id),
        reverse=query.get("sort_dir") == "desc",
    )
    marker = query.get("marker")
    if marker:
        ids = [network.network_id for network in shown]
        if marker not in ids:
            text = f"Network {marker} could not be found."
            raise refuse_network(404, "NetworkNotFound", text)
        shown = shown[ids.index(marker) + 1 :]
    limit = int(query["limit"]) if query["limit"].isdigit() else 0
    page = shown[:limit] if limit else shown
    body: Json = {"networks": [view(world, network) for network in page]}
    body["networks_links"] = _links(world, query, page, full=bool(page) and len(page) == limit)
    return json_reply(200, body)


def show_network(world: World, project: str, network_id: str) -> SimReply:
    """``GET /networks/{id}``."""
    network = world.networks.get(network_id)
    if network is None or not (network.config.shared or network.config.project == project):
        text = f"Network {network_id} could not be found."
        raise refuse_network(404, "NetworkNotFound", text)
    return json_reply(200, {"network": view(world, network)})


def _links(world: World, query: dict[str, str], page: list[Network], *, full: bool) -> list[Json]:
    root = f"{world.config.base_url}/network/v2.0/networks"
    kept = {name: value for name, value in query.items() if name != "marker"}
    links: list[Json] = []
    if full:
        following = {**kept, "marker": page[-1].network_id}
        links.append({"rel": "next", "href": f"{root}?{urlencode(following)}"})
    if page:
        before = {**kept, "marker": page[0].network_id, "page_reverse": "True"}
        links.append({"rel": "previous", "href": f"{root}?{urlencode(before)}"})
    return links


def view(world: World, network: Network) -> Json:
    """A network as Neutron shows it to a member."""
    config = network.config
    owner = world.config.project_id(config.project)
    return {
        "id": network.network_id,
        "name": config.name,
        "tenant_id": owner,
        "admin_state_up": True,
        "mtu": 1500,
        "status": config.status,
        "subnets": [stable_id("subnet", config.name)] if config.cidr else [],
        "shared": config.shared,
        "project_id": owner,
        "port_security_enabled": True,
        "router:external": False,
        "qinq": False,
        "vlan_transparent": False,
        "availability_zone_hints": [],
        "availability_zones": [],
        "ipv4_address_scope": None,
        "ipv6_address_scope": None,
        "description": "",
        "tags": [],
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "revision_number": 1,
    }
