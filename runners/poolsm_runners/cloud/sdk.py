"""The blocking side of the OpenStack transport: openstacksdk's configuration and sessions.

Imported in a call's thread only: importing the SDK takes longer than most calls.

The SDK reads clouds.yaml, authenticates and finds the endpoints; requests then go through
keystoneauth's session and not through the SDK's proxies, which retry on their own (Glance's:
a 503 five times), cache, and report to metrics. Nothing here is retried, save once after a
401 with a new token, and never a request that says ``once``.
"""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import urlsplit

import openstack.config
import requests
import urllib3
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from openstack import exceptions as sdk_errors
from openstack.config.cloud_region import CloudRegion
from urllib3.connection import HTTPConnection, HTTPSConnection

from poolsm_runners.cloud.port import Reply, TransportError
from poolsm_runners.cloud.threads import AUTH, CALL, REQUEST, AbandonedError, Call

COMPUTE_MICROVERSION = "2.69"  # R10: the first to give partial records of a cell that is down
CONNECT_TIMEOUT_S = 10.0
BODY_LIMIT_BYTES = 256 * 2**20
CHUNK_BYTES = 64 * 2**10
CONNECTIONS = 32  # kept open per host
_MESSAGE_LIMIT = 400

# Major versions asked for in discovery. Neutron's discovery needs a token in older releases
# and its root is fixed, so that the SDK itself does without (as None says).
_VERSIONS = {"compute": "2", "image": "2", "network": None}

ERRORS = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)


class _Tracked:
    """A connection that asks its call for leave before it sends."""

    sock: Any
    used_by: Call | None = None

    def connect(self) -> None:
        raise NotImplementedError

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()  # as the base class would, after having counted as sent
        CALL.get().sending(self)
        super().send(data)  # type: ignore[misc]


class _HTTP(_Tracked, HTTPConnection):
    connect = HTTPConnection.connect


class _HTTPS(_Tracked, HTTPSConnection):
    connect = HTTPSConnection.connect


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HTTP


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HTTPS


