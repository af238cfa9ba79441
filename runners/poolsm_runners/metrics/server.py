"""The HTTP side: /metrics, /livez, /healthz, /readyz, from threads of their own.

Not from the runner's loop: a loop that hangs must still be answered for, with the reason. It is
Prometheus' own WSGI application on the standard library's server, limited in clients, in the
time each may take, and in what it reads: it takes no input but a path.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog

from poolsm_runners.health.checks import Report
from poolsm_runners.metrics.address import Address, AddressError

CLIENTS_LIMIT = 16
CLIENT_TIMEOUT_S = 10.0

logger = structlog.get_logger("poolsm")

Question = Callable[[], Report]
_Request = socket.socket | tuple[bytes, socket.socket]  # as socketserver has it


def application(metrics: WSGIApplication, questions: Mapping[str, Question]) -> WSGIApplication:
    """What is served: ``/metrics``, and the answer to each question at its path."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ.get("PATH_INFO", ""), environ.get("REQUEST_METHOD", "")
        if path == "/metrics":
            return metrics(environ, start_response)
        if path not in questions:
            known = " ".join(["/metrics", *questions])
            return _text(start_response, "404 Not Found", f"here are {known}\n")
        if method not in {"GET", "HEAD"}:
            return _text(start_response, "405 Method Not Allowed", "use GET\n")
        report = questions[path]()
        body = {
            "ok": report.ok,
            "phase": report.phase,
            "checks": {c.name: {"ok": c.ok, "text": c.text} for c in report.checks},
        }
        status = "200 OK" if report.ok else "503 Service Unavailable"
        text = json.dumps(body, indent=2) + "\n"
        return _text(start_response, status, "" if method == "HEAD" else text, "application/json")

    return answer


def _text(
    start_response: StartResponse, status: str, text: str, kind: str = "text/plain"
) -> list[bytes]:
    body = text.encode()
    headers = [
        ("Content-Type", f"{kind}; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
    ]
    start_response(status, headers)
    return [body]


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Probes come every few seconds; what they are told is in the metrics."""


class _Server(WSGIServer):
    """A thread for each client, so many and no more."""

    # SO_REUSEADDR: a runner that is started again must not wait for old connections to end
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: Address, app: WSGIApplication) -> None:
        self.address_family, where = _resolve(address)
        self._clients = threading.BoundedSemaphore(CLIENTS_LIMIT)
        super().__init__(where, _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """As the base class, without asking a name server for our name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: _Request, client_address: object) -> None:
        """One client, in a thread of its own; one too many is hung up on."""
        if not self._clients.acquire(blocking=False):
            self.shutdown_request(request)
            return
        threading.Thread(
            target=self._serve, args=(request, client_address), name="metrics-client", daemon=True
        ).start()

    def _serve(self, request: _Request, client_address: object) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:  # it went away, or took too long
            pass
        except Exception:
            logger.exception("metrics.fault")
        finally:
            self.shutdown_request(request)
            self._clients.release()


def _resolve(address: Address) -> tuple[socket.AddressFamily, tuple[str, int]]:
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, where = found[0]
    return family, (str(where[0]), int(where[1]))


class MetricsServer:
    """Listens from its making on; serves once it is started."""

    def __init__(self, address: Address, app: WSGIApplication) -> None:
        """Take the address; raises AddressError, naming what to do."""
        try:
            self._server = _Server(address, app)
        except OSError as error:
            raise AddressError(
                f"metrics at {address}: cannot listen there ({error.strerror or error}); another "
                "runner may have it: give each its own with --metrics or POOLSM_METRICS"
            ) from None
        self.address = Address(address.host, self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    def start(self) -> None:
        """Serve, in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Listen no more; answers that are being given end with the process."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5.0)
        self._server.server_close()
