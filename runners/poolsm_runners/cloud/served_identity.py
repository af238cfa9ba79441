"""Keystone v3 and the version documents of a served simulated cloud, as far as clients ask.

Tokens are good by the wall clock, not by the simulated one: keystoneauth compares their
expiry with its own time.
"""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

import msgspec
from attrs import define, field

from poolsm.testing.config import PROJECTS, CloudConfig, stable_id
from poolsm.testing.replies import Json, SimReply, json_reply, keystone_error

_UPDATED = "2026-01-01T00:00:00Z"
_DENIED = "The request you have made requires authentication."


class _User(msgspec.Struct):
    password: str
    name: str = ""
    id: str = ""


class _Password(msgspec.Struct):
    user: _User


class _Identity(msgspec.Struct):
    methods: list[str]
    password: _Password


class _Project(msgspec.Struct):
    name: str = ""
    id: str = ""


class _Scope(msgspec.Struct):
    project: _Project


class _Auth(msgspec.Struct):
    identity: _Identity
    scope: _Scope


class _SignIn(msgspec.Struct):
    auth: _Auth


@define
class Tokens:
    """The tokens that are good."""

    config: CloudConfig
    good: dict[str, tuple[str, float]] = field(factory=dict)

    def project_of(self, token: str) -> str | None:
        """``vm`` or ``infra``; None if the token is not good."""
        project, until_s = self.good.get(token, ("", 0.0))
        return project if until_s > time.time() else None

    def expire_all(self) -> int:
        """Make all tokens bad before their time; returns how many there were."""
        count = len(self.good)
        self.good.clear()
        return count

    def wanted_project(self, body: bytes) -> str | None:
        """The project that a sign-in is for; None if the credentials are not good."""
        try:
            wanted = msgspec.json.decode(body, type=_SignIn).auth
        except msgspec.MsgspecError:
            return None
        user, scope = wanted.identity.password.user, wanted.scope.project
        known = self.config.username in (user.name, user.id)
        if not known or user.password != self.config.password:
            return None
        for project in PROJECTS:
            if project == scope.name or self.config.project_id(project) == scope.id:
                return project
        return None

    def issue(self, project: str) -> SimReply:
        """A new token, and the catalog with it."""
        token = secrets.token_urlsafe(32)
        now_s = time.time()
        until_s = now_s + self.config.token_life_s
        self.good[token] = (project, until_s)
        reply = json_reply(201, {"token": self._describe(project, now_s, until_s)})
        reply.headers["x-subject-token"] = token
        return reply

    def _describe(self, project: str, now_s: float, until_s: float) -> Json:
        domain = {"id": "default", "name": "Default"}
        user = {"domain": domain, "id": self.config.username, "name": self.config.username}
        roles = [{"id": stable_id("role", name), "name": name} for name in ("reader", "member")]
        root = self.config.base_url
        return {
            "methods": ["password"],
            "user": {**user, "password_expires_at": None},
            "audit_ids": [secrets.token_urlsafe(12)],
            "expires_at": _stamp(until_s),
            "issued_at": _stamp(now_s),
            "project": {
                "domain": domain,
                "id": self.config.project_id(project),
                "name": project,
            },
            "is_domain": False,
            "roles": roles,
            "catalog": [
                self._service("compute", "nova", f"{root}/compute/v2.1"),
                self._service("image", "glance", f"{root}/image"),
                self._service("network", "neutron", f"{root}/network"),
                self._service("identity", "keystone", root),
            ],
        }

    def _service(self, kind: str, name: str, url: str) -> Json:
        region = self.config.region
        endpoints = [
            {
                "id": stable_id("endpoint", kind, interface),
                "interface": interface,
                "region_id": region,
                "region": region,
                "url": url,
            }
            for interface in ("public", "internal", "admin")
        ]
        return {
            "id": stable_id("service", kind),
            "type": kind,
            "name": name,
            "endpoints": endpoints,
        }


def denied() -> SimReply:
    """What Keystone says to bad credentials, whatever is bad about them."""
    return keystone_error(401, _DENIED)


def version_documents(config: CloudConfig) -> dict[str, SimReply]:
    """The unversioned and versioned roots of all services, by path."""
    root = config.base_url
    keystone = {
        "id": "v3.14",
        "status": "stable",
        "updated": _UPDATED,
        "links": _self(f"{root}/v3/"),
        "media-types": [
            {"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}
        ],
    }
    nova = {
        "id": "v2.1",
        "status": "CURRENT",
        "version": config.max_microversion,
        "min_version": "2.1",
        "updated": _UPDATED,
        "links": _self(f"{root}/compute/v2.1/"),
    }
    glance = [
        {"id": f"v2.{minor}", "status": status, "links": _self(f"{root}/image/v2/")}
        for minor, status in [
            (17, "CURRENT"),
            *((n, "SUPPORTED") for n in (15, *range(13, -1, -1))),
        ]
    ]
    neutron = {"id": "v2.0", "status": "CURRENT", "links": _self(f"{root}/network/v2.0/")}

    return {
        "/": json_reply(300, {"versions": {"values": [keystone]}}),
        "/v3": json_reply(200, {"version": keystone}),
        "/compute": json_reply(200, {"versions": [nova]}),
        "/compute/v2.1": json_reply(200, {"version": nova}),
        "/image": json_reply(300, {"versions": glance}),
        "/image/versions": json_reply(200, {"versions": glance}),
        "/network": json_reply(200, {"versions": [neutron]}),
        "/network/v2.0": json_reply(200, {"resources": []}),
    }


def _self(href: str) -> list[Json]:
    return [{"rel": "self", "href": href}]


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
