"""A town for as many faults as a session has: built once, and anew after one that ended badly."""

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import define, field

from tests.chaos.replaying import assert_replays
from tests.chaos.town import Scenario, Town, Verdict, as_row

# The loop in a tenth of its time. A create that may have been sent is still waited for longer
# than it can take.
QUICK: dict[str, dict[str, Any]] = {
    "options": {"tick_every_s": 0.3, "list_every_s": 0.6, "catalogs_every_s": 5.0},
    "settings": {
        "settle_time_s": 5,
        "delete_repeat_s": 5,
        "power_repeat_s": 3,
        "backoff_first_s": 1,
        "backoff_limit_s": 3,
        "breaker_pause_s": 4,
    },
    "deadlines": {"create_s": 3.0, "write_s": 2.0, "read_s": 2.0, "list_s": 2.0},
}
OUT = os.environ.get("POOLSM_FAULTS_OUT", "")  # a file: each verdict as a line of JSON


@define
class Towns:
    """``build`` makes a town at rest and registers on the stack what ends it."""

    build: Callable[[ExitStack], Town]
    cloud: str
    _stack: ExitStack = field(factory=ExitStack)
    _town: Town | None = None

    def suffer(self, scenario: Scenario) -> Verdict:
        """One row of the table; raises AssertionError for what does not hold."""
        if self._town is None:
            self._town = self.build(self._stack)
        try:
            verdict = self._town.suffer(scenario)
        except BaseException:
            self.close()
            raise
        assert verdict.happened or scenario.shut, "the fault never came"
        seen = set(verdict.seen.conditions)
        assert not scenario.shows or seen & set(scenario.shows), f"the operator saw {seen}"
        if OUT:
            with Path(OUT).open("a") as file:
                file.write(json.dumps({"cloud": self.cloud, **as_row(verdict)}) + "\n")
        return verdict

    def finish(self) -> None:
        """End it in order; its log must replay to the same decisions (I8)."""
        town = self._town
        try:
            if town is not None:
                town.runner.terminate()
                assert_replays(town.runner.log)
        finally:
            self.close()

    def close(self) -> None:
        """End it."""
        self._stack.close()
        self._town = None
