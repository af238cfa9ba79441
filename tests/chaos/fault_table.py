"""Every fault of the cloud: what goes wrong, and what an operator must then see."""

from poolsm.testing.faults import Fault
from tests.chaos.town import Scenario
from tests.lying.lies import Lie

WRITES = ("create", "delete", "metadata", "rename", "stop", "start")
FAILED = ("ListingFailed (CallFailed)",)


def _lie(kind: str, *operations: str, **more: object) -> Lie:
    return Lie(kind=kind, operations=operations, **more)  # type: ignore[arg-type]


def _listing(name: str, kind: str, *, shows: tuple[str, ...] = FAILED, **more: object) -> Scenario:
    lab = bool(more.pop("lab", False))
    page_limit = int(str(more.pop("page_limit", 0)))
    return Scenario(
        name=name, lies=(_lie(kind, "list", **more),), shows=shows, lab=lab, page_limit=page_limit
    )


ERRORS = (
    (401, {}),
    (403, {"html": True}),
    (404, {}),
    (409, {}),
    (429, {"retry_after_s": 2}),
    (500, {}),
    (502, {"html": True}),
    (503, {"retry_after_s": 2}),
    (504, {"html": True}),
)


def _error_name(status: int, more: dict[str, object]) -> str:
    words = ["from a gateway"] if more.get("html") else []
    words += ["with Retry-After"] if more.get("retry_after_s") else []
    return f"{status} {' '.join(words)}".strip()


