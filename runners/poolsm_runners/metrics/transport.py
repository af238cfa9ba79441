"""A transport that measures: each request to the cloud, by what it is and how it ended."""

from __future__ import annotations

import time

from poolsm_runners.cloud.operations import operation
from poolsm_runners.cloud.port import Projects, Reply, Transport, TransportError
from poolsm_runners.metrics.instruments import Instruments


class MeteredTransport:
    """A :class:`~poolsm_runners.cloud.port.Transport` around another one."""

    def __init__(self, inner: Transport, instruments: Instruments) -> None:
        self._inner = inner
        self._instruments = instruments

    async def projects(self) -> Projects:
        """As the inner one; counted as the identity service's."""
        began_s, status = time.perf_counter(), "200"
        try:
            return await self._inner.projects()
        except TransportError as error:
            status = error.kind
            raise
        finally:
            self._note("identity", "authenticate", status, began_s)

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
        """As the inner one."""
        began_s, status = time.perf_counter(), "abandoned"
        try:
            reply = await self._inner.request(
                project, service, method, path, body=body, deadline_s=deadline_s, once=once
            )
            status = str(reply.status)
        except TransportError as error:
            status = error.kind
            raise
        else:
            return reply
        finally:
            self._note(service, operation(service, method, path), status, began_s)

    async def close(self) -> None:
        """As the inner one."""
        await self._inner.close()

    def _note(self, service: str, name: str, status: str, began_s: float) -> None:
        self._instruments.count("poolsm_api_requests_total", service, name, status)
        seconds = time.perf_counter() - began_s
        self._instruments.observe("poolsm_api_request_duration_seconds", seconds, service, name)
