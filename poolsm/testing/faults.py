"""Faults as data: what goes wrong, for whom, how often and when.

A fault is one row. Rows are tried in the order in which they were set; the first that fits a
request is the one that happens to it (one before the effect and one after it).

Operations are ``auth create list get delete stop start rebuild metadata rename flavors
images image networks``. A row with ``pool``, ``name_prefix`` or ``server_id`` fits requests
about one such server (a create by its body); among the listing kinds, such records.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from attrs import define, field, frozen

from poolsm.testing.config import PROJECTS

# Nothing is done, and the client gets
BEFORE = (
    "refuse",  # the error ``status``, ``message``
    "hang",  # no answer
    "drop",  # a closed connection
    "unreachable",  # no connection at all (a served cloud closes it)
    "late",  # no answer, and the request is carried out ``delay_ms`` later: a proxy's queue
)
# The request is carried out, and the client gets
AFTER = (
    "refuse_after",  # the error all the same
    "hang_after",  # no answer
    "drop_after",  # a closed connection
    "cut",  # half an answer
    "delay",  # the answer ``delay_ms`` later
)
# One page of a listing as a whole
PAGE = (
    "no_next_link",  # has no link to the next one
    "short_page",  # is one record short of full, and so has no link, though more would follow
    "lost_marker",  # does not know its marker: 400
    "stale",  # shows the cloud as it was ``age_ms`` ago
    "shuffle",  # is in another order
)
# Servers that a listing is without
ABSENT = (
    "cell_down",  # with a limit, a marker or a filter; without, as partial records before all
    "omit",  # always
)
# Single records of a listing
RECORD = (
    "blank_metadata",  # metadata is empty
    "partial_record",  # as of a cell that is down (status UNKNOWN, no name, no metadata)
    "duplicate",  # there twice
    "garbage",  # cannot be read
)
# Also in the reading of one server.
READ = ("blank_metadata", "cell_down", "partial_record")
# The life of a server, from the request on that it happens to
LIFE = (
    "spawn_error",  # create: ends in ERROR
    "boot_hang",  # create: stays BUILD for ever, and can be deleted
    "boot_slow",  # create: takes ``delay_ms`` longer
    "stuck",  # delete, stop, start, rebuild: begins and never ends; another delete helps
    "fails",  # delete, stop, start, rebuild: begins and ends where it began
    "ignore",  # those, metadata and rename: a good answer, and nothing is done
)
KINDS = BEFORE + AFTER + PAGE + ABSENT + RECORD + LIFE

OPERATIONS = (
    "auth",
    "create",
    "list",
    "get",
    "delete",
    "stop",
    "start",
    "rebuild",
    "metadata",
    "rename",
    "flavors",
    "images",
    "image",
    "networks",
)


class Subject(NamedTuple):
    """The server that a request or a record is about."""

    name: str = ""
    pool: str = ""
    server_id: str = ""


NOBODY = Subject()


@frozen(kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: one of ``KINDS``.
        name: a label, to remove it by.
        operations: which requests; empty means all to which the kind applies.
        project: ``vm`` or ``infra``; empty means both.
        probability: of happening to a request (or record) that fits.
        from_ms: when it begins; ``until_ms``: when it ends, None for never.
        count: how often at most; None for no limit.
        status: HTTP status of ``refuse`` and ``refuse_after``.
        message: the text of the error; of ``spawn_error`` the reason that the fault of the
            server gives (``Build of instance <id> aborted: <message>``).
        fault_text: of ``spawn_error``: the server's whole fault text, ``{id}`` for its id.
        html: the error is a proxy's HTML, not the service's own.
        retry_after_s: the header Retry-After of the error.
        delay_ms: of ``delay``, ``late`` and ``boot_slow``.
        age_ms: of ``stale``: the listing shows the cloud as it was so long ago.
    """

    kind: str
    name: str = ""
    operations: tuple[str, ...] = ()
    project: str = ""
    pool: str = ""
    name_prefix: str = ""
    server_id: str = ""
    probability: float = 1.0
    from_ms: int = 0
    until_ms: int | None = None
    count: int | None = None
    status: int = 503
    message: str = ""
    fault_text: str = ""
    html: bool = False
    retry_after_s: int | None = None
    delay_ms: int = 0
    age_ms: int = 0

    def __attrs_post_init__(self) -> None:
        """Refuse what could never happen: a typing error must not pass for a healthy cloud."""
        if self.kind not in KINDS:
            raise ValueError(f"fault kind {self.kind!r}: one of {', '.join(KINDS)}")
        unknown = [name for name in self.operations if name not in OPERATIONS]
        if unknown:
            raise ValueError(f"fault operation {unknown[0]!r}: one of {', '.join(OPERATIONS)}")
        if self.project not in ("", *PROJECTS):
            raise ValueError(f"fault project {self.project!r}: one of {', '.join(PROJECTS)}")

    def fits(self, now_ms: int, operation: str, project: str, subject: Subject) -> bool:
        """Whether it applies, chance and count aside."""
        return (
            self.from_ms <= now_ms
            and (self.until_ms is None or now_ms < self.until_ms)
            and (not self.operations or operation in self.operations)
            and (not self.project or project == self.project)
            and (not self.pool or subject.pool == self.pool)
            and (not self.name_prefix or subject.name.startswith(self.name_prefix))
            and (not self.server_id or subject.server_id == self.server_id)
        )


@define
class ActiveFault:
    """A fault that is set, and how often it has happened."""

    fault: Fault
    happened: int = 0


@define(eq=False)
class FaultBook:
    """The faults that are set."""

    dice: Random
    active: list[ActiveFault] = field(factory=list)

    def add(self, fault: Fault) -> None:
        """Set one more fault."""
        self.active.append(ActiveFault(fault))

    def remove(self, name: str) -> int:
        """Remove the faults of this name; returns how many there were."""
        kept = [one for one in self.active if one.fault.name != name]
        removed = len(self.active) - len(kept)
        self.active = kept
        return removed

    def clear(self) -> None:
        """Heal the cloud."""
        self.active.clear()

    def any_of(self, kinds: tuple[str, ...]) -> bool:
        """Whether any fault of these kinds is set at all."""
        return any(one.fault.kind in kinds for one in self.active)

    def strike(
        self,
        kinds: tuple[str, ...],
        now_ms: int,
        operation: str,
        project: str,
        subject: Subject = NOBODY,
    ) -> Fault | None:
        """The fault that happens to a request or record now, None if none does."""
        for one in self.active:
            fault = one.fault
            if fault.kind not in kinds or not fault.fits(now_ms, operation, project, subject):
                continue
            if fault.count is not None and one.happened >= fault.count:
                continue
            if fault.probability < 1.0 and self.dice.random() >= fault.probability:
                continue
            one.happened += 1
            return fault
        return None
