"""R4, R16: handing VMs out. One VM has one claimant (I4)."""

from __future__ import annotations

from poolsm.commands import (
    ATTRIBUTED,
    CLAIMANT,
    MAX_VM,
    MIN_VM,
    NETWORK_UUID,
    REQUEST_ID,
    SERVERPOOL_ID,
    USER_ID,
    ClaimServer,
    Command,
    Expectation,
    Reason,
    RenameServer,
)
from poolsm.members import BY_DECLARATION, UNPROVEN, Assignment, Pool, Target, Vm
from poolsm.requests import waiting_requests
from poolsm.spec import WARM_MATCHES
from poolsm.state import State
from poolsm.vm import ACTIVE, ERROR, SHUTOFF
from poolsm.words import has_address, is_free, is_off_day, is_parked, is_ready, pause_of, suspended

EXACT = WARM_MATCHES[0]


def grant(pool: Pool, state: State) -> list[Command]:
    """Give each waiting request a ready VM of the pool, oldest first (R16).

    On an off-day a parked one, left stopped. A VM is claimed in the cloud before the answer.
    """
    waiting = waiting_requests(state, pool.key)
    if not waiting or suspended(pool, state):
        return []
    ready = state.pool_vms(pool, ACTIVE, only=lambda vm: is_ready(vm, pool))
    if is_off_day(pool, state):
        ready += state.pool_vms(pool, SHUTOFF, only=is_parked)
    ready = [vm for vm in ready if _may_claim(vm, state)]
    return [
        ClaimServer(
            server_id=vm.server_id,
            expect=Expectation(pool.key, attributed=False),
            metadata=_granted_to(request),
            reason=Reason("R16 assignment", f"request {request.request_id}, {len(ready)} ready"),
        )
        for request, vm in zip(waiting, ready, strict=False)
    ]


def _granted_to(request: Assignment) -> dict[str, str]:
    return {
        ATTRIBUTED: "true",
        CLAIMANT: request.claimant,
        REQUEST_ID: request.request_id,
    }


def transfer(pool: Pool, warm: Pool, vm: Vm, request: Assignment | None, text: str) -> ClaimServer:
    """Draw a VM from a warm pool: membership and attribution in one metadata call (R4)."""
    owner = {ATTRIBUTED: "true", CLAIMANT: pool.spec.user_id}
    return ClaimServer(
        server_id=vm.server_id,
        expect=Expectation(warm.key, attributed=False),
        metadata={
            USER_ID: pool.spec.user_id,
            SERVERPOOL_ID: pool.spec.serverpool_id,
            MIN_VM: str(pool.spec.min_vm),
            MAX_VM: str(pool.spec.max_vm),
            **(_granted_to(request) if request else owner),
        },
        reason=Reason("R4 warm pool", text),
    )


def warm_candidates(pool: Pool, target: Target, state: State) -> list[tuple[Pool, Vm]]:
    """Ready VMs of warm pools that are what the pool would build now, oldest first (R4)."""
    found: list[tuple[Pool, Vm]] = []
    for warm in map(state.pools.__getitem__, state.warm):
        if warm is not pool and not suspended(warm, state):
            found += [
                (warm, vm)
                for vm in state.pool_vms(warm, ACTIVE, only=is_free)
                if has_address(vm, warm)
                and _may_claim(vm, state)
                and has_address(vm, pool)
                and _matches(vm, pool, target, state)
            ]
    return found


def _may_claim(vm: Vm, state: State) -> bool:
    """Not one of which a claim just failed, else each tick would claim it again in vain."""
    return state.now_ms >= vm.tag_after_ms


def _matches(vm: Vm, pool: Pool, target: Target, state: State) -> bool:
    """Same flavor, networks, key, image, and user-data unless hardware is enough."""
    flavor = vm.flavor_id or (vm.record.flavor_id if vm.record else "") or ""
    known = state.flavors.get(target.flavor_id)
    same_flavor = flavor == target.flavor_id or (known is not None and flavor == known.name)
    hardware = same_flavor and vm.image_id == target.image_id and vm.key_name == target.key_name
    if vm.networks is None:  # adopted: only its first network is known, from its metadata
        first = target.networks[0] if target.networks else ""
        hardware = hardware and vm.metadata.get(NETWORK_UUID, "") == first
    else:
        hardware = hardware and vm.networks == target.networks
    return hardware and (pool.spec.warm_match != EXACT or vm.user_data == target.user_data)


def tag(pool: Pool, state: State) -> list[Command]:
    """Repeat a claim until it is observed, then give the VM its pool's name (R4)."""
    if not pool.tagging or suspended(pool, state):
        return []
    drafts: list[Command] = []
    for vm in state.named(pool.tagging):
        waits = vm.op or vm.absences or vm.held or state.now_ms < vm.tag_after_ms
        if waits or not vm.server_id or _drawn_from_paused(vm, state):
            continue
        if vm.wanted and vm.state == ERROR:
            continue  # Nova would refuse it, until it is mended
        if vm.wanted:
            attributed = vm.wanted[ATTRIBUTED] == "true"
            unproven = not attributed and ATTRIBUTED not in vm.metadata
            expect = Expectation(
                vm.drawn_from or vm.pool, attributed=not attributed, unproven=unproven
            )
            drafts.append(
                ClaimServer(
                    server_id=vm.server_id,
                    expect=expect,
                    metadata=vm.wanted,
                    reason=_why_again(vm),
                )
            )
        elif vm.wanted_name and vm.name != vm.wanted_name:
            text = f"claimed, still named {vm.name}"
            drafts.append(
                RenameServer(
                    server_id=vm.server_id,
                    name=vm.wanted_name,
                    reason=Reason("R4 warm pool", text),
                )
            )
    return drafts


def _why_again(vm: Vm) -> Reason:
    held = vm.attribution
    if held is not None and held.by == BY_DECLARATION:
        text = f"declared to be {held.claimant}'s; its metadata says that it is free"
        return Reason("R11 start-up", text)
    return Reason("R4 warm pool", "the claim is not observed yet")


def _drawn_from_paused(vm: Vm, state: State) -> bool:
    """Whether the cloud may still show it in a warm pool that nobody is to touch."""
    warm = state.pools.get(vm.drawn_from) if vm.drawn_from is not None else None
    return warm is not None and pause_of(warm, state) is not None


def reuse(pool: Pool, state: State) -> list[Command]:
    """A released VM of a pool that reuses VMs becomes free again in the cloud (R16).

    And one whose metadata says nothing becomes free once that was declared of it (R11).
    """
    if not pool.freed or suspended(pool, state):
        return []
    drafts: list[Command] = []
    for vm in state.named(pool.freed):
        held = vm.attribution
        if held is None or vm.op or vm.wanted or vm.held or not vm.server_id:
            continue
        if held.by == UNPROVEN and vm.server_id in state.declared:
            drafts.append(
                ClaimServer(
                    server_id=vm.server_id,
                    expect=Expectation(pool.key, attributed=True, unproven=True),
                    metadata={ATTRIBUTED: "false"},
                    reason=Reason("R11 start-up", "declared free; its metadata says nothing"),
                )
            )
            continue
        drafts.append(
            ClaimServer(
                server_id=vm.server_id,
                expect=Expectation(pool.key, attributed=True, claimant=held.claimant),
                metadata={ATTRIBUTED: "false", CLAIMANT: "", REQUEST_ID: ""},
                reason=Reason("R16 release", f"given back by {held.claimant}; the pool reuses VMs"),
            )
        )
    return drafts
