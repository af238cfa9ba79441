"""One complete listing of the cloud's servers, told page by page."""

from __future__ import annotations

from collections.abc import Callable

from poolsm.records import ServerRecord
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.openstack import OpenStackTransport
from poolsm_runners.cloud.port import Deadlines, ListingError, Projects, Reply, Transport
from poolsm_runners.service import CloudUnusableError

Say = Callable[[str], None]


async def list_cloud(name: str, say: Say) -> list[ServerRecord]:
    """All servers of a project; ``name`` is its name in clouds.yaml.

    Raises:
        CloudUnusableError: it refuses us, is away, or the listing is not complete.
    """
    cloud = Gateway(_Told(OpenStackTransport(name), say), Deadlines())
    try:
        await cloud.projects()
        return await cloud.list_servers()
    except ListingError as error:
        raise CloudUnusableError(f"cloud {name}: {error.message}") from None
    finally:
        await cloud.close()


class _Told:
    """A transport that says which page it asks for."""

    def __init__(self, inner: Transport, say: Say) -> None:
        self._inner = inner
        self._say = say
        self._pages = 0

    async def projects(self) -> Projects:
        self._say("signing in")
        return await self._inner.projects()

    async def request(
        self,
        project: str,
        service: str,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        deadline_s: float,
        once: bool = False,
    ) -> Reply:
        if path.startswith("/servers/detail"):
            self._pages += 1
            self._say(f"listing servers, page {self._pages}")
        return await self._inner.request(
            project, service, method, path, body=body, deadline_s=deadline_s, once=once
        )

    async def close(self) -> None:
        await self._inner.close()
