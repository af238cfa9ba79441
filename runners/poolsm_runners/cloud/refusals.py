"""What an answer that is not a success says: Nova's error body, anyone's Retry-After."""

from __future__ import annotations

import math
import re
from email.utils import parsedate_to_datetime

from attrs import frozen

from poolsm_runners.cloud import decode
from poolsm_runners.cloud.port import Reply

MESSAGE_LIMIT = 2000  # characters kept of an error's text
RETRY_AFTER_LIMIT_S = 86_400

# The only key of an error body by which Nova is known (nova.api.openstack.wsgi.Fault). A
# proxy's JSON has others, and must never pass for Nova's word (R7).
_NOVA = frozenset({
    "badRequest", "unauthorized", "forbidden", "itemNotFound", "badMethod",
    "conflictingRequest", "overLimit", "badMediaType", "notImplemented",
    "serviceUnavailable", "computeFault",
})  # fmt: skip
_MARKUP = re.compile(r"<(head|style|script)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
# Nova quotes the value that its schema refuses, twice; the text after it is the reason.
_QUOTED_USER_DATA = re.compile(r"(field/attribute user_data\b).*", re.DOTALL)


@frozen
class Refusal:
    """An answer other than 2xx: who said it (empty: not Nova), the text, when to come back."""

    kind: str
    message: str
    retry_after_s: int | None


def parse_refusal(reply: Reply, now_s: float, user_data: str = "") -> Refusal:
    """Read one refusal.

    Args:
        reply: any answer that is not a success.
        now_s: Unix time; counts only if the answer has no Date header.
        user_data: what must not come back in the message, if the call had any (C11).
    """
    kind, message, wait_s = "", "", None
    body = decode.json_object(reply.body)
    if body is None:
        text = reply.body[: 8 * MESSAGE_LIMIT].decode("utf-8", "replace")
        message = _MARKUP.sub(" ", text)
    elif len(body) == 1:
        ((key, value),) = body.items()
        if isinstance(value, dict) and isinstance(value.get("message"), str):
            message = value["message"]
            if key in _NOVA and value.get("code") == reply.status:
                kind = key
                wait_s = _seconds(str(value.get("retryAfter", "")))
        elif isinstance(value, str):
            message = value
    header = reply.headers.get("retry-after", "")
    retry_after_s = retry_after(header, reply.headers.get("date", ""), now_s)
    return Refusal(
        kind,
        _one_line(_without_user_data(message, user_data)),
        wait_s if retry_after_s is None else retry_after_s,
    )


def retry_after(header: str, date: str, now_s: float) -> int | None:
    """Seconds of a Retry-After header, which is a number or an HTTP date; None if neither.

    A date counts from the answer's own Date header, so that a wrong clock on either side
    does no harm; from ``now_s`` if there is none. Never negative, at most a day.
    """
    seconds = _seconds(header)
    if seconds is not None:
        return seconds
    until = _unix_time(header)
    if until is None:
        return None
    base = _unix_time(date)
    return _clamped(until - (now_s if base is None else base))


def _without_user_data(message: str, user_data: str) -> str:
    message = _QUOTED_USER_DATA.sub(r"\1: its value is withheld", message)
    return message.replace(user_data, "(withheld)") if user_data else message


def _seconds(text: str) -> int | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return _clamped(seconds) if math.isfinite(seconds) else None


def _clamped(seconds: float) -> int:
    return max(0, min(RETRY_AFTER_LIMIT_S, math.ceil(seconds)))


def _unix_time(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MESSAGE_LIMIT]
