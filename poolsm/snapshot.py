"""The state as bytes and back: a cache for fast opening, never the truth (C10)."""

from __future__ import annotations

from attrs import evolve, frozen

from poolsm.codec import decode, encode_ordered
from poolsm.kept import keep
from poolsm.members import Pool
from poolsm.spec import PoolSpec
from poolsm.state import State


@frozen
class _Image:
    """State without what is rebuilt, and with lists where JSON has no such keys."""

    state: State
    pools: list[Pool]
    removed: list[PoolSpec]


def encode_state(state: State) -> bytes:
    """JSON of the state. Mappings keep their order, so the restored fold goes on alike."""
    bare = evolve(
        state,
        pools={},
        removed={},
        words={},
        commons={},
        targets={},
        warm=[],
        by_server={},
        by_name={},
        creations=set(),
        waiting=set(),
        asked_of={},
        deadlines=[],
        anomalies=[],
        moves=[],
    )
    pools = [
        evolve(
            pool,
            members={},
            owned=0,
            unfit=0,
            leaving=set(),
            flying=set(),
            booting=set(),
            deleting_or_condemned=set(),
            tagging=set(),
            held=set(),
            signs=(),
            absent=set(),
        )
        for _, pool in sorted(state.pools.items())
    ]
    removed = [spec for _, spec in sorted(state.removed.items())]
    return encode_ordered(_Image(bare, pools, removed))


def decode_state(data: bytes) -> State:
    """The state that :func:`encode_state` wrote, with its indices."""
    image = decode(data, _Image)
    state = image.state
    state.pools = {pool.key: pool for pool in image.pools}
    state.removed = {spec.key: spec for spec in image.removed}
    for vm in state.vms.values():
        vm.rest()
        if vm.record is not None:
            vm.record = keep(state, vm, vm.record)
            vm.metadata = vm.record.metadata or vm.metadata
    state.rebuild_indices()
    return state
