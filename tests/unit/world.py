"""A fleet, a cloud of dicts and a clock of integers: the core driven to the end without I/O.

    w = World()
    w.declare("tp", min_vm=2)
    w.run(60)
    assert w.counts("tp") == {"ACTIVE": 2}

Time is virtual. Ticks come every 2 s, listings every 5 s, calls take a second. Whatever the
cloud is to do differently is said before: ``w.answer(...)`` for answers, ``w.cloud`` for
servers, ``w.listings`` for what listings do. :meth:`World.verify` folds what was stored anew
(I8) and from snapshots (C10), and is called for every world of a test by the fixture.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

import pytest
from attrs import Factory, define, evolve

from poolsm import Fleet, PoolKey, PoolSpec, RunnerSettings, Step, diff_catalog
from poolsm.commands import (
    ATTRIBUTED,
    COMMAND_ID,
    LOG_ID,
    SERVERPOOL_ID,
    USER_ID,
    ClaimServer,
    Command,
    CreateServer,
    DeleteServer,
    FetchImage,
    FindServer,
    RebuildServer,
    RenameServer,
    StartServer,
    StopServer,
)
from poolsm.entries import Entry
from poolsm.events import (
    AssignmentRequested,
    CallAnswered,
    ClockStepped,
    CommandsDispatched,
    Event,
    FlavorsListed,
    ImagesListed,
    ListingCompleted,
    ListingFailed,
    LogOpened,
    NetworksListed,
    PoolDeclared,
    PoolRemovalRequested,
    ReleaseRequested,
    RunnerStarted,
    RunnerStopped,
    Ticked,
    ZoneRulesLoaded,
)
from poolsm.expect import ALREADY, GO, verdict
from poolsm.members import Anomaly, Assignment, Pool, Vm
from poolsm.records import FlavorRecord, ImageRecord, NetworkRecord, ServerRecord
from poolsm.snapshot import encode_state

MONDAY = datetime(2026, 1, 5, 8, tzinfo=UTC)
LOG = "11111111-1111-4111-8111-111111111111"
NAMESPACE = UUID(LOG)

IMAGE = ImageRecord("img-1", "ubuntu", "active", "private", "p-vm", "2026-01-01T00:00:00Z")
FLAVORS = (FlavorRecord("f-1", "small"), FlavorRecord("f-2", "large"))
NETWORKS = (NetworkRecord("n-1", "lan"), NetworkRecord("n-2", "wan"))

KINDS = {
    400: "badRequest",
    403: "forbidden",
    404: "itemNotFound",
    409: "conflictingRequest",
    413: "overLimit",
    429: "overLimit",
    503: "",
}
QUOTA = "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances"
TIMEOUT = {"transport_error": "timeout"}


def ms(at: datetime) -> int:
    return int(at.timestamp()) * 1000


def refusal(status: int, message: str = "", **more: object) -> dict[str, object]:
    return {
        "http_status": status,
        "error_kind": KINDS.get(status, ""),
        "message": message,
        **more,
    }


def zone_rules(zone: str, at_ms: int, *, days: int = 800) -> ZoneRulesLoaded:
    """A zone's offsets around an instant, hour by hour from ``zoneinfo``."""
    info = ZoneInfo(zone)
    start = datetime.fromtimestamp(at_ms // 1000, UTC).replace(minute=0) - timedelta(days=30)
    rows: list[tuple[int, int]] = []
    for half_hour in range(days * 48):
        moment = start + timedelta(minutes=30 * half_hour)
        offset = moment.astimezone(info).utcoffset()
        assert offset is not None
        if not rows or rows[-1][1] != int(offset.total_seconds()):
            rows.append((ms(moment), int(offset.total_seconds())))
    return ZoneRulesLoaded(at_ms=at_ms, zone=zone, tzdata_version="test", offsets=tuple(rows))


@define
class Server:
    """One server of the fake cloud."""

    server_id: str
    name: str
    status: str = "BUILD"
    task_state: str | None = None
    metadata: dict[str, str] = Factory(dict)
    image_id: str = ""
    flavor_id: str = ""
    key_name: str | None = None
    networks: tuple[str, ...] = ()
    created: str = ""
    fault: str | None = None
    blank: bool = False  # shown as a cell that is down shows it
    hidden: bool = False  # exists, but no listing and no lookup shows it
    unlisted: bool = False  # exists, but no listing shows it

    def record(self) -> ServerRecord:
        if self.blank:
            return ServerRecord(self.server_id, "UNKNOWN", created=self.created)
        shown = self.status not in ("BUILD", "ERROR")
        return ServerRecord(
            server_id=self.server_id,
            status=self.status,
            name=self.name,
            task_state=self.task_state,
            metadata=dict(self.metadata),
            image_id=self.image_id,
            flavor_id=self.flavor_id,
            key_name=self.key_name,
            addresses=tuple(f"{net}:10.0.0.1" for net in self.networks) if shown else (),
            created=self.created,
            fault=self.fault,
        )


@define
class Scripted:
    """What the cloud answers to the next calls of one kind, instead of what it would."""

    kind: type[Command]
    answer: dict[str, object]
    times: int | None
    done: bool  # carried out all the same
    later_s: float  # after how long the answer comes


class Cloud:
    """Servers by id, and what they do with time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.servers: dict[str, Server] = {}
        self.made = Counter[str]()  # servers by create command
        self.boot_s = 20.0
        self.switch_s = 4.0
        self.delete_s = 3.0
        self.boot = "ACTIVE"  # ACTIVE, hang, or the fault of an ERROR
        self.deletes_work = True
        self.quota: int | None = None
        self.deaf = False  # 404 to everything that is asked by id

    def find(self, server_id: str) -> Server | None:
        found = self.servers.get(server_id)
        return None if found is None or found.hidden or self.deaf else found

    def listed(self) -> list[ServerRecord]:
        shown = (s for s in self.servers.values() if not s.hidden and not s.unlisted)
        return [server.record() for server in shown]

    def add(
        self, name: str, key: PoolKey | None, *, status: str = "ACTIVE", **more: object
    ) -> Server:
        """A server that somebody made: ours from an earlier log, a stranger's ..."""
        number = len(self.servers) + self.made.total() + 1
        tags = {SERVERPOOL_ID: key[0], USER_ID: key[1], ATTRIBUTED: "false"} if key else {}
        tags.update(more.pop("tags", {}))  # type: ignore[call-overload]
        values: dict[str, object] = {
            "metadata": {k: v for k, v in tags.items() if v is not None},
            "image_id": "img-1",
            "flavor_id": "f-1",
            "created": self.world.stamp(),
            **more,
        }
        server = Server(str(uuid5(NAMESPACE, f"server {number} {name}")), name, status, **values)
        self.servers[server.server_id] = server
        return server

    def execute(self, command: Command) -> dict[str, object]:
        if isinstance(command, CreateServer):
            return self._create(command)
        if isinstance(command, FetchImage):
            self.world.list_images()
            return {"http_status": 200}
        server = self.find(command.server_id)
        if server is None:
            return refusal(404, f"Instance {command.server_id} could not be found.")
        if isinstance(command, FindServer):
            return {
                "http_status": 200,
                "server_id": server.server_id,
                "server": server.record(),
            }
        said = verdict(command, server.record())
        if said not in (GO, ALREADY):
            return {"unmet": said, "server": server.record()}
        if said == ALREADY:
            return {"http_status": 200, "server": server.record()}
        return getattr(self, f"_{type(command).__name__}")(server, command)

    def _create(self, command: CreateServer) -> dict[str, object]:
        known = {image.image_id for image in self.world.images["vm"] if image.status == "active"}
        if command.image_id not in known:
            return refusal(400, "Can not find requested image")
        if self.quota is not None and len(self.servers) >= self.quota:
            return refusal(403, QUOTA)
        self.made[command.command_id] += 1
        server = self.add(
            command.name,
            None,
            status="BUILD",
            tags=command.metadata,
            image_id=command.image_id,
            flavor_id=command.flavor_id,
            key_name=command.key_name,
            networks=command.networks,
        )
        if self.boot != "hang":
            self.world.later(self.boot_s, lambda: self._booted(server, self.boot))
        return {"http_status": 202, "server_id": server.server_id}

    def _booted(self, server: Server, how: str) -> None:
        if server.status == "BUILD":
            server.status = "ACTIVE" if how == "ACTIVE" else "ERROR"
            server.fault = None if how == "ACTIVE" else how

    def _DeleteServer(self, server: Server, command: DeleteServer) -> dict[str, object]:  # noqa: N802
        if self.deletes_work:
            server.task_state = "deleting"
            self.world.later(self.delete_s, lambda: self.servers.pop(server.server_id, None))
        return {"http_status": 204}

    def _ClaimServer(self, server: Server, command: ClaimServer) -> dict[str, object]:  # noqa: N802
        if server.status == "ERROR":
            return refusal(
                409, "Cannot 'update metadata' instance 1 while it is in vm_state error."
            )
        server.metadata = {**server.metadata, **command.metadata}
        return {"http_status": 200}

    def _RenameServer(self, server: Server, command: RenameServer) -> dict[str, object]:  # noqa: N802
        server.name = command.name
        return {"http_status": 200}

    def _RebuildServer(self, server: Server, command: RebuildServer) -> dict[str, object]:  # noqa: N802
        server.status, server.image_id, server.name = "REBUILD", command.image_id, command.name
        self.world.later(self.boot_s, lambda: setattr(server, "status", "ACTIVE"))
        return {"http_status": 202}

    def _StopServer(self, server: Server, command: StopServer) -> dict[str, object]:  # noqa: N802
        return self._switch(server, "stop", "SHUTOFF", "stopped", "powering-off")

    def _StartServer(self, server: Server, command: StartServer) -> dict[str, object]:  # noqa: N802
        return self._switch(server, "start", "ACTIVE", "active", "powering-on")

    def _switch(
        self, server: Server, verb: str, end: str, nova: str, task: str
    ) -> dict[str, object]:
        if server.status == end or server.task_state is not None:
            text = f"Cannot '{verb}' instance {server.server_id} while it is in vm_state {nova}"
            return refusal(409, text if server.status == end else "task_state " + task)
        server.task_state = task

        def switched() -> None:
            server.status, server.task_state = end, None

        self.world.later(self.switch_s, switched)
        return {"http_status": 202}


class World:
    """One fleet and its cloud."""

    def __init__(
        self,
        *,
        at: datetime = MONDAY,
        images: tuple[ImageRecord, ...] = (IMAGE,),
        infra: tuple[ImageRecord, ...] | None = None,
        catalogs: bool = True,
        after_step: Callable[[World, Step], None] | None = None,
        **settings: object,
    ) -> None:
        values: dict[str, object] = {"vm_project_id": "p-vm", **settings}
        if infra is not None:
            values.setdefault("infra_project_id", "p-infra")
        self.settings = RunnerSettings(**values)  # type: ignore[arg-type]
        self.now_ms = ms(at)
        self.images = {"vm": images, **({"infra": infra} if infra is not None else {})}
        self.fleet = Fleet()
        self.cloud = Cloud(self)
        self.entries: list[Entry] = []
        self.commands: list[tuple[int, Command]] = []
        self.anomalies: list[Anomaly] = []
        self.listings = "complete"  # or: failing, paused
        self.ticking = True
        self.pace = 1  # how many times rarer than usual ticks and listings come
        self.holding = False  # commands are decided, but no runner sends them
        self.listing_takes_s = 0.5
        self.call_takes_s = 1.0
        self.after_step = after_step
        self._scripts: list[Scripted] = []
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._epochs = 0
        self.feed(LogOpened(at_ms=self.now_ms, log_id=LOG))
        self.start_runner()
        self.load_zone(self.settings.time_zone)
        if catalogs:
            self.list_images()
            self.list_catalogs()
        self._agenda_every(2.0, self._tick)
        self._agenda_every(5.0, self.list_servers)

    # --- time ----------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.run_until(lambda: False, limit_s=seconds, demand=False)

    def run_until(
        self, done: Callable[[], bool], *, limit_s: float = 3600, demand: bool = True
    ) -> None:
        """Let time pass until something holds."""
        end_ms = self.now_ms + int(limit_s * 1000)
        while not done():
            if not self._agenda or self._agenda[0][0] > end_ms:
                self.now_ms = end_ms
                assert not demand, f"not within {limit_s} s"
                return
            at_ms, _, action = heappop(self._agenda)
            self.now_ms = max(self.now_ms, at_ms)
            action()

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        self._count += 1

        def act() -> None:
            action()

        heappush(self._agenda, (self.now_ms + int(seconds * 1000), self._count, act))

    def _agenda_every(self, seconds: float, action: Callable[[], object]) -> None:
        def again() -> None:
            action()
            self.later(seconds * self.pace, again)

        self.later(seconds, again)

    def stamp(self) -> str:
        at = datetime.fromtimestamp(self.now_ms // 1000, UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    def step_clock(self, seconds: float) -> None:
        """The wall clock is set; what is on the agenda happens as late as it would have."""
        by_ms = int(seconds * 1000)
        self.now_ms += by_ms
        self._agenda = [(at_ms + by_ms, n, action) for at_ms, n, action in self._agenda]
        self.feed(ClockStepped(at_ms=self.now_ms, by_ms=by_ms))

    # --- events --------------------------------------------------------------------------

    def feed(self, event: Event) -> Step:
        """Fold one event, keep what a log would, and set the cloud to work."""
        step = self.fleet.step(event)
        self.entries += step.entries
        self.anomalies += step.anomalies
        for command in step.commands:
            self.commands.append((self.now_ms, command))
            self._dispatch(command)
        if self.after_step is not None:
            self.after_step(self, step)
        return step

    def start_runner(self) -> None:
        """A runner takes over; the answers of the last one's calls are lost."""
        self._epochs += 1
        epoch = str(uuid5(NAMESPACE, f"epoch {self._epochs}"))
        self.feed(
            RunnerStarted(at_ms=self.now_ms, epoch=epoch, version="test", settings=self.settings)
        )

    def load_zone(self, zone: str) -> None:
        if zone == "UTC":
            rules = ZoneRulesLoaded(
                at_ms=self.now_ms, zone=zone, tzdata_version="test", offsets=((0, 0),)
            )
        else:
            rules = zone_rules(zone, self.now_ms)
        self.feed(rules)

    def _tick(self) -> None:
        if self.ticking:
            self.feed(Ticked(at_ms=self.now_ms))

    def list_servers(self) -> None:
        """Begin a listing; it shows what there is now and is known a moment later."""
        started_ms, mode = self.now_ms, self.listings
        if mode == "paused":
            return
        if mode == "failing":
            self.feed(
                ListingFailed(
                    at_ms=self.now_ms,
                    started_ms=started_ms,
                    what="servers",
                    message="502 Bad Gateway",
                )
            )
            return
        records = self.cloud.listed()

        def listed() -> None:
            self.feed(self.fleet.diff(records, started_ms=started_ms, at_ms=self.now_ms))

        if self.listing_takes_s:
            self.later(self.listing_takes_s, listed)
        else:
            listed()

    def listing(self, started_ms: int, *records: ServerRecord) -> ListingCompleted:
        """A listing as a test wants it, folded now."""
        event = self.fleet.diff(records, started_ms=started_ms, at_ms=self.now_ms)
        assert isinstance(event, ListingCompleted)
        self.feed(event)
        return event

    def list_images(self) -> None:
        for project, images in self.images.items():
            known = self.fleet.state.images.get(project, {})
            changed, gone = diff_catalog([(i.image_id, i) for i in images], known)
            self.feed(
                ImagesListed(
                    at_ms=self.now_ms,
                    started_ms=self.now_ms,
                    project=project,
                    total=len(images),
                    changed=changed,
                    gone=gone,
                )
            )

    def list_catalogs(self) -> None:
        self.feed(
            FlavorsListed(
                at_ms=self.now_ms, started_ms=self.now_ms, total=len(FLAVORS), changed=FLAVORS
            )
        )
        self.feed(
            NetworksListed(
                at_ms=self.now_ms, started_ms=self.now_ms, total=len(NETWORKS), changed=NETWORKS
            )
        )

    # --- calls ---------------------------------------------------------------------------

    def answer(
        self,
        kind: type[Command],
        answer: dict[str, object],
        *,
        times: int | None = 1,
        done: bool = False,
        later_s: float = 0,
    ) -> None:
        """Answer the next calls of a kind so; ``done``: they are carried out all the same."""
        self._scripts.append(Scripted(kind, answer, times, done, later_s))

    def behave(self) -> None:
        """All faults end."""
        self._scripts.clear()
        self.listings, self.holding, self.ticking = "complete", False, True
        cloud = self.cloud
        cloud.boot, cloud.deletes_work, cloud.quota, cloud.deaf = "ACTIVE", True, None, False
        for server in cloud.servers.values():
            server.blank = server.hidden = server.unlisted = False

    def _dispatch(self, command: Command) -> None:
        if self.holding:
            return
        epoch = self._epochs
        self.later(0, lambda: self._send(command, epoch))

    def _send(self, command: Command, epoch: int) -> None:
        if epoch != self._epochs or not self.fleet.stands(command.command_id):
            return
        started_ms = self.now_ms
        self.feed(CommandsDispatched(at_ms=started_ms, command_ids=(command.command_id,)))
        script = next((s for s in self._scripts if isinstance(command, s.kind)), None)
        takes_s = self.call_takes_s + (script.later_s if script else 0)
        if script is not None and script.times is not None:
            script.times -= 1
            if script.times == 0:
                self._scripts.remove(script)

        def act() -> None:
            answer = {} if script and not script.done else self.cloud.execute(command)
            answer = script.answer if script else answer
            self.later(takes_s / 2, lambda: self._answered(command, epoch, started_ms, answer))

        self.later(takes_s / 2, act)

    def _answered(
        self, command: Command, epoch: int, started_ms: int, answer: dict[str, object]
    ) -> None:
        if epoch == self._epochs:
            self.feed(
                CallAnswered(
                    at_ms=self.now_ms,
                    command_id=command.command_id,
                    started_ms=started_ms,
                    **answer,  # type: ignore[arg-type]
                )
            )

    def crash(self) -> None:
        """The runner dies: the core is rebuilt from the log, a new runner takes it over."""
        fleet = Fleet()
        for entry in self.entries:
            fleet.step(entry.event)
        self.fleet = fleet
        self.start_runner()

    # --- what people ask for -------------------------------------------------------------

    def declare(self, name: str, min_vm: int = 0, max_vm: int = 0, **more: object) -> PoolKey:
        values: dict[str, object] = {
            "user_id": "prof",
            "image_ref": "ubuntu",
            "flavor_ref": "small",
            **more,
        }
        spec = PoolSpec(name, min_vm=min_vm, max_vm=max_vm, **values)  # type: ignore[arg-type]
        self.feed(PoolDeclared(at_ms=self.now_ms, spec=spec, origin="test"))
        return spec.key

    def change(self, name: str, **more: object) -> None:
        """Declare a pool again with some of its spec changed."""
        spec = evolve(self.pool(name).spec, **more)
        self.feed(PoolDeclared(at_ms=self.now_ms, spec=spec, origin="test"))

    def remove(self, name: str, *, include_assigned: bool = False) -> None:
        self.feed(
            PoolRemovalRequested(
                at_ms=self.now_ms,
                pool=self.pool(name).key,
                include_assigned=include_assigned,
                origin="test",
            )
        )

    def ask(
        self, request_id: str, name: str, *, claimant: str = "ann", within_s: float = 600
    ) -> Assignment:
        key = next((k for k in self.fleet.state.pools if k[0] == name), PoolKey(name, "prof"))
        self.feed(
            AssignmentRequested(
                at_ms=self.now_ms,
                request_id=request_id,
                pool=key,
                claimant=claimant,
                deadline_ms=self.now_ms + int(within_s * 1000),
                origin="test",
            )
        )
        return self.fleet.state.assignments[request_id]

    def release(self, target: str) -> None:
        self.feed(ReleaseRequested(at_ms=self.now_ms, target=target, origin="test"))

    # --- what there is -------------------------------------------------------------------

    def pool(self, name: str) -> Pool:
        return next(pool for key, pool in self.fleet.state.pools.items() if key[0] == name)

    def vms(self, name: str) -> list[Vm]:
        return self.fleet.state.all_vms(self.pool(name))

    def servers(self, name: str) -> list[Server]:
        """The cloud's servers of a pool, oldest first."""
        found = (s for s in self.cloud.servers.values() if s.metadata.get(SERVERPOOL_ID) == name)
        return sorted(found, key=lambda s: (s.created, s.server_id))

    def counts(self, name: str) -> dict[str, int]:
        return dict(Counter(vm.state for vm in self.vms(name)))

    def reason(self, name: str) -> str:
        """Why the pool is at n of m."""
        return self.pool(name).conditions["Provisioned"].reason

    def issued(self, kind: type[Command], *, since_ms: int = 0) -> list[Command]:
        return [c for at_ms, c in self.commands if isinstance(c, kind) and at_ms >= since_ms]

    def times(self, kind: type[Command]) -> list[int]:
        """When commands of a kind were issued, in ms."""
        return [at_ms for at_ms, command in self.commands if isinstance(command, kind)]

    def anomaly_kinds(self) -> set[str]:
        return {anomaly.kind for anomaly in self.anomalies}

    # --- the log -------------------------------------------------------------------------

    def verify(self) -> None:
        """What was stored, folded anew, gives the same commands and the same state."""
        self.feed(RunnerStopped(at_ms=self.now_ms, why="end of the story"))
        expected = encode_state(self.fleet.state)
        chance = random.Random(len(self.entries))
        cuts = {chance.randrange(len(self.entries)) for _ in range(3)}
        fold, restored = Fleet(), list[Fleet]()
        for n, entry in enumerate(self.entries):
            for fleet in (fold, *restored):
                step = fleet.step(entry.event)
                assert step.entries == (entry,), f"entry {entry.position} is not what was stored"
            if n in cuts:
                data = fold.snapshot()
                assert data is not None
                restored.append(Fleet.restore(data))
        for fleet in (fold, *restored):
            assert encode_state(fleet.state) == expected

    def tags(self, key: PoolKey, **more: str) -> dict[str, str]:
        return {
            SERVERPOOL_ID: key[0],
            USER_ID: key[1],
            ATTRIBUTED: "false",
            LOG_ID: LOG,
            COMMAND_ID: "",
            **more,
        }


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    """Makes worlds, and verifies each of them at the end of the test."""
    made: list[World] = []

    def make(**more: object) -> World:
        from tests.properties.invariants import check_step  # noqa: PLC0415

        made.append(World(after_step=check_step, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.verify()
