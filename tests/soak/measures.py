"""What a runner costs, read from outside: its process, its log, the cloud's access logs."""

import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from attrs import frozen

from tests.lab.openstack.client import LabClient

SERVICES = ("keystone", "glance", "nova-api", "neutron")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}")


@frozen
class Sample:
    """A process at one moment: seconds since the start, bytes, counts."""

    at_s: float
    rss_bytes: int
    descriptors: int
    threads: int
    cpu_s: float
    log_bytes: int
    events: int
    commands: int


def sample(pid: int, log: Path, at_s: float) -> Sample:
    """Read it now."""
    process = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line
    )
    ticks = (process / "stat").read_text().rpartition(")")[2].split()
    with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as connection:
        (events,) = connection.execute("SELECT count(*) FROM events").fetchone()
        (commands,) = connection.execute("SELECT count(*) FROM commands").fetchone()
    return Sample(
        at_s=round(at_s, 1),
        rss_bytes=int(status["VmRSS"].split()[0]) * 1024,
        descriptors=len(list((process / "fd").iterdir())),
        threads=int(status["Threads"]),
        cpu_s=(int(ticks[11]) + int(ticks[12])) / 100,
        log_bytes=sum(file.stat().st_size for file in log.parent.glob(f"{log.name}*")),
        events=events,
        commands=commands,
    )


class Calls:
    """The calls of the program under test, from the access logs on, since it was made."""

    def __init__(self, lab: LabClient) -> None:
        self._files = {name: lab.lab.log / f"{name}.access" for name in SERVICES}
        self._read = {name: file.stat().st_size for name, file in self._files.items()}

    def take(self) -> Counter[str]:
        """Those since the last time, as ``service METHOD path status``, ids left out."""
        found: Counter[str] = Counter()
        for name, file in self._files.items():
            with file.open() as lines:
                lines.seek(self._read[name])
                text = lines.read()
            whole = text[: text.rfind("\n") + 1]
            self._read[name] += len(whole.encode())
            for line in whole.splitlines():
                if " poolsm" in line:
                    _, method, path, status = line.split(" ")[:4]
                    shape = _ID.sub("ID", path.partition("?")[0])
                    found[f"{name} {method} {shape} {status}"] += 1
        return found
