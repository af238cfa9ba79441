"""A run in a thread of its own, and what is seen of it from outside: metrics, health, status."""

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families

from poolsm.errors import PoolsmError
from poolsm.spec import PoolSpec
from poolsm_runners.control_requests import Status
from poolsm_runners.operations import PoolDeclaration
from poolsm_runners.runconfig import Declared, RunConfig
from poolsm_runners.service import serve
from poolsm_runners.session import perform


def free_port():
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def spec(name="lab", user="ann", min_vm=2, max_vm=4, **more):
    return PoolSpec(name, user, min_vm, max_vm, "worker-image", "m1.tiny", ("lab-net",), **more)


def declared(*specs):
    return (Declared("file pools.toml", tuple(map(PoolDeclaration, specs))),)


def until(condition, what, seconds=20.0):
    """Poll; the truthy value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return found


class Run:
    """``serve`` with its own loop in a thread, so that a test can look at a loop that hangs."""

    def __init__(self, log, *specs, watchers=(), **changes):
        self.log = log
        self.port = free_port()
        settings = {"speed": 20, "metrics": f"127.0.0.1:{self.port}", **changes}
        self.config = RunConfig(log=log, declared=declared(*(specs or (spec(),))), **settings)
        self._watchers = watchers
        self._stop = asyncio.Event()
        self._loop = None
        self.error = None
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._began.wait(10)
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _main(self):
        try:
            asyncio.run(self._serve())
        except PoolsmError as error:
            self.error = error
        except Exception as error:
            self.error = error  # for whoever is waiting
            raise

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        self._began.set()
        await serve(self.config, stop=self._stop, watchers=self._watchers)

    def soon(self, action):
        """Call something in the loop's thread."""
        self._loop.call_soon_threadsafe(action)

    def do(self, action):
        """The same, and wait for it."""
        done = threading.Event()
        self.soon(lambda: (action(), done.set()))
        assert done.wait(10)

    def get(self, path, headers=None):
        """Status and body; None while nobody listens."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers=headers or {}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError):  # not yet, or no more
            assert self.error is None, self.error
            return None

    def asked(self, path):
        """Status and the JSON of a health question; None while nobody listens."""
        found = self.get(path)
        return found and (found[0], json.loads(found[1]))

    def until(self, path, status):
        """Until a question is answered with a status; its JSON."""
        found = until(
            lambda: (f := self.asked(path)) and f[0] == status and f, f"{path} is {status}"
        )
        return found[1]

    def metrics(self):
        """The families, by name, as Prometheus' own parser reads them."""
        status, text = self.get("/metrics")
        assert status == 200
        return {family.name: family for family in text_string_to_metric_families(text)}

    def samples(self, name):
        """Samples of one metric: labels as a frozen set of pairs -> value."""
        family = self.metrics()[name.removesuffix("_total")]
        return {frozenset(s.labels.items()): s.value for s in family.samples if s.name == name}

    def value(self, name, **labels):
        """One sample; 0 where there is none."""
        return self.samples(name).get(frozenset(labels.items()), 0)

    def fleet(self):
        """The fleet as `poolsm status --json` has it."""
        standing, by_runner = perform(self.log, Status())
        assert by_runner
        return standing.fleet