class DeadlineAdapter(TCPKeepAliveAdapter):
    """Gives every request of a session, Keystone's too, the deadline of the call it is for."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Pools of tracked connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """The same behind an HTTP proxy; SOCKS has connections of its own kind."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
        return manager

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """A connection that cannot tell when it sends counts as having sent."""
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        if not issubclass(pool.ConnectionCls, _Tracked):
            CALL.get().sending(None)
        return pool

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send with socket timeouts that lie within what is left of the call."""
        left_s = CALL.get().remaining_s()
        kwargs["timeout"] = (min(left_s, CONNECT_TIMEOUT_S), left_s)
        return super().send(*args, **kwargs)


class Cloud:
    """One cloud of clouds.yaml: a session, and the endpoints of its services."""

    def __init__(self, name: str) -> None:
        self._region = _configured(name)
        self._name = self._region.name or name or "(environment)"
        self._session: Session = self._region.get_session()
        adapter = DeadlineAdapter(pool_connections=8, pool_maxsize=CONNECTIONS)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        self._renewing = threading.Lock()
        self._endpoints: dict[str, str] = {}

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def project_id(self, call: Call) -> str:
        """The id of the project that the token is for; raises TransportError."""
        call.enter(AUTH)
        try:
            project = self._session.get_project_id()
        except Exception as error:  # noqa: BLE001 - plugins raise anything
            raise self._no_token(error) from None
        if not project:
            raise TransportError("auth", f"cloud {self._name!r}: the token is for no project")
        return project

    def exchange(
        self, call: Call, service: str, method: str, path: str, body: bytes | None, *, once: bool
    ) -> Reply:
        """Send a request, and once more with a new token after a 401 unless ``once``.

        Raises:
            TransportError: no whole answer.
        """
        reply, token = self._send(call, service, method, path, body)
        if reply.status == 401:
            self._renew(token)
            if not once:
                reply, token = self._send(call, service, method, path, body)
                if reply.status == 401:
                    self._renew(token)
        return reply

    def _send(
        self, call: Call, service: str, method: str, path: str, body: bytes | None
    ) -> tuple[Reply, str]:
        call.enter(AUTH)
        headers = self._token_headers()
        url = self._endpoint(service) + path
        token = headers.get("X-Auth-Token", "")
        headers["Accept"] = "application/json"
        if body is not None:
            headers["Content-Type"] = "application/json"
        call.enter(REQUEST)
        try:
            response = self._session.request(
                url,
                method,
                data=body,
                headers=headers,
                authenticated=False,  # the headers have the token; no second way to get one
                allow_reauth=False,
                raise_exc=False,
                connect_retries=0,
                status_code_retries=0,
                redirect=3 if method == "GET" else False,
                microversion=COMPUTE_MICROVERSION if service == "compute" else None,
                microversion_service_type=service,
                stream=True,
                log=False,  # debug logs would show user-data
            )
            return _read(call, response), token
        except (keystone_errors.ClientException, AbandonedError, *ERRORS) as error:
            raise _failure(call, url, error) from None

    def _token_headers(self) -> dict[str, str]:
        try:
            return dict(self._session.get_auth_headers() or {})
        except Exception as error:  # noqa: BLE001 - plugins raise anything
            raise self._no_token(error) from None

    def _endpoint(self, service: str) -> str:
        """The versioned root of a service, without a slash at its end."""
        known = self._endpoints.get(service)
        if known:
            return known
        try:
            url = self._discovered(service)
        except (keystone_errors.ClientException, AbandonedError, *ERRORS) as error:
            raise TransportError("not_sent", f"{self._where(service)}: {_text(error)}") from None
        if not url:
            raise TransportError("not_sent", f"{self._where(service)}: no usable version")
        self._endpoints[service] = url.rstrip("/")
        return self._endpoints[service]

    def _discovered(self, service: str) -> str | None:
        major = _VERSIONS[service]
        if major is None:
            url: str | None = self._region.get_session_client(service).get_endpoint()
            return url
        client = self._region.get_session_client(
            service, min_version=major, max_version=f"{major}.latest", allow_version_hack=True
        )
        data = client.get_endpoint_data()
        # Without a version this is the catalog's address, which keystoneauth falls back to
        # when discovery fails: not the versioned root, and not worth remembering.
        return data.url if data is not None and data.api_version else None

    def _where(self, service: str) -> str:
        return f"cloud {self._name!r}: finding the endpoint of {service}"

    def _renew(self, refused: str) -> None:
        """Forget a token that was refused, unless another call has already renewed it."""
        with self._renewing:
            access = getattr(self._session.auth, "auth_ref", None)
            if access is None or access.auth_token == refused:
                self._session.invalidate()
                self._endpoints.clear()

    def _no_token(self, error: Exception) -> TransportError:
        auth_url = getattr(self._session.auth, "auth_url", None) or "Keystone"
        where = f"cloud {self._name!r}: {auth_url}"
        if isinstance(error, keystone_errors.Unauthorized):
            return TransportError("auth", f"{where} refused the credentials: {_text(error)}")
        return TransportError("not_sent", f"{where} gave no token: {_text(error)}")


def _configured(name: str) -> CloudRegion:
    try:
        config = openstack.config.OpenStackConfig(app_name="poolsm")
        names = config.get_cloud_names()
        if name and name not in names:
            files = config._config_files  # noqa: SLF001 - the only place that has them
            read = config.config_filename
            raise TransportError(
                "auth",
                f"no cloud {name!r}: {read} has {', '.join(sorted(names))}"
                if read
                else f"no cloud {name!r}: no clouds.yaml; searched {', '.join(files)}",
            )
        return config.get_one(cloud=name or None)
    except (sdk_errors.SDKException, keystone_errors.ClientException) as error:
        raise TransportError("auth", f"cloud {name!r}: {_text(error)}") from None


def _read(call: Call, response: requests.Response) -> Reply:
    """The whole answer; a server that drips is cut at the deadline."""
    body = bytearray()
    try:
        while len(body) <= BODY_LIMIT_BYTES:
            chunk = response.raw.read1(CHUNK_BYTES, decode_content=True)
            if not chunk:
                headers = {name.lower(): value for name, value in response.headers.items()}
                return Reply(response.status_code, headers, bytes(body))
            call.remaining_s()
            body += chunk
    except BaseException:
        response.close()
        raise
    response.close()
    raise TransportError("other", f"an answer of more than {BODY_LIMIT_BYTES} bytes")


def _failure(call: Call, url: str, error: Exception) -> TransportError:
    where = urlsplit(url).netloc
    try:
        call.remaining_s()
        late = _is_timeout(error)
    except AbandonedError:
        late = True
    if not call.sent:
        return TransportError("not_sent", f"{where}: {_text(error)}")
    return TransportError("timeout" if late else "connection", f"{where}: {_text(error)}")


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what lies beneath it, outermost first."""
    chain: list[BaseException] = []
    todo: BaseException | None = error
    while todo is not None and todo not in chain:
        chain.append(todo)
        reason = getattr(todo, "reason", None)
        inner = next((arg for arg in todo.args if isinstance(arg, BaseException)), None)
        if isinstance(reason, BaseException):
            todo = reason
        else:
            todo = inner or todo.__cause__ or todo.__context__
    return chain


def _is_timeout(error: Exception) -> bool:
    kinds = (TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError)
    return any(isinstance(one, kinds) for one in _chain(error))


def _text(error: Exception) -> str:
    """One line: the operating system's word if it had one, else the library's."""
    for one in reversed(_chain(error)):
        if isinstance(one, requests.RequestException) or not isinstance(one, OSError):
            continue
        if one.strerror:
            return one.strerror
    return " ".join(str(error).split())[:_MESSAGE_LIMIT]
