"""A fleet of any size at rest, folded from events: what the benchmarks of state begin with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from uuid import UUID

from poolsm import Fleet, PoolSpec, RunnerSettings
from poolsm.commands import (
    ATTRIBUTED,
    CLAIMANT,
    COMMAND_ID,
    HOST,
    HOST_VALUE,
    LOG_ID,
    MAX_VM,
    MIN_VM,
    NETWORK_UUID,
    REQUEST_ID,
    SERVERPOOL_ID,
    USER_ID,
    Command,
    CreateServer,
)
from poolsm.events import (
    CallAnswered,
    CommandsDispatched,
    Event,
    FlavorsListed,
    ImagesListed,
    ListingCompleted,
    LogOpened,
    NetworksListed,
    PoolDeclared,
    RunnerStarted,
    Ticked,
)
from poolsm.records import FlavorRecord, ImageRecord, NetworkRecord, ServerRecord

BEGIN_MS = 1_794_214_800_000  # a Monday, 09:00 UTC
LOG = "6f1f0f0e-6a5e-4c0e-9d0c-0a1b2c3d4e5f"
IMAGE = "0b8f0a3e-52c1-4f0e-8a45-7f2f5c9d1e11"
FLAVOR = "m1.small"
NETWORK = "9a3c6d1e-0f5b-4d7a-b8a2-3c4d5e6f7a8b"
LISTING_S = 5
CREATIONS_LIMIT = 2_000


class BigFleet:
    """Pools of one size, filled by the fold's own commands, answered and listed.

    A third of the VMs is somebody's, one in ten of these by a request. Every record is made anew
    for each event, as it comes from a decoder: nothing is shared but what the fold shares.
    """

    def __init__(self, pools: int, size: int) -> None:
        self.fleet = Fleet()
        self.now_ms = BEGIN_MS
        self.chance = Random("big fleet")
        self.pools = pools
        self.size = size
        self._served = 0
        for event in self._opening():
            self.fleet.step(event)
        self.specs = [self._spec(n) for n in range(pools)]
        for spec in self.specs:
            self.fleet.step(PoolDeclared(at_ms=self.now_ms, spec=spec, origin="benchmark"))
        self.list_servers(())
        self._fill()

    def _opening(self) -> Iterator[Event]:
        at_ms = self.now_ms
        settings = RunnerSettings(
            vm_project_id="vm", infra_project_id="infra", creations_limit=CREATIONS_LIMIT
        )
        image = ImageRecord(IMAGE, "worker-image", "active", "private", "vm")
        yield LogOpened(at_ms=at_ms, log_id=LOG)
        yield RunnerStarted(at_ms=at_ms, epoch=str(self._uuid()), version="0", settings=settings)
        yield ImagesListed(at_ms=at_ms, project="vm", started_ms=at_ms, total=1, changed=(image,))
        yield ImagesListed(at_ms=at_ms, project="infra", started_ms=at_ms, total=0)
        flavor = FlavorRecord("2", FLAVOR, 1, 2048, 20)
        yield FlavorsListed(at_ms=at_ms, started_ms=at_ms, total=1, changed=(flavor,))
        network = NetworkRecord(NETWORK, "lab-net", "ACTIVE")
        yield NetworksListed(at_ms=at_ms, started_ms=at_ms, total=1, changed=(network,))

    def _spec(self, n: int) -> PoolSpec:
        return PoolSpec(
            serverpool_id=f"workshop-{n:04d}",
            user_id=f"teacher-{n % 97}",
            min_vm=self.size,
            max_vm=self.size + 10,
            image_ref="worker-image",
            flavor_ref=FLAVOR,
            networks=("lab-net",),
            key_name="lab-key",
        )

    def _fill(self) -> None:
        while True:
            commands = self.tick()
            if not commands:
                break
            records = []
            for command in commands:
                assert isinstance(command, CreateServer), command
                server_id = str(self._uuid())
                self._answer(command, server_id)
                records.append(self._record(command, server_id))
            self.list_servers(records)
        self.now_ms += 3_600_000  # all deadlines of the boots are past
        self.list_servers(())
        self.tick()

    def _answer(self, command: Command, server_id: str) -> None:
        at_ms = self.now_ms + 1
        ids = (str(UUID(command.command_id)),)
        self.fleet.step(CommandsDispatched(at_ms=at_ms, command_ids=ids))
        self.fleet.step(
            CallAnswered(
                at_ms=at_ms + 300,
                command_id=ids[0],
                started_ms=at_ms,
                http_status=202,
                server_id=server_id,
            )
        )

    def _record(self, command: CreateServer, server_id: str) -> ServerRecord:
        self._served += 1
        spec = self.fleet.state.pools[command.pool].spec
        metadata = {
            USER_ID: _anew(spec.user_id),
            SERVERPOOL_ID: _anew(spec.serverpool_id),
            MIN_VM: _anew(spec.min_vm),
            MAX_VM: _anew(spec.max_vm),
            HOST: _anew(HOST_VALUE),
            NETWORK_UUID: _anew(NETWORK),
            ATTRIBUTED: "false",
            LOG_ID: _anew(LOG),
            COMMAND_ID: _anew(command.command_id),
        }
        if self._served % 3 == 0:
            metadata[ATTRIBUTED] = "true"
            metadata[CLAIMANT] = f"student-{self._served}"
        if self._served % 30 == 0:
            metadata[REQUEST_ID] = f"request-{self._served}"
        n = self._served
        return ServerRecord(
            server_id=_anew(server_id),
            status="ACTIVE",
            name=_anew(command.name),
            metadata=metadata,
            image_id=_anew(IMAGE),
            flavor_id=_anew(FLAVOR),
            key_name="lab-key",
            addresses=(f"lab-net:10.{n >> 16}.{n >> 8 & 255}.{n & 255}",),
            created=f"2026-{n // 86400 % 12 + 1:02d}-03T{n // 3600 % 24:02d}:{n // 60 % 60:02d}:"
            f"{n % 60:02d}Z",
        )

    def _uuid(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128), version=4)

    def list_servers(self, changed: Iterable[ServerRecord]) -> None:
        """A complete listing that shows these differences."""
        self.now_ms += LISTING_S * 1000
        records = tuple(changed)
        self.fleet.step(
            ListingCompleted(
                at_ms=self.now_ms + 400, started_ms=self.now_ms, total=0, changed=records
            )
        )
        self.now_ms += 400

    def tick(self) -> tuple[Command, ...]:
        """Two seconds later."""
        self.now_ms += 2000
        return self.fleet.step(Ticked(at_ms=self.now_ms)).commands


def _anew(value: object) -> str:
    """An equal string that is another object."""
    return "".join(list(str(value)))
