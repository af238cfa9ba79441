"""The settings files of the services, as literal tables.

Options that are not here have OpenStack's defaults. The ones that are here point at the
lab's ports and folders, or make it smaller, quicker and quieter on a small machine.
"""

import base64
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.lab.openstack.settings import (
    COMPUTE_HOST,
    ML2_PLUGIN,
    PASSWORD,
    REGION,
    Lab,
    made,
)

Section = Mapping[str, object]
POOL = {"max_pool_size": 10, "max_overflow": 50}
RABBIT = {"heartbeat_timeout_threshold": 60, "heartbeat_in_pthread": "false"}
NO_NOTIFICATIONS = {"driver": "noop"}
# What each API reads before it looks for its settings anywhere else.
DIRECTORY_VARIABLE = {
    "keystone": "OS_KEYSTONE_CONFIG_DIR",
    "glance": "OS_GLANCE_CONFIG_DIR",
    "placement": "OS_PLACEMENT_CONFIG_DIR",
    "nova-api": "OS_NOVA_CONFIG_DIR",
    "neutron": "OS_NEUTRON_CONFIG_DIR",
}


def write_all(lab: Lab) -> None:
    """Write every settings file and make the folders that they name."""
    _keys(lab)
    for service, pastefile in (
        ("glance", "glance-api-paste.ini"),
        ("nova", "api-paste.ini"),
        ("neutron", "api-paste.ini"),
    ):
        shutil.copy(lab.venv / "etc" / service / pastefile, made(lab.etc / service) / pastefile)
    _write(lab.etc / "keystone/keystone.conf", _keystone(lab))
    _write(lab.etc / "glance/glance-api.conf", _glance(lab))
    _write(lab.etc / "placement/placement.conf", _placement(lab))
    _write(lab.etc / "neutron/neutron.conf", _neutron(lab))
    nova = _nova(lab)
    _write(lab.etc / "nova/nova.conf", nova)
    # nova-compute refuses to start where it could reach the databases
    compute = {k: v for k, v in nova.items() if k not in ("database", "api_database")}
    _write(lab.etc / "nova/nova-cpu.conf", compute)
    # It also wants an identity on disk, though the driver pretends several nodes.
    (made(lab.state / "nova") / "compute_id").write_text(f"{node_uuid(1)}\n")


def node_uuid(number: int) -> uuid.UUID:
    """The id of a pretended hypervisor: the same in every run, as its seed expects."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"lab-node-{number:02}")


def environment_of(lab: Lab, service: str) -> dict[str, str]:
    """What an API needs in its environment to find its settings."""
    folder = lab.etc / ("nova" if service == "nova-api" else service)
    more = {DIRECTORY_VARIABLE[service]: str(folder)}
    if service == "neutron":
        more["OS_NEUTRON_CONFIG_FILES"] = "neutron.conf"
        more["PYTHONPATH"] = str(ML2_PLUGIN)  # the entry point of the mechanism driver
    return more


def database_url(lab: Lab, name: str) -> str:
    return f"mysql+pymysql://root@127.0.0.1:{lab.port('mysql')}/{name}?charset=utf8mb4"


def _write(path: Path, sections: Mapping[str, Section]) -> None:
    lines: list[str] = []
    for title, options in sections.items():
        lines += [f"[{title}]", *(f"{name} = {value}" for name, value in options.items()), ""]
    made(path.parent)
    path.write_text("\n".join(lines))


def _keys(lab: Lab) -> None:
    """Keystone's key repositories; they belong to the seed, so they are kept."""
    for repository in ("fernet", "credential"):
        folder = made(lab.keys / repository)
        folder.chmod(0o700)
        for name in ("0", "1"):
            key = folder / name
            if not key.exists():
                key.write_bytes(base64.urlsafe_b64encode(os.urandom(32)))
                key.chmod(0o600)


def _defaults(lab: Lab, name: str) -> dict[str, object]:
    return {"log_file": lab.log / f"{name}.log", "debug": "false", "use_stderr": "false"}


def _database(lab: Lab, name: str) -> Section:
    return {"connection": database_url(lab, name), **POOL}


def _amqp(lab: Lab) -> str:
    return f"rabbit://guest:guest@127.0.0.1:{lab.port('amqp')}/"


def _account(lab: Lab, user: str) -> dict[str, object]:
    """How a service signs in as itself."""
    return {
        "auth_type": "password",
        "auth_url": lab.auth_url,
        "username": user,
        "password": PASSWORD,
        "user_domain_id": "default",
        "project_name": "service",
        "project_domain_id": "default",
        "region_name": REGION,
    }


# by the user that each signs in as; without it no token with access rules is let in
_SERVICE_TYPES = {
    "nova": "compute",
    "glance": "image",
    "neutron": "network",
    "placement": "placement",
}


def _token_check(lab: Lab, user: str) -> Section:
    return {
        **_account(lab, user),
        "service_type": _SERVICE_TYPES[user],
        "www_authenticate_uri": lab.auth_url,
        "service_token_roles": "service",
        "service_token_roles_required": "true",
    }


def _policy(lab: Lab, service: str) -> Section:
    """An empty policy file: with none, each check searches eight places for one."""
    folder = made(lab.etc / service)
    (folder / "policy.yaml").write_text("{}\n")
    return {"policy_file": folder / "policy.yaml", "policy_dirs": made(folder / "policy.d")}


