"""Fill an empty lab: `seed.py accounts|resources FACTS`, FACTS being a JSON object.

It runs in the virtual environment of OpenStack, once in the life of a seed.
"""

import io
import json
import os
import sys
from pathlib import Path

import openstack
import yaml

IMAGES = ("worker-image", "worker-image-old", "desktop-image")
IMAGE_BYTES = 64 * 1024
# id, name, MiB of memory, processors, GiB of disk
FLAVORS = (
    ("1", "m1.tiny", 512, 1, 1),
    ("2", "m1.small", 2048, 1, 20),
    ("3", "m1.medium", 4096, 2, 40),
    ("99", "m1.impossible", 900000, 4, 10),  # more memory than any host has: NoValidHost
)
# 500 servers and then some; tests that need a low quota set it themselves
COMPUTE_QUOTA = {
    "instances": 5000,
    "cores": 20000,
    "ram": 50_000_000,
    "key_pairs": 1000,
    "metadata_items": 128,
    "server_groups": 100,
}
NETWORK_QUOTA = {"ports": 10000, "networks": 100, "subnets": 100}
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL2vGmtYqkPvD1M8JYq1M0nGYwH6b6bW1c3Q2vJm8f1x lab"
# cloud name -> (user, project); the manager is one user with a role in both projects
CLOUDS = {
    "lab-admin": ("admin", "admin"),
    "lab-infra": ("infra", "infra"),
    "lab-vmpool": ("vmpool", "vmpool"),
    "lab-manager-infra": ("manager", "infra"),
    "lab-manager-vmpool": ("manager", "vmpool"),
}
# user -> (project, roles)...
GRANTS = {
    "glance": [("service", ("admin", "service"))],
    "nova": [("service", ("admin", "service"))],
    "placement": [("service", ("admin", "service"))],
    "neutron": [("service", ("admin", "service"))],
    "infra": [("infra", ("member", "reader"))],
    "vmpool": [("vmpool", ("member", "reader"))],
    "manager": [("infra", ("member",)), ("vmpool", ("member",))],
}
# type, name, listener, path
CATALOGUE = (
    ("image", "glance", "glance", ""),
    ("placement", "placement", "placement", ""),
    ("compute", "nova", "nova-api", "/v2.1"),
    ("network", "neutron", "neutron", ""),
)


def write_clouds(facts):
    clouds = {
        name: {
            "auth": {
                "auth_url": facts["auth_url"],
                "username": user,
                "password": facts["password"],
                "project_name": project,
                "user_domain_id": "default",
                "project_domain_id": "default",
            },
            "region_name": facts["region"],
            "identity_api_version": 3,
            "interface": "public",
        }
        for name, (user, project) in CLOUDS.items()
    }
    Path(facts["clouds_yaml"]).write_text(yaml.safe_dump({"clouds": clouds}))


def accounts(facts):
    write_clouds(facts)
    identity = openstack.connect(cloud="lab-admin").identity
    roles = {role.name: role for role in identity.roles()}
    projects = {
        name: identity.create_project(name=name, domain_id="default")
        for name in ("service", "infra", "vmpool")
    }
    for name, grants in GRANTS.items():
        user = identity.create_user(
            name=name,
            password=facts["password"],
            domain_id="default",
            default_project_id=projects[grants[0][0]].id,
        )
        for project, granted in grants:
            for role in granted:
                identity.assign_project_role_to_user(projects[project], user, roles[role])
    for kind, name, listener, path in CATALOGUE:
        service = identity.create_service(type=kind, name=name)
        for interface in ("public", "internal", "admin"):
            identity.create_endpoint(
                service_id=service.id,
                interface=interface,
                region_id=facts["region"],
                url=facts["urls"][listener] + path,
            )


def make_image(cloud, name):
    image = cloud.image.create_image(
        name=name,
        disk_format="raw",
        container_format="bare",
        visibility="private",
        data=io.BytesIO(os.urandom(IMAGE_BYTES)),
        validate_checksum=False,
    )
    if cloud.image.get_image(image.id).status != "active":
        sys.exit(f"image {name} did not become active")
    return image.id


def make_network(admin):
    network = admin.network.create_network(
        name="lab-net", is_shared=True, provider_network_type="local"
    )
    subnet = admin.network.create_subnet(
        network_id=network.id,
        name="lab-subnet",
        ip_version=4,
        cidr="10.77.0.0/16",
        is_dhcp_enabled=False,
    )
    return {"networks": {"lab-net": network.id}, "subnets": {"lab-subnet": subnet.id}}


def make_flavors(admin):
    return {
        name: admin.compute.create_flavor(
            flavorid=ident, id=ident, name=name, ram=ram, vcpus=vcpus, disk=disk
        ).id
        for ident, name, ram, vcpus, disk in FLAVORS
    }


def resources(facts):
    out = {key: facts[key] for key in ("auth_url", "region", "clouds_yaml")}
    out["clouds"] = sorted(CLOUDS)
    out["projects"] = {}
    out["images"] = {}
    out["keypair"] = "lab-key"
    for name in ("infra", "vmpool"):
        cloud = openstack.connect(cloud=f"lab-{name}")
        out["projects"][name] = cloud.current_project_id
        out["images"][name] = {image: make_image(cloud, image) for image in IMAGES}
    for name in ("lab-infra", "lab-vmpool", "lab-manager-vmpool"):  # a key belongs to a user
        cloud = openstack.connect(cloud=name)
        cloud.compute.create_keypair(name=out["keypair"], public_key=PUBLIC_KEY)
    admin = openstack.connect(cloud="lab-admin")
    out["projects"]["admin"] = admin.current_project_id
    out["flavors"] = make_flavors(admin)
    out.update(make_network(admin))
    vmpool = out["projects"]["vmpool"]
    admin.compute.update_quota_set(vmpool, **COMPUTE_QUOTA)
    admin.network.update_quota(vmpool, **NETWORK_QUOTA)
    Path(facts["lab_json"]).write_text(json.dumps(out, indent=2) + "\n")


{"accounts": accounts, "resources": resources}[sys.argv[1]](json.loads(sys.argv[2]))
