"""The embedded simulated cloud as a transport: a function call instead of a connection."""

from __future__ import annotations

import msgspec

from poolsm.testing import SimReply, SimulatedCloud
from poolsm_runners.clock import Clock
from poolsm_runners.cloud.port import INFRA, VM, Projects, Reply, TransportError

# What the real transport sends: the pinned microversion, and JSON also from Glance.
_HEADERS = {
    "accept": "application/json",
    "content-type": "application/json",
    "openstack-api-version": "compute 2.69",
}
_SIGN_IN_S = 20.0


class SimulatedTransport:
    """A :class:`~poolsm_runners.cloud.port.Transport` to a cloud in this process.

    A request has its effect at once, whatever becomes of the caller afterwards; its answer
    comes when the cloud says, on the given clock.
    """

    def __init__(self, cloud: SimulatedCloud, clock: Clock) -> None:
        self._cloud = cloud
        self._clock = clock

    async def projects(self) -> Projects:
        """The ids of both projects; raises TransportError (``auth``) if the cloud refuses."""
        ids: list[str] = []
        for project in (VM, INFRA):
            try:
                reply = await self._send(
                    project, "identity", "POST", "/auth/tokens", b"{}", _SIGN_IN_S
                )
            except TransportError as error:
                raise TransportError("auth", error.message) from None
            if reply.status != 201:
                raise TransportError("auth", f"Keystone answered {reply.status}")
            ids.append(msgspec.json.decode(reply.body, type=_Signed).token.project.id)
        return Projects(*ids)

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
        """Send one request, and once more after a 401 unless ``once``; raises TransportError."""
        reply = await self._send(project, service, method, path, body, deadline_s)
        if reply.status == 401 and not once:
            reply = await self._send(project, service, method, path, body, deadline_s)
        return reply

    async def close(self) -> None:
        """Nothing to give back."""

    async def _send(  # noqa: PLR0917 - a request line, in the order in which it is written
        self,
        project: str,
        service: str,
        method: str,
        path: str,
        body: bytes | None,
        deadline_s: float,
    ) -> Reply:
        now_ms = self._clock.now_ms()
        reply = self._cloud.request(now_ms, project, service, method, path, body, _HEADERS)
        await self._wait(reply, deadline_s)
        return Reply(reply.status, reply.headers, reply.body)

    async def _wait(self, reply: SimReply, deadline_s: float) -> None:
        if reply.unreachable:
            raise TransportError("not_sent", "the simulated cloud cannot be reached")
        if reply.hang or reply.delay_ms > deadline_s * 1000:
            await self._clock.sleep(deadline_s)
            raise TransportError("timeout", f"no whole answer within {deadline_s:g} s")
        if reply.delay_ms:
            await self._clock.sleep(reply.delay_ms / 1000)
        if reply.cut:
            raise TransportError("connection", "the simulated cloud closed the connection")


class _Project(msgspec.Struct):
    id: str


class _Token(msgspec.Struct):
    project: _Project


class _Signed(msgspec.Struct):
    token: _Token
