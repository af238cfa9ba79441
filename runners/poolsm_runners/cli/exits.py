"""Exit codes, and which error has which."""

from __future__ import annotations

from poolsm.errors import PoolsmError

OK = 0
NO = 1
USAGE = 2
UNUSABLE = 3
WAITING = 4
INTERRUPTED = 130

MEANINGS = {
    OK: "done, and the answer is yes",
    NO: "the answer is no: refused, expired, a difference, errors in a pool file",
    USAGE: "the command line is wrong",
    UNUSABLE: "log, runner or cloud cannot be used; nothing is known to be changed",
    WAITING: "recorded, but the request has no VM yet",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def exit_code_of(error: PoolsmError) -> int:
    """The exit code of an error that ended a command."""
    # imported here, for they are slow: an error has cost more than that already
    from poolsm.errors import UnknownKindError, UnreadableRecordError
    from poolsm_runners.control import ControlError
    from poolsm_runners.log.port import LogError, LogExchangeError
    from poolsm_runners.metrics.address import AddressError
    from poolsm_runners.service import CloudUnusableError

    if isinstance(error, LogExchangeError):
        return NO
    unusable = (
        LogError,
        ControlError,
        CloudUnusableError,
        AddressError,
        UnknownKindError,
        UnreadableRecordError,
    )
    return UNUSABLE if isinstance(error, unusable) else NO
