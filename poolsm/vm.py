"""The life of one VM, as one table.

Theory of operation
===================

A VM begins in one of two ways: we decided to create it (``pending``), or the cloud showed us
a server of ours (it begins in the state that was observed). From then on two kinds of inputs
move it:

* ``see_<STATUS>``: a listing that may speak about this server (it started after the last
  answer about it, R10) shows that Nova status. Whatever Nova says is believed: from each
  live state, each status leads to the state of the same name. There is no order in which
  statuses must come; listings are five seconds apart and miss most of what happens between.
* what we know about it beside its status: two complete listings without it (``lose``), an
  accepted deletion (``delete_accepted``), proof that it is gone (``prove_gone``), and a
  creation that ended without a server (``creation_ended``).

Three rules give the table its shape:

* ``missing`` is not gone. It is still owned, and comes back to whatever is observed.
* ``deleting`` never goes back (I5): a server that we deleted and that a slow or stale
  listing still shows as ACTIVE stays ``deleting``.
* ``deleted`` is the end. The fold then drops the VM and keeps its id as a tombstone.

Statuses are Nova's own spelling. Those that no rule acts on (a paused, shelved or migrating
VM is capacity but is left alone) have a state each, so that what an operator reads is what
Nova says, and so that adding a rule for one of them later is a change in one row.
"""

from __future__ import annotations

from typing import Final

from poolsm.tables import Table, compile_table

PENDING: Final = "pending"
BUILD: Final = "BUILD"
ACTIVE: Final = "ACTIVE"
SHUTOFF: Final = "SHUTOFF"
ERROR: Final = "ERROR"
MISSING: Final = "missing"
DELETING: Final = "deleting"
DELETED: Final = "deleted"
UNKNOWN: Final = "UNKNOWN"

LEFT_ALONE: Final = (
    "PAUSED",
    "SUSPENDED",
    "SHELVED",
    "SHELVED_OFFLOADED",
    "RESIZE",
    "VERIFY_RESIZE",
    "REVERT_RESIZE",
    "REBUILD",
    "REBOOT",
    "HARD_REBOOT",
    "MIGRATING",
    "PASSWORD",
    "RESCUE",
    UNKNOWN,
)
OBSERVED: Final = (BUILD, ACTIVE, SHUTOFF, ERROR, *LEFT_ALONE)
GONE_STATUSES: Final = ("DELETED", "SOFT_DELETED")

STATES: Final = (PENDING, *OBSERVED, MISSING, DELETING, DELETED)

# The words of design: owned = every state but deleted; capacity = owned without these.
NOT_CAPACITY: Final = (ERROR, MISSING, DELETING)

LIVE: Final = (PENDING, *OBSERVED, MISSING)

TRANSITIONS: Final = (
    # input                    from        to
    ("see_BUILD",              LIVE,       BUILD),
    ("see_ACTIVE",             LIVE,       ACTIVE),
    ("see_SHUTOFF",            LIVE,       SHUTOFF),
    ("see_ERROR",              LIVE,       ERROR),
    ("see_PAUSED",             LIVE,       "PAUSED"),
    ("see_SUSPENDED",          LIVE,       "SUSPENDED"),
    ("see_SHELVED",            LIVE,       "SHELVED"),
    ("see_SHELVED_OFFLOADED",  LIVE,       "SHELVED_OFFLOADED"),
    ("see_RESIZE",             LIVE,       "RESIZE"),
    ("see_VERIFY_RESIZE",      LIVE,       "VERIFY_RESIZE"),
    ("see_REVERT_RESIZE",      LIVE,       "REVERT_RESIZE"),
    ("see_REBUILD",            LIVE,       "REBUILD"),
    ("see_REBOOT",             LIVE,       "REBOOT"),
    ("see_HARD_REBOOT",        LIVE,       "HARD_REBOOT"),
    ("see_MIGRATING",          LIVE,       "MIGRATING"),
    ("see_PASSWORD",           LIVE,       "PASSWORD"),
    ("see_RESCUE",             LIVE,       "RESCUE"),
    ("see_UNKNOWN",            LIVE,       UNKNOWN),

    # A deletion never goes back, whatever a listing still shows.
    ("see_BUILD",              (DELETING,), DELETING),
    ("see_ACTIVE",             (DELETING,), DELETING),
    ("see_SHUTOFF",            (DELETING,), DELETING),
    ("see_ERROR",              (DELETING,), DELETING),
    ("see_PAUSED",             (DELETING,), DELETING),
    ("see_SUSPENDED",          (DELETING,), DELETING),
    ("see_SHELVED",            (DELETING,), DELETING),
    ("see_SHELVED_OFFLOADED",  (DELETING,), DELETING),
    ("see_RESIZE",             (DELETING,), DELETING),
    ("see_VERIFY_RESIZE",      (DELETING,), DELETING),
    ("see_REVERT_RESIZE",      (DELETING,), DELETING),
    ("see_REBUILD",            (DELETING,), DELETING),
    ("see_REBOOT",             (DELETING,), DELETING),
    ("see_HARD_REBOOT",        (DELETING,), DELETING),
    ("see_MIGRATING",          (DELETING,), DELETING),
    ("see_PASSWORD",           (DELETING,), DELETING),
    ("see_RESCUE",             (DELETING,), DELETING),
    ("see_UNKNOWN",            (DELETING,), DELETING),

    # Gone for the count and for the wait of a deletion, whoever did it.
    ("see_DELETED",            (*LIVE, DELETING), DELETED),
    ("see_SOFT_DELETED",       (*LIVE, DELETING), DELETED),

    ("lose",                   (PENDING, *OBSERVED), MISSING),
    ("delete_accepted",        (*LIVE, DELETING),    DELETING),
    ("prove_gone",             (*LIVE, DELETING),    DELETED),
    ("creation_ended",         (PENDING,),           DELETED),
)  # fmt: skip

TABLE: Final[Table] = compile_table("vm", STATES, TRANSITIONS, initial=(PENDING, *OBSERVED))


_INPUTS: Final = {status: f"see_{status}" for status in (*OBSERVED, *GONE_STATUSES)}


def input_for(status: str) -> str:
    """The input that an observed Nova status is; what Nova may invent later is UNKNOWN."""
    return _INPUTS.get(status) or _INPUTS.get(status.upper(), "see_UNKNOWN")
