"""Keeping the core's catalogs current: images of both projects, flavors, networks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from poolsm.events import Event, FlavorsListed, ImagesListed, ListingFailed, NetworksListed
from poolsm.listing import diff_catalog
from poolsm.state import State
from poolsm_runners.budget import Budget, Priority
from poolsm_runners.clock import Clock
from poolsm_runners.cloud.port import INFRA, VM, Cloud, ListingError

Record = Callable[[Event], Awaitable[object]]


class Catalogs:
    """Lists what a create call refers to, and records what is new in it."""

    def __init__(
        self, cloud: Cloud, clock: Clock, budget: Budget, record: Record, *, two_projects: bool
    ) -> None:
        self._cloud = cloud
        self._clock = clock
        self._budget = budget
        self._record = record
        self._projects = (VM, INFRA) if two_projects else (VM,)

    async def list_all(self, state: State) -> bool:
        """List everything; whether all of it could be listed."""
        done = await self.list_images(state)
        done &= await self._list("flavors", lambda at_ms: self._flavors(state, at_ms))
        done &= await self._list("networks", lambda at_ms: self._networks(state, at_ms))
        return done

    async def list_images(self, state: State) -> bool:
        """List the images of each project; whether that could be done."""
        done = True
        for project in self._projects:

            async def ask(at_ms: int, project: str = project) -> Event:
                return await self._images(project, state, at_ms)

            done &= await self._list(f"images of the {project} project", ask)
        return done

    async def _list(self, what: str, ask: Callable[[int], Awaitable[Event]]) -> bool:
        started_ms = self._clock.now_ms()
        try:
            async with self._budget.slot(Priority.READ):
                started_ms = self._clock.now_ms()
                event = await ask(started_ms)
        except ListingError as error:
            await self._record(
                failure(
                    self._budget, what, error, started_ms=started_ms, at_ms=self._clock.now_ms()
                )
            )
            return False
        self._budget.note(Priority.READ, 200)
        await self._record(event)
        return True

    async def _images(self, project: str, state: State, started_ms: int) -> Event:
        records = await self._cloud.list_images(project)
        known = state.images.get(project, {})
        changed, gone = diff_catalog([(r.image_id, r) for r in records], known)
        return ImagesListed(
            at_ms=self._clock.now_ms(),
            project=project,
            started_ms=started_ms,
            total=len(records),
            changed=changed,
            gone=gone,
        )

    async def _flavors(self, state: State, started_ms: int) -> Event:
        # A later project wins where both show one: the VM project is where servers are made.
        records = {
            record.flavor_id: record
            for project in reversed(self._projects)
            for record in await self._cloud.list_flavors(project)
        }
        changed, gone = diff_catalog(records.items(), state.flavors)
        return FlavorsListed(
            at_ms=self._clock.now_ms(),
            started_ms=started_ms,
            total=len(records),
            changed=changed,
            gone=gone,
        )

    async def _networks(self, state: State, started_ms: int) -> Event:
        records = {
            record.network_id: record
            for project in reversed(self._projects)
            for record in await self._cloud.list_networks(project)
        }
        changed, gone = diff_catalog(records.items(), state.networks)
        return NetworksListed(
            at_ms=self._clock.now_ms(),
            started_ms=started_ms,
            total=len(records),
            changed=changed,
            gone=gone,
        )


def failure(
    budget: Budget, what: str, error: ListingError, *, started_ms: int, at_ms: int
) -> ListingFailed:
    """A listing that did not complete, counted and as an event (R10)."""
    budget.note(Priority.READ, error.http_status, error.retry_after_s, error.transport_error)
    return ListingFailed(
        at_ms=at_ms,
        started_ms=started_ms,
        what=what,
        message=error.message,
        http_status=error.http_status,
        transport_error=error.transport_error,
    )
