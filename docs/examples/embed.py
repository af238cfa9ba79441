"""The library inside another asyncio service, whole: its own log, its own loop, its own cloud.

    python docs/examples/embed.py [--speed 60]

The service keeps one pool and hands machines out. All decisions are the library's; the service
does what no library can do for it:

* write each step to a log, and only then act on it;
* carry the commands out, and report every answer, also the ones that never came;
* list the cloud's servers, images, flavors and networks, and say when it asked;
* tell the time.

The cloud here is the simulated one, on a clock that runs ``--speed`` times as fast. With
another transport (``poolsm_runners.cloud.openstack.OpenStackTransport``) and a ``WallClock``
it is a real OpenStack; nothing else changes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from poolsm import Fleet, PoolKey, PoolSpec, RunnerSettings, Step, __version__, diff_catalog
from poolsm.assignment import OPEN_STATES
from poolsm.codec import EVENT_VERSIONS, decode_event, encode
from poolsm.commands import Command, CreateServer, FetchImage
from poolsm.events import (
    AssignmentRequested,
    CallAnswered,
    CommandsDispatched,
    Event,
    FlavorsListed,
    ImagesListed,
    ListingFailed,
    LogOpened,
    NetworksListed,
    PoolDeclared,
    RunnerStarted,
    Ticked,
)
from poolsm.shapes import AssignmentView
from poolsm.views import assignment_view, pool_view
from poolsm_runners.clock import Clock, FastClock
from poolsm_runners.cloud.embedded import embedded_transport
from poolsm_runners.cloud.gateway import Gateway
from poolsm_runners.cloud.port import INFRA, VM, Answer, Cloud, Deadlines, ListingError
from poolsm_runners.secrets import encoded_user_data


class JsonLinesLog:
    """The simplest log that keeps the promise: a step is on the disk before anyone acts on it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")

    def fold(self) -> Fleet:
        """Everything that was decided so far, from the stored events alone."""
        fleet = Fleet()
        self._file.seek(0)
        for row in map(json.loads, self._file):
            event = json.dumps(row["event"]).encode()
            fleet.step(decode_event(row["kind"], row["version"], event))
        return fleet

    def append(self, step: Step) -> None:
        """Write a step's entries and wait for the disk.

        A real log stores the commands, too, so that a replay can be compared, and survives a
        line that a crash cut short. See ``poolsm_runners.log``.
        """
        for entry in step.entries:
            kind = type(entry.event).__name__
            event = json.loads(encode(entry.event))
            row = {"kind": kind, "version": EVENT_VERSIONS[kind], "event": event}
            self._file.write(json.dumps(row).encode() + b"\n")
        if step.entries:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _no_secret(digest: str) -> str:
    raise LookupError(f"this service declares no secret, yet {digest} is asked for")


