"""The life of one assignment request, as one table (R16).

Theory of operation
===================

A request waits until a VM of its pool is ready for it, until its deadline (``expire``), or
until it is clear that it can never be served (``refuse``). The VM is then claimed in the
cloud (``claim``); the answer is given only when the cloud has it (``grant``), and a claim that
fails because the VM went or was taken by someone else sends the request back to wait
(``give_up``). A granted VM is the claimant's until it is given back (``release``) or the cloud
loses it (``lose``). An ended request keeps its answer, so that the same request id asked
again is told the same.
"""

from __future__ import annotations

from typing import Final

from poolsm.tables import Table, compile_table

WAITING: Final = "waiting"
CLAIMING: Final = "claiming"
GRANTED: Final = "granted"
REFUSED: Final = "refused"
EXPIRED: Final = "expired"
RELEASED: Final = "released"
LOST: Final = "lost"

OPEN_STATES: Final = (WAITING, CLAIMING)

ASSIGNMENT_TRANSITIONS: Final = (
    # input      from                  to
    ("claim",    (WAITING,),           CLAIMING),
    ("grant",    (CLAIMING,),          GRANTED),
    ("give_up",  (CLAIMING,),          WAITING),
    ("refuse",   (WAITING,),           REFUSED),
    ("expire",   (WAITING,),           EXPIRED),
    ("release",  (CLAIMING, GRANTED),  RELEASED),
    ("lose",     (GRANTED,),           LOST),
)  # fmt: skip

ASSIGNMENT_TABLE: Final[Table] = compile_table(
    "assignment",
    (WAITING, CLAIMING, GRANTED, REFUSED, EXPIRED, RELEASED, LOST),
    ASSIGNMENT_TRANSITIONS,
    initial=(WAITING,),
)
