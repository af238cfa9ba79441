"""Write down what the lab answers, without what changes from one run to the next.

Each id becomes a number in the order in which it was met, each moment one fixed moment, and
so on, always in the same form as the original: a recorded answer can be parsed by whatever
parses the real one, and the same lab recorded twice gives the same files.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.openstack.ask import MICROVERSION, Answer, ask
from tests.lab.openstack.settings import Lab

HEADERS = (
    "content-type",
    "location",
    "openstack-api-version",
    "x-openstack-nova-api-version",
    "x-openstack-request-id",
    "x-compute-request-id",
    "x-subject-token",
    "retry-after",
    "www-authenticate",
    "vary",
)
MOMENT = "2026-01-02T03:04:05"
_PATTERNS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?=[.Z])"), MOMENT),
    (re.compile(r"fa:16:3e(:[0-9a-f]{2}){3}"), "fa:16:3e:00:00:01"),
    (re.compile(r"\b10\.77\.\d+\.\d+\b(?!/)"), "10.77.0.10"),
    (re.compile(r"\bgAAAA[\w-]{50,}={0,2}"), "gAAAA-token"),
)
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_HEX = re.compile(r"\b[0-9a-f]{32}\b")
_LONG_HEX = re.compile(r"\b(?:[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{128})\b")
_REQUEST = re.compile(r"\breq-" + _UUID.pattern[2:])
# Values that differ in each run and whose form nobody reads.
_OPAQUE_KEYS: dict[str, Any] = {"audit_ids": ["audit"], "adminPass": "admin-pass"}
UNKNOWN = "ffffffff-ffff-4fff-8fff-ffffffffffff"  # no run ever makes this id


@dataclass
class Normaliser:
    """Remembers the ids it met; `legend` says what the named ones are."""

    lab: Lab
    legend: dict[str, str] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)

    def name(self, ident: str, meaning: str) -> str:
        """Give an id its number now, and a meaning for the reader."""
        number = self._number(ident)
        self.legend[number] = meaning
        return number

    def _number(self, ident: str) -> str:
        if ident == UNKNOWN:
            return ident
        if ident not in self._known:
            count = len(self._known) + 1
            template = "00000000-0000-4000-8000-{:012d}" if "-" in ident else "{:032d}"
            self._known[ident] = template.format(count)
        return self._known[ident]

    def text(self, text: str) -> str:
        for service in ("keystone", "glance", "placement", "nova-api", "neutron"):
            text = text.replace(self.lab.url(service), f"http://{service}.example")
        text = _REQUEST.sub(f"req-{UNKNOWN}", text)
        text = _UUID.sub(lambda found: self._number(found[0]), text)
        text = _LONG_HEX.sub(lambda found: "0" * len(found[0]), text)
        text = _HEX.sub(lambda found: self._number(found[0]), text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, Mapping):
            return {
                self.text(name): _OPAQUE_KEYS[name] if name in _OPAQUE_KEYS else self.value(one)
                for name, one in value.items()
            }
        return value


class Recorder:
    """Sends requests as one user at a time and keeps each answer in a file."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.normaliser = Normaliser(lab)
        self.names: list[str] = []

    def record(
        self,
        name: str,
        method: str,
        service: str,
        template: str,
        *,
        token: str = "",
        body: object = None,
        microversion: str = MICROVERSION,
        accept: str = "application/json",
        **ids: str,
    ) -> Answer:
        """Send one request and write its answer to `NAME.json`."""
        assert name not in self.names, name
        self.names.append(name)
        url = self.lab.url(service, template.format(**ids))
        answer = ask(url, token, body, method, microversion=microversion, accept=accept)
        clean = self.normaliser
        kept = {key: clean.text(answer.headers[key]) for key in HEADERS if key in answer.headers}
        entry = {
            "request": {
                "method": method,
                "service": service,
                "path": template,
                "ids": clean.value(ids),
                "microversion": microversion,
                "accept": accept,
                "body": clean.value(body),
            },
            "status": answer.status,
            "headers": kept,
            "body": clean.value(_body(answer)),
        }
        text = json.dumps(entry, indent=1, ensure_ascii=False)
        (self.folder / f"{name}.json").write_text(text + "\n")
        print(f"{answer.status} {name}")
        return answer

    def finish(self) -> None:
        """Write the legend and remove recordings of requests that are no longer made."""
        legend = json.dumps(self.normaliser.legend, indent=1)
        (self.folder / "legend.json").write_text(legend + "\n")
        for path in self.folder.glob("*.json"):
            if path.stem not in {*self.names, "legend"}:
                path.unlink()


def _body(answer: Answer) -> Any:
    """JSON as such, anything else (Glance's HTML) as text, nothing as null."""
    if not answer.body:
        return None
    try:
        return json.loads(answer.body)
    except ValueError:
        return answer.body.decode()
