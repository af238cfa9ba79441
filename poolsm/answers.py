"""What the cloud's answers mean (C4): one pure function from a raw answer to an outcome.

Statuses and texts are those that Nova gives (seen against Nova 34); every one that the rules
treat in its own way has its line here, and everything else proves nothing.
"""

from __future__ import annotations

import re

from attrs import frozen

from poolsm.events import CallAnswered

DONE = "done"  # accepted
ALREADY = "already"  # the end state that was wanted is there (409)
GONE = "gone"  # Nova itself says that there is no such server
UNMET = "unmet"  # the server was not what the command expected; nothing was done
QUOTA = "quota"  # a limit of the project, not a failure of the VM
BUSY = "busy"  # told to come back later; nothing was done
IMAGE = "image"  # refused for its image; another one may do
INVALID = "invalid"  # can never succeed as it is
REFUSED = "refused"  # not done, may be done another time
UNKNOWN = "unknown"  # nothing is proven, not even that it was not done

# Transport errors of calls of which no byte left: no connection, no token.
NOT_SENT = "not_sent"
NEVER_LEFT = (NOT_SENT, "auth")

_QUOTA_TEXT = re.compile(
    r"quota exceeded|quota_exceeded|maximum number of ports exceeded|portlimitexceeded"
    r"|too many servers in group|maximum number of (volumes|floating ?ips|server groups)"
    r"|volumelimitexceeded|exceeds allowed .* quota|no more floating ips",
    re.IGNORECASE,
)
_IMAGE_TEXT = re.compile(
    r"can not find requested image|image \S+ is not active|image \S+ could not be found"
    r"|invalid image identifier|attribute imageRef",
    re.IGNORECASE,
)
# The conflicts that last; any other one (a port in use, a host that is busy) may pass.
_AMBIGUOUS_TEXT = re.compile(r"possible networks? found|no unique match found", re.IGNORECASE)
_WANTED_END = {"StopServer": "vm_state stopped", "StartServer": "vm_state active"}


@frozen
class Outcome:
    """What an answer means, and the cloud's words for it."""

    kind: str
    text: str
    retry_after_s: int | None = None


def is_quota_text(text: str) -> bool:
    """Whether a refusal's message, or the fault of a server in ERROR, names a quota (R6)."""
    return bool(_QUOTA_TEXT.search(text))


def classify(command_kind: str, answer: CallAnswered) -> Outcome:
    """The outcome of one command's call (R6, R7, R8).

    A create whose answer is not Nova's own word proves nothing: a proxy's 502, a 503, an
    authentication that failed half way may hide a server that is being built.
    """
    text = describe(answer)
    if answer.unmet:
        return Outcome(UNMET, answer.unmet)
    status = answer.http_status
    if status is None:
        return Outcome(REFUSED if answer.transport_error in NEVER_LEFT else UNKNOWN, text)
    if 200 <= status < 300:
        return Outcome(DONE, text)
    creating = command_kind == "CreateServer"
    if status in (413, 429) or (status == 503 and not creating):
        return Outcome(BUSY, text, answer.retry_after_s)
    if status >= 500 or status == 401:
        return Outcome(UNKNOWN, text, answer.retry_after_s)
    if not answer.error_kind:
        return Outcome(UNKNOWN, text)
    return _classify_refusal(command_kind, answer, text, creating=creating)


def _classify_refusal(
    command_kind: str, answer: CallAnswered, text: str, *, creating: bool
) -> Outcome:
    status = answer.http_status
    if status == 404 and not creating:
        return Outcome(GONE, text)
    if status == 409 and _WANTED_END.get(command_kind, "\0") in answer.message:
        return Outcome(ALREADY, text)
    if status in (403, 409) and is_quota_text(answer.message):
        return Outcome(QUOTA, text)
    if creating and status in (400, 404) and _IMAGE_TEXT.search(answer.message):
        return Outcome(IMAGE, text)
    if status == 400 or (status == 403 and "metadata items" in answer.message):
        return Outcome(INVALID, text)
    if creating and status == 409 and _AMBIGUOUS_TEXT.search(answer.message):
        return Outcome(INVALID, text)
    return Outcome(REFUSED, text)


def describe(answer: CallAnswered) -> str:
    """One line for an operator: status and the cloud's own words."""
    if answer.http_status is None:
        return f"no answer ({answer.transport_error or 'unknown'})"
    return f"{answer.http_status} {answer.message}".strip()
