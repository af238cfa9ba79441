"""Issuing a command: its id, and the marks that keep it from being issued twice (C3)."""

from __future__ import annotations

from collections.abc import Callable

from poolsm.commands import (
    ATTRIBUTED,
    CLAIMANT,
    REQUEST_ID,
    SERVERPOOL_ID,
    USER_ID,
    ClaimServer,
    Command,
    CreateServer,
    DeleteServer,
    FetchImage,
    FindServer,
    ServerCommand,
    StartServer,
    StopServer,
)
from poolsm.identity import command_id
from poolsm.members import BY_ASSIGNMENT, BY_SCHEDULE, BY_TRANSFER, Attribution, Op, Vm, Work
from poolsm.spec import PoolKey
from poolsm.state import State
from poolsm.vm import PENDING


def issue(state: State, draft: Command, position: int) -> Command:
    """Give a draft its id and note it as in flight; the draft's marks are set here alone."""
    state.issued += 1
    command = draft.with_id(command_id(state.log_id, state.epoch, position, state.issued))
    kind = type(command).__name__
    if isinstance(command, CreateServer):
        vm, fresh = _begin_creation(state, command), True
    elif isinstance(command, FetchImage):
        state.pools[command.pool].image_retry = "asked"
        state.ops[command.command_id] = Op(command.command_id, kind, command.pool, "", state.now_ms)
        return command
    else:
        assert isinstance(command, ServerCommand), kind
        vm = state.vms[state.by_server[command.server_id]]
        fresh = not vm.wanted
        begin = _MARKS.get(type(command))
        if begin is not None:
            begin(state, command, vm)
    vm.op = command.command_id
    state.ops[vm.op] = Op(vm.op, kind, vm.pool, vm.key, state.now_ms, fresh=fresh)
    state.pools[vm.pool].flying.add(vm.key)
    state.wake(vm.pool)
    return command


def _begin_creation(state: State, command: CreateServer) -> Vm:
    vm = Vm(
        key=command.command_id,
        pool=command.pool,
        state=PENDING,
        since_ms=state.now_ms,
        name=command.name,
        metadata=command.metadata,
        image_id=command.image_id,
        flavor_id=command.flavor_id,
        networks=command.networks,
        key_name=command.key_name,
        user_data=command.user_data,
        work=Work(booting=True),
    )
    state.enlist(vm)
    quota = state.quotas.get(command.flavor_id)
    if quota is not None:
        quota.probe = vm.key
    return vm


# Marks of one action; repeats are timed from here until the answer says better.


def _begin_deletion(state: State, _: Command, vm: Vm) -> None:
    vm.leaving = True
    vm.delete_attempts += 1
    vm.delete_after_ms = state.now_ms + state.settings.delete_repeat_s * 1000
    state.index(vm)


def _begin_switch(_: State, __: Command, vm: Vm) -> None:
    vm.power_attempts += 1
    vm.power_cause = BY_SCHEDULE


def _begin_lookup(state: State, _: Command, vm: Vm) -> None:
    vm.proof_after_ms = state.now_ms + state.settings.power_repeat_s * 1000
    state.wake_at(vm.pool, vm.proof_after_ms)


def _begin_claim(state: State, command: Command, vm: Vm) -> None:
    """A claim holds from the moment it is decided: nobody else is given this VM (I4)."""
    assert isinstance(command, ClaimServer)
    metadata = command.metadata
    repeat = bool(vm.wanted)
    vm.wanted = metadata
    if repeat:
        return
    target = PoolKey(
        metadata.get(SERVERPOOL_ID, vm.pool.serverpool_id), metadata.get(USER_ID, vm.pool.user_id)
    )
    request_id = metadata.get(REQUEST_ID, "")
    transfer = target != vm.pool
    if metadata[ATTRIBUTED] == "true":
        by = BY_ASSIGNMENT if request_id else BY_TRANSFER
        vm.attribution = Attribution(metadata.get(CLAIMANT, ""), by, request_id)
    else:
        vm.attribution = None
        state.pools[vm.pool].freed.discard(vm.key)
    if transfer:
        vm.drawn_from = vm.pool
        state.give_to(vm, target)
        vm.booting = True
        vm.wanted_name = f"{target.serverpool_id}-{command.command_id}"
    state.index(vm)
    if request_id:
        assignment = state.assignments[request_id]
        assignment.move("claim", "being claimed", state.now_ms)
        assignment.vm = vm.key
        assignment.server_id = vm.server_id


_MARKS: dict[type[Command], Callable[[State, Command, Vm], None]] = {
    DeleteServer: _begin_deletion,
    StopServer: _begin_switch,
    StartServer: _begin_switch,
    ClaimServer: _begin_claim,
    FindServer: _begin_lookup,
}
