"""What a lying proxy may do to a request, in the vocabulary of the simulated cloud's faults.

A lie is a :class:`poolsm.testing.Fault` that any HTTP cloud can be given, so kinds, filters,
chances and counts are those of ``poolsm/testing/faults.py``. What only a proxy can do (broken
HTTP, wrong bodies) is added here; what only a simulation can do (the life of a server) is left
out.
"""

from attrs import frozen

from poolsm.testing import Fault
from poolsm.testing.faults import AFTER, BEFORE, OPERATIONS, Subject

# Of the kinds of poolsm.testing.faults, those that need nothing but the requests. To be
# unreachable is not among them: the proxy then closes its doors (see ``proxy.py``).
_BEFORE = tuple(kind for kind in BEFORE if kind != "unreachable")
# And of its own: nothing is done, and the answer says that it was.
PRETEND = "pretend"
PAGE = ("no_next_link", "lost_marker", "stale", "shuffle")
RECORD = ("omit", "blank_metadata", "partial_record", "duplicate", "garbage")
# The request is carried out, the answer is
BODY = (
    "broken_chunks",  # cut off within a chunk
    "drip",  # a byte each ``delay_ms``
    "not_json",  # a gateway's page, with a 200
    "half_json",  # JSON that ends too early, with its right length
    "error_body",  # a 200 with the body of an error
    "empty_list",  # a 200 with a listing of nothing
    "half_list",  # without every second server, always the same ones
    "short_list",  # without its second half, and without a link to it
)
ANSWER = AFTER + BODY + tuple(kind for kind in PAGE if kind != "lost_marker") + RECORD
BEFORE_EFFECT = (*_BEFORE, PRETEND, "lost_marker")
KINDS = BEFORE_EFFECT + ANSWER


@frozen(kw_only=True)
class Lie(Fault):
    """One lie; see :class:`poolsm.testing.Fault` for what is not here.

    Attributes:
        services: ``compute image network identity``; empty means all of them.
    """

    services: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Refuse what could never happen."""
        if self.kind not in KINDS:
            raise ValueError(f"lie {self.kind!r}: one of {', '.join(KINDS)}")
        unknown = [name for name in self.operations if name not in (*OPERATIONS, "other")]
        if unknown:
            raise ValueError(f"operation {unknown[0]!r}: one of {', '.join(OPERATIONS)}, other")
        if self.project or self.pool or self.name_prefix:
            raise ValueError("a proxy does not know whose a request is: filter by server_id")

    def fits(self, now_ms: int, operation: str, project: str, subject: Subject) -> bool:
        """As a fault; where that has the project, a proxy has the service."""
        served = not self.services or project in self.services
        return served and Fault.fits(self, now_ms, operation, "", subject)
