"""A tick over a large fleet, at rest and in churn, against the same rules over every pool.

1,000 pools of 100 VMs. Before each tick a share of the VMs, drawn at random, shows a new record
in a listing: their task state comes or goes (a snapshot, a reboot), and one in twenty was
stopped by its user, so it has to be started. Folding that listing is not timed, the tick is. The
peer is the same tick with the same rules run over every pool, whether it changed or not.

    python benchmarks/tick.py [--pools 1000] [--size 100] [--light] [--json]
"""

from __future__ import annotations

import gc
import time
from contextlib import nullcontext
from statistics import median
from unittest.mock import patch

import measure
from attrs import evolve
from big_fleet import BigFleet

from poolsm.commands import Command, StartServer
from poolsm.events import CallAnswered, CommandsDispatched
from poolsm.members import Pool
from poolsm.records import ServerRecord
from poolsm.state import State

CHURN = 0.01
NEED_A_COMMAND = 20  # one in so many
ROUNDS = 15
AT_REST = 10  # ticks in a row, within the age that a listing may have


def timed_rest(big: BigFleet) -> float:
    """CPU seconds of one tick in which nothing is due."""
    big.list_servers(())
    began = time.process_time()
    for _ in range(AT_REST):
        assert not big.tick()
    return (time.process_time() - began) / AT_REST


def timed_tick(big: BigFleet, *, everywhere: bool) -> tuple[float, tuple[Command, ...]]:
    """CPU seconds of one tick; ``everywhere``: the rules are run over every pool."""
    state = big.fleet.state
    if everywhere:
        state.dirty.update(state.pools)
    with patch.object(State, "at_rest", never) if everywhere else nullcontext():
        began = time.process_time()
        commands = big.tick()
        return time.process_time() - began, commands


def never(_state: State, _pool: Pool) -> bool:
    """No pool is passed over for its counters."""
    return False


def churn(big: BigFleet, drawn: list[str]) -> None:
    """These servers' records change, or change back."""
    vms = big.fleet.state.vms
    changed: list[ServerRecord] = []
    for n, key in enumerate(drawn):
        record = vms[key].record
        assert record is not None
        if n % NEED_A_COMMAND == 0:
            changed.append(evolve(record, status="SHUTOFF", task_state=None))
        else:
            task_state = None if record.task_state else "image_snapshot"
            changed.append(evolve(record, task_state=task_state))
    big.list_servers(changed)


def calm(big: BigFleet, commands: tuple[Command, ...]) -> None:
    """The commands are carried out, and the fleet is at rest again."""
    at_ms = big.now_ms
    ids = tuple(command.command_id for command in commands)
    big.fleet.step(CommandsDispatched(at_ms=at_ms, command_ids=ids))
    started: list[ServerRecord] = []
    for command in commands:
        assert isinstance(command, StartServer), command
        big.fleet.step(
            CallAnswered(
                at_ms=at_ms + 1, command_id=command.command_id, started_ms=at_ms, http_status=202
            )
        )
        state = big.fleet.state
        record = state.vms[state.by_server[command.server_id]].record
        assert record is not None
        started.append(evolve(record, status="ACTIVE"))
    big.list_servers(started)
    while big.fleet.state.dirty or big.fleet.state.touched:
        assert not big.tick()


def measured(pools: int, size: int) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds of each kind of tick, and what it was about, as medians."""
    big = BigFleet(pools, size)
    while big.fleet.state.dirty or big.fleet.state.touched:
        assert not big.tick()
    gc.freeze()
    keys = sorted(big.fleet.state.vms)
    count = round(len(keys) * CHURN)
    times: dict[str, list[float]] = {}
    about: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        times.setdefault("at rest", []).append(timed_rest(big) * 1000)
        for kind, changes, everywhere in (
            ("1 % churn", count, False),
            ("every pool, at rest", 0, True),
            ("every pool, 1 % churn", count, True),
        ):
            churn(big, big.chance.sample(keys, changes))
            woken = len(big.fleet.state.dirty)
            spent, commands = timed_tick(big, everywhere=everywhere)
            times.setdefault(kind, []).append(spent * 1000)
            if changes:
                about.setdefault("pools with a change", []).append(woken)
                about.setdefault("commands", []).append(len(commands))
                calm(big, commands)
    return (
        {name: median(values) for name, values in times.items()},
        {name: median(values) for name, values in about.items()},
    )


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--pools", type=int, help="1,000; 100 if light")
    parser.add_argument("--size", type=int, default=100, help="VMs in each")
    options = parser.parse_args()
    pools = options.pools or (100 if options.light else 1000)
    times, about = measured(pools, options.size)
    peer = times["every pool, at rest"]
    rest, busy = times["at rest"] / peer, times["1 % churn"] / times["every pool, 1 % churn"]
    measure.finish(
        options,
        f"A tick over {pools:,} pools and {pools * options.size:,} VMs",
        {
            "CPU time, median": (
                ("tick", "ms", "of every pool at rest"),
                [(name, ms, ms / peer) for name, ms in times.items()],
            ),
            "churn": (("what", "median"), list(about.items())),
        },
        [
            measure.Figure("at rest / every pool", rest, 1 / 500, 1 / 25, less_is_better=True),
            measure.Figure("1 % churn / every pool", busy, 1 / 10, 2 / 3, less_is_better=True),
        ],
    )


if __name__ == "__main__":
    main()
