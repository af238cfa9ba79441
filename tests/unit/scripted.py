"""A fleet driven by a script: each line is one event, and the log grows beside it."""

from __future__ import annotations

import attrs

from poolsm import Fleet, PoolKey, PoolSpec, RunnerSettings
from poolsm.commands import ClaimServer, CreateServer, DeleteServer, RenameServer, StartServer
from poolsm.commands import StopServer as Stop
from poolsm.events import (
    AssignmentRequested,
    CallAnswered,
    CommandsDispatched,
    FlavorsListed,
    ImagesListed,
    ListingFailed,
    LogOpened,
    NetworksListed,
    PoolDeclared,
    ReleaseRequested,
    RunnerStarted,
    Ticked,
)
from poolsm.records import FlavorRecord, ImageRecord, NetworkRecord, ServerRecord

LOG_ID = "6f1c9f5e-3c1b-4a55-9a0e-2b7f0a4c1d10"
EPOCH = "0d7c2c3e-91b4-4a5e-8f0c-64c1a0b7e8aa"
BEGIN_MS = 1_767_600_000_000  # Monday 2026-01-05 08:00 UTC
KEY = PoolKey("tp-1", "prof")


def spec(min_vm=2, max_vm=3, **more):
    return PoolSpec("tp-1", "prof", min_vm, max_vm, "ubuntu", "small", ("net",), **more)


class Script:
    """A fleet, a cloud that does what it is told at once, and the log of both."""

    def __init__(self):
        self.fleet = Fleet()
        self.entries = []
        self.now_ms = BEGIN_MS
        self.servers = {}
        self.todo = []
        self.made = 0

    def put(self, kind, **fields):
        step = self.fleet.step(kind(at_ms=self.now_ms, **fields))
        self.entries += step.entries
        self.todo += step.commands
        return step

    def open(self, **settings):
        self.put(LogOpened, log_id=LOG_ID, fleet_id="school")
        asked = RunnerSettings(vm_project_id="p-vm", infra_project_id="p-infra", **settings)
        self.put(RunnerStarted, epoch=EPOCH, version="1", settings=asked)
        image = ImageRecord("i-1", "ubuntu", "active", "private", "p-vm", "2026-01-01T00:00:00Z")
        now = {"started_ms": self.now_ms, "total": 1}
        self.put(ImagesListed, project="vm", changed=(image,), **now)
        self.put(ImagesListed, project="infra", **now)
        self.put(FlavorsListed, changed=(FlavorRecord("f-1", "small"),), **now)
        self.put(NetworksListed, changed=(NetworkRecord("n-1", "net"),), **now)
        return self

    def declare(self, **changes):
        self.put(PoolDeclared, spec=spec(**changes), origin="file pools.toml")

    def list(self):
        self.now_ms += 1000
        started_ms = self.now_ms - 500
        records = list(self.servers.values())
        event = self.fleet.diff(records, started_ms=started_ms, at_ms=self.now_ms)
        self.entries += (step := self.fleet.step(event)).entries
        return step

    def fail_listing(self, message):
        self.now_ms += 1000
        self.put(ListingFailed, started_ms=self.now_ms - 500, what="servers", message=message)

    def tick(self):
        self.now_ms += 2000
        return self.put(Ticked).commands

    def dispatch(self):
        todo, self.todo = self.todo, []
        self.now_ms += 10
        if todo:
            ids = tuple(command.command_id for command in todo)
            self.put(CommandsDispatched, command_ids=ids)
        return todo

    def run(self):
        """Send what is to be done; the cloud does it and says so."""
        for command in self.dispatch():
            self.answer(command)

    def answer(self, command, status=None, message="", **more):
        started_ms = self.now_ms
        self.now_ms += 40
        if status is None:
            status, more = self.carry_out(command)
        more.setdefault("error_kind", "" if status < 300 else "forbidden")
        self.put(
            CallAnswered,
            command_id=command.command_id,
            started_ms=started_ms,
            http_status=status,
            message=message,
            **more,
        )

    def carry_out(self, command):
        if isinstance(command, CreateServer):
            self.made += 1
            server_id = f"s-{self.made}"
            self.servers[server_id] = ServerRecord(
                server_id,
                "BUILD",
                name=command.name,
                metadata=command.metadata,
                image_id=command.image_id,
                flavor_id="small",
                created=f"2026-01-05T08:00:{self.made:02}Z",
            )
            return 202, {"server_id": server_id}
        if command.server_id not in self.servers:
            return 404, {"error_kind": "itemNotFound"}
        record = self.servers[command.server_id]
        if isinstance(command, DeleteServer):
            del self.servers[command.server_id]
            return 204, {}
        if isinstance(command, ClaimServer):
            tags = {**record.metadata, **command.metadata}
            self.change(command.server_id, metadata=tags)
        elif isinstance(command, RenameServer):
            self.change(command.server_id, name=command.name)
        elif isinstance(command, Stop | StartServer):
            self.change(
                command.server_id, status="SHUTOFF" if isinstance(command, Stop) else "ACTIVE"
            )
        return 200, {}

    def change(self, server_id, **fields):
        self.servers[server_id] = attrs.evolve(self.servers[server_id], **fields)

    def boot(self):
        """What is building becomes ACTIVE."""
        for server_id, record in self.servers.items():
            if record.status == "BUILD":
                self.change(server_id, status="ACTIVE", addresses=("net:10.0.0.1",))

    def round(self):
        """List, plan, carry out, boot, list."""
        self.list()
        self.tick()
        self.run()
        self.list()
        self.boot()
        self.list()
        self.tick()

    def wait(self, rounds):
        for _ in range(rounds):
            self.list()
            self.tick()

    def ask(self, request_id="req-1", claimant="alice", seconds=600):
        self.put(
            AssignmentRequested,
            request_id=request_id,
            pool=KEY,
            claimant=claimant,
            deadline_ms=self.now_ms + seconds * 1000,
            origin="call",
        )

    def release(self, target):
        self.put(ReleaseRequested, target=target, origin="command line")


def school_day():
    """Two VMs are built, one is assigned and given back, so it is deleted and replaced."""
    script = Script().open()
    script.declare()
    script.round()
    script.wait(20)
    script.ask()
    script.tick()
    script.run()
    script.wait(30)
    script.release("req-1")
    script.tick()
    script.run()
    script.wait(3)
    script.run()
    script.boot()
    script.wait(5)
    return script
