"""Answers, and the error bodies of the three services, as their own code words them."""

from __future__ import annotations

from html import escape

import msgspec
from attrs import field, frozen

Json = dict[str, object]

# Glance checks the token itself and has words of its own.
_GLANCE_DENIED = (
    "This server could not verify that you are authorized to access the document you requested. "
    "Either you supplied the wrong credentials (e.g., bad password), or your browser does not "
    "understand how to supply the credentials required."
)
_JSON = {"content-type": "application/json"}
_HTML = {"content-type": "text/html; charset=UTF-8"}

# The key of Nova's error bodies by status (``nova/api/openstack/wsgi.py``, class Fault).
FAULT_KEYS = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
_REASONS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Time-out",
}


@frozen
class SimReply:
    """What the cloud answers, and how it reaches the client.

    Attributes:
        headers: names in lower case.
        delay_ms: how long after the request's arrival the answer is there. The effect, if
            any, was at the arrival.
        hang: the answer never comes.
        cut: the connection breaks in the middle of the body (before it, if it is empty).
        unreachable: there was no connection: no byte of the request left the client.
    """

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(factory=dict)
    delay_ms: int = 0
    hang: bool = False
    cut: bool = False
    unreachable: bool = False


class Refused(Exception):  # noqa: N818 - an answer, not an error of this program
    """A request ends here with an error answer."""

    def __init__(self, reply: SimReply, text: str = "") -> None:
        super().__init__(f"{reply.status} {reply.body!r}")
        self.reply = reply
        self.text = text


def json_reply(status: int, value: object) -> SimReply:
    """An answer with a JSON body."""
    return SimReply(status, msgspec.json.encode(value), dict(_JSON))


def json_bytes_reply(status: int, body: bytes) -> SimReply:
    """An answer whose JSON is encoded already."""
    return SimReply(status, body, dict(_JSON))


def nova_error(status: int, message: str, retry_after_s: int | None = None) -> SimReply:
    """Nova's error body."""
    body: Json = {"code": status, "message": message}
    headers = dict(_JSON)
    if retry_after_s is not None:
        headers["retry-after"] = str(retry_after_s)
        if status in (413, 429):
            body["retryAfter"] = str(retry_after_s)
    encoded = msgspec.json.encode({FAULT_KEYS.get(status, "computeFault"): body})
    return SimReply(status, encoded, headers)


def refuse(status: int, message: str) -> Refused:
    """Nova's refusal, to be raised."""
    return Refused(nova_error(status, message))


def glance_error(status: int, message: str) -> SimReply:
    """Glance's error body: HTML, unless the client accepts JSON (:func:`as_json`)."""
    title = f"{status} {_REASONS.get(status, 'Error')}"
    text = (
        f"<html>\n <head>\n  <title>{title}</title>\n </head>\n <body>\n  <h1>{title}</h1>\n"
        f"  {escape(message)}<br /><br />\n\n\n\n </body>\n</html>"
    )
    return SimReply(status, text.encode(), dict(_HTML))


def as_json(reply: SimReply, message: str) -> SimReply:
    """An HTML error as a client gets it that accepts JSON: the same text in three fields."""
    title = _REASONS.get(reply.status, "Error")
    text = f"{escape(message)}<br /><br />\n\n\n"
    body = {"message": text, "code": f"{reply.status} {title}", "title": title}
    encoded = msgspec.json.encode(body)
    return SimReply(reply.status, encoded, {**reply.headers, **_JSON})


def neutron_error(status: int, kind: str, message: str) -> SimReply:
    """Neutron's error body."""
    return json_reply(status, {"NeutronError": {"type": kind, "message": message, "detail": ""}})


def keystone_error(status: int, message: str) -> SimReply:
    """Keystone's error body, also that of the token check in front of every service."""
    title = _REASONS.get(status, "Error")
    reply = json_reply(status, {"error": {"code": status, "message": message, "title": title}})
    if status == 401:
        reply.headers["www-authenticate"] = 'Keystone uri="http://127.0.0.1/identity"'
    return reply


def proxy_error(status: int, message: str = "", retry_after_s: int | None = None) -> SimReply:
    """What a load balancer in front of the cloud says, which is nobody's JSON."""
    title = f"{status} {_REASONS.get(status, 'Error')}"
    text = f"<html><body><h1>{title}</h1>\n{escape(message)}\n</body></html>\n"
    headers = {"content-type": "text/html"}
    if retry_after_s is not None:
        headers["retry-after"] = str(retry_after_s)
    return SimReply(status, text.encode(), headers)


def service_error(
    service: str,
    status: int,
    message: str,
    retry_after_s: int | None = None,
    *,
    accept: str = "",
) -> SimReply:
    """The error body of whichever service is asked; ``accept`` is the request's header."""
    if service == "image" and status == 401 and not message:
        message = _GLANCE_DENIED
    elif status == 401 or service == "identity":
        return keystone_error(
            status, message or "The request you have made requires authentication."
        )
    if service == "image":
        reply = glance_error(status, message)
        if "json" in accept:
            reply = as_json(reply, message)
    elif service == "network":
        reply = neutron_error(status, "SimulatedFault", message)
    else:
        return nova_error(status, message, retry_after_s)
    if retry_after_s is not None:
        reply.headers["retry-after"] = str(retry_after_s)
    return reply
