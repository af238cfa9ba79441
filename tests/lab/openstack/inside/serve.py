"""Serve one OpenStack API: `serve.py SERVICE PORT THREADS ACCESS_LOG`.

The access log has one line per request: time of day, method, path, status, milliseconds,
request id, user agent. Tests read from it what a client really sent.
"""

import importlib
import sys
import time
from pathlib import Path

import waitress

APPLICATIONS = {
    "keystone": "keystone.wsgi.api",
    "glance": "glance.wsgi.api",
    "placement": "placement.wsgi.api",
    "nova-api": "nova.wsgi.osapi_compute",
    "neutron": "neutron.wsgi.api",
}


class AccessLog:
    """Wraps a WSGI application."""

    def __init__(self, application, path):
        self.application = application
        self.out = Path(path).open("a", buffering=1)  # noqa: SIM115 - as long as it serves

    def __call__(self, environ, start_response):
        began = time.time()
        answer = {"status": "-", "request": "-"}

        def start(status, headers, exc_info=None):
            answer["status"] = status.partition(" ")[0]
            for name, value in headers:
                if name.lower().endswith("-request-id"):
                    answer["request"] = value
            return start_response(status, headers, exc_info)

        body = self.application(environ, start)
        self.out.write(self.line(environ, answer, began) + "\n")
        return body

    @staticmethod
    def line(environ, answer, began):
        path = environ.get("PATH_INFO", "")
        if environ.get("QUERY_STRING"):
            path += "?" + environ["QUERY_STRING"]
        words = (
            time.strftime("%H:%M:%S", time.gmtime(began)),
            environ["REQUEST_METHOD"],
            path,
            answer["status"],
            f"{(time.time() - began) * 1000:.0f}",
            answer["request"],
            environ.get("HTTP_USER_AGENT", "-")[:60],
        )
        return " ".join(words)


def main():
    service, port, threads, access_log = sys.argv[1:]
    sys.argv = [service]  # the applications read the command line themselves
    sys.setswitchinterval(0.001)  # many threads, short requests
    application = importlib.import_module(APPLICATIONS[service]).application
    waitress.serve(
        AccessLog(application, access_log),
        host="127.0.0.1",
        port=int(port),
        threads=int(threads),
        connection_limit=1000,
        backlog=512,
        channel_timeout=120,
        ident=None,
    )


main()