def _keystone(lab: Lab) -> dict[str, Section]:
    return {
        "DEFAULT": {**_defaults(lab, "keystone"), "public_endpoint": lab.url("keystone")},
        "database": _database(lab, "keystone"),
        "token": {"provider": "fernet", "expiration": 86400},
        "fernet_tokens": {"key_repository": lab.keys / "fernet"},
        "fernet_receipts": {"key_repository": lab.keys / "fernet"},
        "credential": {"key_repository": lab.keys / "credential"},
        "oslo_policy": _policy(lab, "keystone"),
        "cache": {"enabled": "true", "backend": "oslo_cache.dict", "expiration_time": 600},
        # The passwords are no secret and sign-ins are many: hash them cheaply.
        "identity": {"password_hash_algorithm": "bcrypt", "password_hash_rounds": 4},
    }


def _glance(lab: Lab) -> dict[str, Section]:
    data = "filesystem_store_datadir"
    return {
        "DEFAULT": {
            **_defaults(lab, "glance"),
            "enabled_backends": "file:file",
            "enabled_import_methods": "[]",
            "transport_url": _amqp(lab),
            "worker_self_reference_url": lab.url("glance"),
        },
        "database": _database(lab, "glance"),
        "keystone_authtoken": _token_check(lab, "glance"),
        "paste_deploy": {"flavor": "keystone"},
        "glance_store": {"default_backend": "file"},
        "file": {data: made(lab.state / "glance/images")},
        "os_glance_staging_store": {data: made(lab.state / "glance/staging")},
        "os_glance_tasks_store": {data: made(lab.state / "glance/tasks")},
        "oslo_policy": _policy(lab, "glance"),
    }


def _placement(lab: Lab) -> dict[str, Section]:
    return {
        "DEFAULT": _defaults(lab, "placement"),
        "placement_database": _database(lab, "placement"),
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": _token_check(lab, "placement"),
        "oslo_policy": _policy(lab, "placement"),
    }


def _nova(lab: Lab) -> dict[str, Section]:
    state = made(lab.state / "nova")
    return {
        "DEFAULT": {
            "debug": "false",
            "use_stderr": "false",
            "my_ip": "127.0.0.1",
            "host": COMPUTE_HOST,
            "state_path": state,
            "instances_path": made(state / "instances"),
            "transport_url": _amqp(lab),
            "compute_driver": "poolsm_lab.Driver",
            # servers of the last run are taken up again with `up --keep`
            "resume_guests_state_on_host_boot": "true",
            "running_deleted_instance_action": "noop",
            "initial_cpu_allocation_ratio": 16,
            "initial_ram_allocation_ratio": 4,
            "reserved_host_memory_mb": 0,
            "max_concurrent_builds": 0,
            "update_resources_interval": 600,
            "report_interval": 3,
            "service_down_time": 60,
            "rpc_response_timeout": 120,
            "manager_shutdown_timeout": 5,
        },
        "api": {"auth_strategy": "keystone", "max_limit": 1000},
        "oslo_policy": _policy(lab, "nova"),
        "api_database": _database(lab, "nova_api"),
        "database": _database(lab, "nova"),
        "keystone_authtoken": _token_check(lab, "nova"),
        "service_user": {**_account(lab, "nova"), "send_service_user_token": "true"},
        "placement": _account(lab, "placement"),
        "neutron": _account(lab, "neutron"),
        "glance": {"region_name": REGION},
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": -1},
        "conductor": {"workers": 1},
        "filter_scheduler": {"host_subset_size": 4},
        "vnc": {"enabled": "false"},
        "image_cache": {"manager_interval": -1},
        "oslo_concurrency": {"lock_path": made(state / "lock")},
        "oslo_messaging_rabbit": RABBIT,
        "oslo_messaging_notifications": NO_NOTIFICATIONS,
    }


def _neutron(lab: Lab) -> dict[str, Section]:
    state = made(lab.state / "neutron")
    return {
        "DEFAULT": {
            **_defaults(lab, "neutron"),
            "core_plugin": "ml2",
            "service_plugins": "",
            "transport_url": _amqp(lab),
            "auth_strategy": "keystone",
            "state_path": state,
            "api_paste_config": lab.etc / "neutron/api-paste.ini",
            # nobody waits for a port to be wired: the mechanism driver binds it at once
            "notify_nova_on_port_status_changes": "false",
            "notify_nova_on_port_data_changes": "false",
            "dhcp_agent_notification": "false",
            "dns_domain": "lab.example.",
        },
        "database": _database(lab, "neutron"),
        "keystone_authtoken": _token_check(lab, "neutron"),
        "nova": _account(lab, "nova"),
        "oslo_policy": _policy(lab, "neutron"),
        "ml2": {
            "type_drivers": "local,flat,vlan",
            "project_network_types": "local",
            "mechanism_drivers": "poolsm_lab",
            "extension_drivers": "port_security",
        },
        "securitygroup": {"enable_security_group": "true", "firewall_driver": "noop"},
        "oslo_concurrency": {"lock_path": made(state / "lock")},
        "oslo_messaging_rabbit": RABBIT,
        "oslo_messaging_notifications": NO_NOTIFICATIONS,
    }
