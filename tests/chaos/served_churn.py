"""kill -9 on the served cloud while everything is always under way.

Five pools whose declarations alternate, one of them coming and going, one sleeping and waking;
people who ask for VMs and give them back. So creates, deletes, claims, renames, stops and starts
are in flight whenever the runner dies.
"""

import random
from pathlib import Path

from attrs import frozen

from poolsm_runners.control_requests import Assign, Release, Remove
from poolsm_runners.operations import RefusedError
from tests.chaos import replaying
from tests.chaos.killing import Rampage, Wanted, rampage, reckon, recover
from tests.chaos.sides import ServedSide
from tests.integration.running import RunnerProcess, pool_file
from tests.integration.served import INFRA, VM, ServedCloud, serving

WEEK = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
# The loop in a tenth of its time, so that 500 lives take minutes. A create that may have been
# sent is still waited for longer than it can take.
QUICK = {
    "options": {"tick_every_s": 0.3, "list_every_s": 0.6, "catalogs_every_s": 5.0},
    "settings": {
        "settle_time_s": 15,
        "delete_repeat_s": 10,
        "power_repeat_s": 8,
        "backoff_first_s": 1,
        "backoff_limit_s": 4,
        "breaker_pause_s": 5,
    },
    "deadlines": {"create_s": 10.0, "write_s": 8.0, "read_s": 5.0, "list_s": 10.0},
}
COMMON = {"image": "worker-image", "networks": ["lab-net"], "key_name": "lab-key"}


class Churn:
    """The orders that a seed gives, life after life."""

    def __init__(self, runner: RunnerProcess, folder: Path, seed: int) -> None:
        self._runner = runner
        self._file = folder / "pools.toml"
        self._chance = random.Random(f"churn {seed}")
        self._asked = 0
        self._lecture = 0
        self.released: set[str] = set()

    def before(self, number: int) -> None:
        """Every other declaration is made while no runner runs."""
        if number % 2 == 0:
            self._declare(number)

    def during(self, number: int) -> None:
        """And what is asked of a runner may find it dead half way."""
        if number % 2:
            self._declare(number)
        for _ in range(self._chance.randint(0, 3)):
            self._asked += 1
            pool = self._chance.choice(("alice/drawn", "carol/lecture", "bob/built"))
            request = Assign(pool, f"request-{self._asked}", f"student-{self._asked}", 30.0)
            self._runner.try_to_ask(request)
        if number % 3 == 2 and self._runner.running:
            self._release_some()

    def calm(self) -> tuple[Wanted, ...]:
        """The last declaration, which stays."""
        self._write(drawn=4, built=(4, 8), sleepy=[], come=True)
        self._runner.apply(self._file)
        return (
            Wanted("pool_vms", 5),
            Wanted("drawn", 4, 60),
            Wanted("built", 4, 8),
            Wanted("sleepy", 3, 6),
            Wanted("lecture", 2, 40),
        )

    def _declare(self, number: int) -> None:
        chance = self._chance
        least = chance.randint(1, 7)
        come = number % 6 < 4
        self._write(
            drawn=chance.randint(2, 6),
            built=(least, least + chance.randint(0, 2)),
            sleepy=WEEK if chance.random() < 0.5 else [],
            come=come,
        )
        self._runner.apply(self._file)
        if not come:
            try:
                self._runner.ask(Remove("carol/lecture", include_assigned=False))
            except RefusedError:
                return  # somebody has a VM of it, or it is gone already

    def _write(self, *, drawn: int, built: tuple[int, int], sleepy: list[str], come: bool) -> None:
        medium = {**COMMON, "flavor": "m1.medium"}
        small = {**COMMON, "flavor": "m1.small"}
        pools: list[dict[str, object]] = [
            {"id": "pool_vms", "user": "admin", "min_vm": 5, "flavor": "m1.tiny", **COMMON},
            {"id": "drawn", "user": "alice", "min_vm": drawn, "max_vm": 60, "flavor": "m1.tiny",
             **COMMON},
            {"id": "built", "user": "bob", "min_vm": built[0], "max_vm": built[1], **medium},
            {"id": "sleepy", "user": "dave", "min_vm": 3, "max_vm": 6, "off_days": sleepy,
             **small},
        ]  # fmt: skip
        if come:
            pools.append({"id": "lecture", "user": "carol", "min_vm": 2, "max_vm": 40, **small})
        pool_file(self._file, *pools)

    def _release_some(self) -> None:
        taken = [vm for vm in self._vms() if vm[1]]
        for server_id, _ in self._chance.sample(taken, min(3, len(taken))):
            self.released.add(server_id)
            self._runner.try_to_ask(Release(server_id))

    def _vms(self) -> list[tuple[str, bool]]:
        found = [vm for vm in self._runner.vms() if vm.server_id]
        return sorted((vm.server_id, vm.attributed) for vm in found)


@frozen
class Outcome:
    """Figures of one whole run."""

    rampage: Rampage
    to_rest_s: float
    reckoning: str
    replayed: replaying.Replayed
    edits: tuple[str, ...]

    def __str__(self) -> str:
        """Lines to report."""
        return "\n".join(
            (
                str(self.rampage),
                f"start of the last runner to rest: {self.to_rest_s:.1f} s",
                self.reckoning,
                (
                    f"replay: {self.replayed.events} events and {self.replayed.commands} "
                    f"commands, no difference under hash seeds {replaying.HASH_SEEDS}"
                ),
                *(f"edited log: {edit}" for edit in self.edits),
            )
        )


def run(folder: Path, kills: int, seed: int, *, speed: float, longest_s: float = 1.2) -> Outcome:
    """The whole of it; raises AssertionError for what does not hold."""
    options = ("--seed", str(seed), "--speed", str(speed))
    with serving(folder / "cloud", options=options) as cloud:
        return _run(folder, cloud, kills, seed, longest_s)


def _run(folder: Path, cloud: ServedCloud, kills: int, seed: int, longest_s: float) -> Outcome:
    runner = RunnerProcess(folder, VM, INFRA, clouds_yaml=cloud.clouds_yaml, times=QUICK)
    side = ServedSide(cloud)
    churn = Churn(runner, folder, seed)
    try:
        killed = rampage(
            runner, kills, seed, longest_s=longest_s, before=churn.before, during=churn.during
        )
        wanted = churn.calm()
        to_rest_s = recover(runner, side, wanted, within_s=60.0)
        reckoning = reckon(runner, side, wanted, silence_s=5.0)
        stolen = set(side.deleted_by_us_while_attributed()) - churn.released
        assert not stolen, f"I3: attributed VMs deleted: {stolen}"
        runner.terminate()
    finally:
        runner.end()
    replay = replaying.assert_replays(runner.log)
    edits = replaying.assert_edits_are_found(runner.log)
    return Outcome(killed, to_rest_s, reckoning, replay, tuple(edits))
