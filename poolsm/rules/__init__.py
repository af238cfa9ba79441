"""The rules, in the order in which they run.

Each is a small function of a pool and the state that returns command drafts and changes
nothing. :func:`poolsm.plan.plan` runs them and issues what they return, so that each rule
already sees what the rules before it decided.
"""

from __future__ import annotations

from collections.abc import Callable

from poolsm.commands import Command
from poolsm.members import Pool
from poolsm.rules.claims import grant, reuse, tag
from poolsm.rules.deletion import delete_condemned, prove
from poolsm.rules.power import power
from poolsm.rules.scale_down import scale_down
from poolsm.rules.warm import refresh_warm
from poolsm.state import State

Rule = Callable[[Pool, State], list[Command]]

# Provisioning (rules.provisioning) runs between the two: it needs all pools at once, because
# the project's limit of creations is shared among them.
BEFORE_PROVISIONING: tuple[Rule, ...] = (power, prove, delete_condemned, grant, reuse, tag)
AFTER_PROVISIONING: tuple[Rule, ...] = (scale_down, refresh_warm)
