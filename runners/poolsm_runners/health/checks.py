"""From signs of life to an answer: what holds, and in one line each why it does not.

Three questions, each a little wider than the one before:

* ``live``: does the loop run, do its ticks end? What a restart may mend; the service manager's
  watchdog is fed on it.
* ``healthy``: can it also write its log? A restart does not mend a full disk.
* ``ready``: does it see the cloud, so that what it says and does is of today?
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from poolsm_runners.health.vitals import Phase, Vitals

LOOP_LIMIT_S = 10.0  # no task of ours may hold the loop for so long
TICK_LIMIT_S = 30.0  # fifteen ticks


@frozen
class Check:
    """One thing that holds or not; ``text`` says with its numbers why."""

    name: str
    ok: bool
    text: str


@frozen
class Report:
    """The answer to one question."""

    ok: bool
    phase: str
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """What does not hold."""
        return tuple(check for check in self.checks if not check.ok)


def live(vitals: Vitals) -> Report:
    """Whether the loop runs and its ticks end."""
    return _report(vitals, _loop(vitals), _tick(vitals))


def healthy(vitals: Vitals) -> Report:
    """Whether it also can write its log."""
    return _report(vitals, _loop(vitals), _tick(vitals), _log(vitals))


def ready(vitals: Vitals) -> Report:
    """Whether it also has listed the cloud in this run, and lately."""
    return _report(vitals, _loop(vitals), _tick(vitals), _log(vitals), *_listing(vitals))


QUESTIONS: Final = {"/livez": live, "/healthz": healthy, "/readyz": ready}
"""Where each is answered."""


def _report(vitals: Vitals, *checks: Check) -> Report:
    return Report(all(check.ok for check in checks), vitals.phase, checks)


def _holds(name: str, text: str) -> Check:
    return Check(name, ok=True, text=text)


def _fails(name: str, text: str) -> Check:
    return Check(name, ok=False, text=text)


def _loop(vitals: Vitals) -> Check:
    age_s = vitals.beat_age_s()
    ok = age_s <= LOOP_LIMIT_S
    text = f"last heartbeat {age_s:.1f} s ago, the limit is {LOOP_LIMIT_S:g} s"
    return Check("loop", ok, text if ok else f"the event loop hangs: {text}")


def _tick(vitals: Vitals) -> Check:
    if vitals.phase is not Phase.RUNNING:
        return _holds("tick", f"none is due: {vitals.phase}")
    age_s = vitals.tick_age_s()
    ok = age_s <= TICK_LIMIT_S
    text = f"last tick {age_s:.1f} s ago, the limit is {TICK_LIMIT_S:g} s"
    return Check("tick", ok, text if ok else f"ticks do not end: {text}")


def _log(vitals: Vitals) -> Check:
    if vitals.failure:
        return _fails("log", vitals.failure)
    if vitals.engine is not None and vitals.engine.broken:
        return _fails("log", "the last append failed")
    return _holds("log", "can be written" if vitals.engine else "not opened yet")


def _listing(vitals: Vitals) -> tuple[Check, Check]:
    engine, age_s = vitals.engine, vitals.listing_age_s()
    if engine is None or vitals.phase is not Phase.RUNNING:
        text = f"the cloud is not looked at: {vitals.phase}"
        return _fails("listed", text), _fails("fresh", text)
    state = engine.state
    error = f"; last error: {state.listing_error}" if state.listing_error else ""
    listed = Check(
        "listed",
        not state.adopting,
        f"waiting for the first complete listing of this run{error}"
        if state.adopting
        else "complete listings were seen in this run",
    )
    limit_s = state.settings.listing_age_limit_s
    if age_s is None:
        return listed, _fails("fresh", f"no complete listing was ever seen{error}")
    fresh = age_s <= limit_s
    text = f"the last complete listing is {age_s:.1f} s old, the limit is {limit_s} s"
    return listed, Check("fresh", fresh, text if fresh else f"{text}{error}")