BEFORE = tuple(
    Scenario(
        name=f"writes: {_error_name(status, more)}, nothing done",
        lies=(_lie("refuse", *WRITES, status=status, **more),),
    )
    for status, more in ERRORS
)
AFTER = tuple(
    Scenario(
        name=f"writes: {_error_name(status, more)}, but done",
        lies=(_lie("refuse_after", *WRITES, status=status, **more),),
        lab=status in {401, 502},
    )
    for status, more in ERRORS
)
REFUSALS = (
    Scenario(
        name="creates: 403, a quota",
        lies=(_lie("refuse", "create", status=403, message="Quota exceeded for instances"),),
        shows=("QuotaExceeded",),
        lab=True,
    ),
    Scenario(
        name="creates: 403, a policy",
        lies=(
            _lie("refuse", "create", status=403,
                 message="Policy doesn't allow os_compute_api:servers:create to be performed."),
        ),
        shows=("BackingOff", "BreakerOpen", "LastFailure (CreationFailed)"),
    ),
)  # fmt: skip
LOST = (
    Scenario(name="writes hang, nothing done", lies=(_lie("hang", *WRITES),)),
    Scenario(name="writes hang, but done", lies=(_lie("hang_after", *WRITES),), lab=True),
    Scenario(name="writes are done after the client left", lies=(
        _lie("late", *WRITES, delay_ms=4_000),)),
    Scenario(name="writes are reset, nothing done", lies=(_lie("drop", *WRITES),)),
    Scenario(name="writes are reset, but done", lies=(_lie("drop_after", *WRITES),), lab=True),
    Scenario(name="answers to writes are cut", lies=(_lie("cut", *WRITES),)),
    Scenario(name="answers to writes in broken chunks", lies=(_lie("broken_chunks", *WRITES),)),
    Scenario(name="answers to creates are no JSON", lies=(_lie("not_json", "create"),)),
    Scenario(name="writes are accepted and not done", lies=(_lie("pretend", *WRITES),), lab=True),
    Scenario(name="any half of the answers is lost, done or not", lies=(
        _lie("refuse_after", *WRITES, status=502, html=True, probability=0.3),
        _lie("drop_after", *WRITES, probability=0.3),
        _lie("refuse", *WRITES, status=503, probability=0.3),
    )),
)  # fmt: skip
LISTINGS = (
    _listing("listings: 500", "refuse", status=500),
    _listing("listings: 503 with Retry-After", "refuse", status=503, retry_after_s=2),
    _listing("listings: 404", "refuse", status=404),
    _listing("listings hang", "hang"),
    _listing("listings are reset", "drop"),
    _listing("listings are cut", "cut", lab=True),
    _listing("listings in broken chunks", "broken_chunks"),
    _listing("listings drip", "drip", delay_ms=50),
    _listing("listings of no JSON", "not_json"),
    _listing("listings of half a JSON", "half_json"),
    _listing("listings: 200 with an error's body", "error_body"),
    _listing("listings with an unreadable record", "garbage", probability=0.1),
    _listing("listings with a record twice", "duplicate", probability=0.2),
    _listing("pages: a vanished marker", "lost_marker", page_limit=2, lab=True),
    _listing("pages: missing next links", "no_next_link", page_limit=3, shows=(), lab=True),
    _listing("listings in another order", "shuffle", shows=()),
    _listing("listings 30 s old", "stale", age_ms=30_000, shows=(), lab=True),
    _listing("listings of nothing", "empty_list", shows=("FleetLost",), lab=True),
    _listing("listings without every second server", "half_list", shows=(), lab=True),
    _listing("listings without their second half", "short_list", shows=()),
    _listing("listings without any third server, another each time", "omit", probability=0.33,
             shows=()),
    _listing("records without metadata", "blank_metadata", shows=("Disputed",)),
    _listing("some records without metadata", "blank_metadata", probability=0.3,
             shows=("Disputed",)),
    _listing("records of a cell that is down", "partial_record", shows=("NoMetadata",), lab=True),
)  # fmt: skip
STORMS = (
    Scenario(
        name="404 for every server, listed or not",
        lies=(_lie("refuse", "get", "delete", "metadata", "rename", status=404),),
        lab=True,
    ),
    Scenario(
        name="404 for every server, and listings of nothing",
        lies=(
            _lie("refuse", "get", "delete", "metadata", "rename", status=404),
            _lie("empty_list", "list"),
        ),
        shows=("FleetLost",),
        lab=True,
    ),
    Scenario(
        name="404 for everything",
        lies=(Lie(kind="refuse", services=("compute",), status=404),),
        shows=FAILED,
    ),
    Scenario(
        name="401 for everything but Keystone",
        lies=(Lie(kind="refuse", services=("compute", "image", "network"), status=401),),
        shows=FAILED,
        lab=True,
    ),
    Scenario(
        name="401 for everything, Keystone too",
        lies=(Lie(kind="refuse", status=401),),
        shows=FAILED,
    ),
    Scenario(
        name="tokens expire again and again",
        lies=(Lie(kind="refuse", services=("compute",), status=401, probability=0.5),),
    ),
    Scenario(
        name="403 for everything",
        lies=(Lie(kind="refuse", status=403, message="Policy doesn't allow it."),),
        shows=FAILED,
        lab=True,
    ),
    Scenario(
        name="403 from a gateway for everything",
        lies=(Lie(kind="refuse", status=403, html=True),),
        shows=FAILED,
    ),
    Scenario(
        name="429 for everything",
        lies=(Lie(kind="refuse", status=429, retry_after_s=2),),
        shows=FAILED,
    ),
)
AWAY = (
    Scenario(
        name="the cloud is away: 503 from a gateway",
        lies=(Lie(kind="refuse", status=503, html=True),),
        shows=FAILED,
        fault_s=6.0,
    ),
    Scenario(
        name="the cloud is away: no connection", shut=True, shows=FAILED, fault_s=6.0, lab=True
    ),
    Scenario(
        name="the cloud is away: everything hangs",
        lies=(Lie(kind="hang"),),
        shows=FAILED,
        fault_s=6.0,
    ),
    Scenario(
        name="Glance and Neutron are away",
        lies=(Lie(kind="refuse", services=("image", "network"), status=503, html=True),),
        fault_s=8.0,
    ),
    Scenario(
        name="Keystone hangs, and tokens expire",
        lies=(
            Lie(kind="hang", services=("identity",)),
            Lie(kind="refuse", services=("compute",), status=401),
        ),
        shows=FAILED,
    ),
)
SCENARIOS: tuple[Scenario, ...] = (
    *BEFORE, *AFTER, *REFUSALS, *LOST, *LISTINGS, *STORMS, *AWAY
)  # fmt: skip
ON_LAB = tuple(one for one in SCENARIOS if one.lab)
assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)
assert issubclass(Lie, Fault)
