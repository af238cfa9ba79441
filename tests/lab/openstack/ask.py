"""The few requests that the driver itself sends, with the standard library alone."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from tests.lab.openstack.settings import PASSWORD, Lab

# a proxy in the environment must not see requests to this machine
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
MICROVERSION = "compute 2.69"


@dataclass(frozen=True)
class Answer:
    """Status 0 means that nobody answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


def ask(
    url: str,
    token: str = "",
    body: object = None,
    method: str | None = None,
    *,
    microversion: str = MICROVERSION,
    accept: str = "application/json",
) -> Answer:
    """One request; no status is an exception."""
    headers = {"Accept": accept, "OpenStack-API-Version": microversion}
    data = None
    if token:
        headers["X-Auth-Token"] = token
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with _OPENER.open(request, timeout=120) as answer:
            return Answer(answer.status, _lower(answer.headers), answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, _lower(error.headers), error.read())
    except (OSError, ValueError):
        return Answer(0, {}, b"")


def _lower(headers: object) -> dict[str, str]:
    return {name.lower(): value for name, value in getattr(headers, "items", dict)()}


def token_of(lab: Lab, user: str) -> str:
    """A token for the project that bears the user's name; empty if refused."""
    domain = {"id": "default"}
    credentials = {"name": user, "domain": domain, "password": PASSWORD}
    answer = ask(
        f"{lab.auth_url}/auth/tokens",
        body={
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": credentials}},
                "scope": {"project": {"name": user, "domain": domain}},
            }
        },
    )
    return answer.headers.get("x-subject-token", "")