class Desk:
    """A service that hands out machines; poolsm decides, this carries out."""

    def __init__(self, log: JsonLinesLog, fleet: Fleet, cloud: Cloud, clock: Clock) -> None:
        self._log, self._fleet, self._cloud, self._clock = log, fleet, cloud, clock
        self._calls: asyncio.TaskGroup | None = None
        self._news = asyncio.Condition()

    # --- the service's own interface ---------------------------------------------------------

    async def run(self, spec: PoolSpec, work: Callable[[], Awaitable[None]]) -> None:
        """Keep the pool while ``work`` runs."""
        await self._begin(spec)
        async with asyncio.TaskGroup() as group:
            self._calls = group
            loops = [
                group.create_task(self._every(60.0, self._list_catalogs)),
                group.create_task(self._every(5.0, self._list_servers)),
                group.create_task(self._every(2.0, self._tick)),
            ]
            await work()
            for loop in loops:
                loop.cancel()

    async def assign(self, pool: PoolKey, claimant: str, deadline_s: int) -> AssignmentView:
        """A machine of the pool for somebody; waits until there is an answer."""
        request_id = str(uuid.uuid4())
        now_ms = self._clock.now_ms()
        await self._record(
            AssignmentRequested(
                at_ms=now_ms,
                request_id=request_id,
                pool=pool,
                claimant=claimant,
                deadline_ms=now_ms + deadline_s * 1000,
                origin="the desk",
            )
        )
        async with self._news:
            await self._news.wait_for(lambda: self._answer(request_id).state not in OPEN_STATES)
        return self._answer(request_id)

    async def until_full(self, pool: PoolKey) -> str:
        """Wait until the pool holds its minimum and all of it has booted; says how it stands."""

        def full() -> bool:
            view = pool_view(self._fleet.state, pool)
            return view is not None and view.capacity >= view.min_vm and not view.pending_jobs

        async with self._news:
            await self._news.wait_for(full)
        view = pool_view(self._fleet.state, pool)
        assert view is not None
        return f"{view.ready} ready, {view.attributed} assigned; {view.reason}: {view.message}"

    def _answer(self, request_id: str) -> AssignmentView:
        found = assignment_view(self._fleet.state, request_id)
        assert found is not None
        return found

    # --- observe, decide, append, dispatch ---------------------------------------------------

    async def _begin(self, spec: PoolSpec) -> None:
        """Say that a new run begins: what the last one left in flight is settled from there."""
        now_ms = self._clock.now_ms()
        if not self._fleet.position:
            await self._record(LogOpened(at_ms=now_ms, log_id=str(uuid.uuid4())))
        projects = await self._cloud.projects()
        settings = RunnerSettings(
            vm_project_id=projects.vm_project_id, infra_project_id=projects.infra_project_id
        )
        await self._record(
            RunnerStarted(
                at_ms=now_ms, epoch=str(uuid.uuid4()), version=__version__, settings=settings
            )
        )
        await self._record(PoolDeclared(at_ms=now_ms, spec=spec, origin="the desk"))

    async def _record(self, event: Event) -> None:
        """The one way by which anything happens; the order of these lines is the contract."""
        step = self._fleet.step(event)
        self._log.append(step)
        for command in step.commands:
            assert self._calls is not None, "nothing is commanded before the first tick"
            self._calls.create_task(self._carry_out(command))
        for anomaly in step.anomalies:
            print(f"  does not fit: {anomaly.subject}: {anomaly.text}")
        async with self._news:
            self._news.notify_all()

    async def _carry_out(self, command: Command) -> None:
        if not self._fleet.stands(command.command_id):
            return  # a pause or a hold came between the decision and now
        print(f"  {type(command).__name__}, because {command.reason.rule}: {command.reason.text}")
        ids = (command.command_id,)
        await self._record(CommandsDispatched(at_ms=self._clock.now_ms(), command_ids=ids))
        started_ms = self._clock.now_ms()
        answer = await self._call(command)
        await self._record(
            CallAnswered(
                at_ms=self._clock.now_ms(),
                command_id=command.command_id,
                started_ms=started_ms,
                http_status=answer.http_status,
                transport_error=answer.transport_error,
                error_kind=answer.error_kind,
                message=answer.message,
                retry_after_s=answer.retry_after_s,
                server_id=answer.server_id,
                server=answer.server,
                unmet=answer.unmet,
            )
        )

    async def _call(self, command: Command) -> Answer:
        if isinstance(command, FetchImage):
            await self._list_catalogs()
            return Answer(http_status=200)
        user_data = ""
        if isinstance(command, CreateServer):
            # without secrets (no config data, no admin key) nothing is looked up
            user_data = encoded_user_data(command.user_data, _no_secret)
        return await self._cloud.execute(command, user_data)

    # --- observing ---------------------------------------------------------------------------

    async def _every(self, seconds: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await action()
            await self._clock.sleep(seconds)

    async def _tick(self) -> None:
        await self._record(Ticked(at_ms=self._clock.now_ms()))

    async def _list_servers(self) -> None:
        started_ms = self._clock.now_ms()
        try:
            records = await self._cloud.list_servers()
        except ListingError as error:
            await self._record(
                ListingFailed(
                    at_ms=self._clock.now_ms(),
                    started_ms=started_ms,
                    what="servers",
                    message=error.message,
                    http_status=error.http_status,
                    transport_error=error.transport_error,
                )
            )
            return
        now_ms = self._clock.now_ms()
        await self._record(self._fleet.diff(records, started_ms=started_ms, at_ms=now_ms))

    async def _list_catalogs(self) -> None:
        """What a create refers to: images of both projects, flavors, networks."""
        state = self._fleet.state
        for project in (VM, INFRA):
            begun = self._clock.now_ms()
            images = await self._cloud.list_images(project)
            changed, gone = diff_catalog(
                [(image.image_id, image) for image in images], state.images.get(project, {})
            )
            await self._record(
                ImagesListed(
                    at_ms=self._clock.now_ms(),
                    project=project,
                    started_ms=begun,
                    total=len(images),
                    changed=changed,
                    gone=gone,
                )
            )
        begun = self._clock.now_ms()
        flavors = [(flavor.flavor_id, flavor) for flavor in await self._cloud.list_flavors(VM)]
        new_flavors, lost = diff_catalog(flavors, state.flavors)
        networks = [(net.network_id, net) for net in await self._cloud.list_networks(VM)]
        new_networks, left = diff_catalog(networks, state.networks)
        now_ms = self._clock.now_ms()
        await self._record(
            FlavorsListed(
                at_ms=now_ms, started_ms=begun, total=len(flavors), changed=new_flavors, gone=lost
            )
        )
        await self._record(
            NetworksListed(
                at_ms=now_ms, started_ms=begun, total=len(networks), changed=new_networks, gone=left
            )
        )


async def main(log_path: Path, speed: float) -> AssignmentView:
    """Fill a pool of three machines, and give one of them to Alice."""
    log = JsonLinesLog(log_path)
    fleet = log.fold()
    clock = FastClock(speed=speed)
    clock.begin_at(fleet.state.now_ms)
    cloud = Gateway(embedded_transport(fleet.state, clock), Deadlines())
    desk = Desk(log, fleet, cloud, clock)
    spec = PoolSpec(
        serverpool_id="course",
        user_id="school",
        min_vm=3,
        max_vm=5,
        image_ref="worker-image",
        flavor_ref="m1.tiny",
        networks=("lab-net",),
    )
    granted: list[AssignmentView] = []

    async def work() -> None:
        print("filling the pool")
        print(await desk.until_full(spec.key))
        print("a machine for Alice")
        granted.append(await desk.assign(spec.key, "alice", deadline_s=300))
        print(f"request {granted[0].state}: {granted[0].message}")
        print(granted[0].addresses)

    try:
        await desk.run(spec, work)
    finally:
        log.close()
    return granted[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--log", type=Path, default=Path("embed.jsonl"))
    parser.add_argument("--speed", type=float, default=60.0, help="of the simulated clock")
    options = parser.parse_args()
    asyncio.run(main(options.log, options.speed))
