"""The life of one pool, and of its breaker, as two tables.

Theory of operation
===================

A pool is ``active`` from its declaration on. An explicit removal makes it ``draining``: its
VMs are deleted, none is made, and with the last one it is ``removed`` (R12). Declaring it
again while it drains takes the removal back.

The breaker guards creation alone (R6): ended failures since the last ACTIVE are counted, and
at the limit it opens. After a pause it is ``half_open``: one probe is built. The probe's
success closes it, its failure opens it again, and an operator's reset closes it at any time.
"""

from __future__ import annotations

from typing import Final

from poolsm.tables import Table, compile_table

POOL_ACTIVE: Final = "active"
DRAINING: Final = "draining"
REMOVED: Final = "removed"

POOL_TRANSITIONS: Final = (
    # input       from                        to
    ("declare",   (POOL_ACTIVE, DRAINING),    POOL_ACTIVE),
    ("remove",    (POOL_ACTIVE, DRAINING),    DRAINING),
    ("emptied",   (DRAINING,),                REMOVED),
)  # fmt: skip

POOL_TABLE: Final[Table] = compile_table(
    "pool", (POOL_ACTIVE, DRAINING, REMOVED), POOL_TRANSITIONS, initial=(POOL_ACTIVE,)
)

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half_open"

BREAKER_TRANSITIONS: Final = (
    # input        from                        to
    ("trip",       (CLOSED, HALF_OPEN),        OPEN),
    ("cool_down",  (OPEN,),                    HALF_OPEN),
    ("succeed",    (CLOSED, OPEN, HALF_OPEN),  CLOSED),
    ("reset",      (CLOSED, OPEN, HALF_OPEN),  CLOSED),
)  # fmt: skip

BREAKER_TABLE: Final[Table] = compile_table(
    "breaker", (CLOSED, OPEN, HALF_OPEN), BREAKER_TRANSITIONS, initial=(CLOSED,)
)
