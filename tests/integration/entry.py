"""One runner as a process, with times that a test may shorten; see ``running.py``.

``python -m tests.integration.entry '{"log": ..., "cloud": ..., "files": [...]}'`` does what
`poolsm run` does, by the same function. Beside that it writes a line of JSON when the first
listing is complete, and one for each anomaly; the product's own log lines are JSON, too.
"""

import asyncio
import json
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from poolsm import Step
from poolsm.errors import PoolsmError
from poolsm.events import Event, ListingCompleted
from poolsm.spec import RunnerSettings
from poolsm_runners import service
from poolsm_runners.cloud.port import Deadlines
from poolsm_runners.logs import configure_logs, log_watcher
from poolsm_runners.poolfile import read_pool_files
from poolsm_runners.runconfig import Declared, RunConfig
from poolsm_runners.runner import RunnerOptions


class Witness:
    """Says on standard output what a test wants to know of the inside."""

    def __init__(self) -> None:
        self._listed = False

    def __call__(self, event: Event, step: Step) -> None:
        if isinstance(event, ListingCompleted) and not self._listed:
            self._listed = True
            say("listed", total=event.total)
        for anomaly in step.anomalies:
            say("anomaly", kind=anomaly.kind, subject=anomaly.subject, text=anomaly.text)


def say(what: str, **more: object) -> None:
    print(json.dumps({"what": what, "at_s": time.time(), **more}), flush=True)


def shorten(times: dict[str, dict[str, Any]]) -> None:
    """Give settings, loop options and deadlines that no configuration may change."""
    for name, kind in (
        ("settings", RunnerSettings),
        ("options", RunnerOptions),
        ("deadlines", Deadlines),
    ):
        setattr(service, kind.__name__, partial(kind, **times.get(name, {})))


async def run(told: dict[str, Any]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    files = read_pool_files(told["files"])
    config = RunConfig(
        log=Path(told["log"]),
        cloud=told["cloud"],
        infra_cloud=told["infra_cloud"],
        declared=tuple(Declared(file.origin, file.pools, file.configs) for file in files),
        dry_run=told["dry_run"],
        metrics=told["metrics"],
    )
    await service.serve(config, stop=stop, watchers=[lambda _: Witness(), log_watcher])
    say("ended")


def main() -> None:
    told = json.loads(sys.argv[1])
    shorten(told["times"])
    configure_logs(as_json=True)
    try:
        asyncio.run(run(told))
    except PoolsmError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
