"""A real OpenStack as a transport: clouds.yaml, Keystone, the services' endpoints.

Blocking requests run in threads (:mod:`.threads`), never in the way of the event loop; the
SDK itself (:mod:`.sdk`) is imported in the first of them.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from poolsm_runners.cloud.port import INFRA, VM, Projects, Reply, TransportError
from poolsm_runners.cloud.threads import AbandonedError, Call, CallThreads

if TYPE_CHECKING:
    from poolsm_runners.cloud import sdk

CONNECT_DEADLINE_S = 30.0


class OpenStackTransport:
    """Requests to the VM project's cloud and the infra project's.

    Args:
        os_cloud: a name in clouds.yaml; empty for what OS_CLOUD or the other OS_ variables
            say, as with every OpenStack tool.
        infra_os_cloud: the same for the infra project; empty if one project serves both.
        threads: where the calls run; at least as many as the budget lets through at once.
    """

    def __init__(
        self, os_cloud: str, infra_os_cloud: str = "", *, threads: CallThreads | None = None
    ) -> None:
        self._names = {VM: os_cloud, INFRA: infra_os_cloud or os_cloud}
        self._threads = threads or CallThreads()
        self._opening = threading.Lock()
        self._clouds: dict[str, sdk.Cloud] = {}

    async def projects(self) -> Projects:
        """Authenticate and say which projects these are; raises TransportError."""
        vm = await self._threads.run(functools.partial(self._project_id, VM), CONNECT_DEADLINE_S)
        if self._names[INFRA] == self._names[VM]:
            return Projects(vm, vm)
        infra = await self._threads.run(
            functools.partial(self._project_id, INFRA), CONNECT_DEADLINE_S
        )
        return Projects(vm, infra)

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
        """Send one request; see :class:`~poolsm_runners.cloud.port.Transport`."""

        def work(call: Call) -> Reply:
            return self._cloud(project, call).exchange(call, service, method, path, body, once=once)

        return await self._threads.run(work, deadline_s)

    async def close(self) -> None:
        """Abandon what runs and close the connections."""
        self._threads.close()
        for cloud in self._clouds.values():
            cloud.close()

    def _project_id(self, project: str, call: Call) -> str:
        return self._cloud(project, call).project_id(call)

    def _cloud(self, project: str, call: Call) -> sdk.Cloud:
        """The cloud of a project, made by the first call that needs it; in a thread."""
        name = self._names[project]
        cloud = self._clouds.get(name)
        if cloud is not None:
            return cloud
        try:
            opened = self._opening.acquire(timeout=call.remaining_s())
        except AbandonedError:
            opened = False
        if not opened:
            raise TransportError("not_sent", f"cloud {name!r}: another call is still opening it")
        try:
            from poolsm_runners.cloud import sdk  # noqa: PLC0415 - takes half a second

            if name not in self._clouds:
                self._clouds[name] = sdk.Cloud(name)
            return self._clouds[name]
        finally:
            self._opening.release()
