"""Where the real services are, where the proxy stands for them, and which service a path is.

The proxy opens a door of its own for each origin (scheme, host and port) that Keystone's catalog
names, and puts that door's address wherever an answer names the origin: in the catalog, in
version documents, in links to a next page. A client then believes every word.
"""

import json
import re
from urllib.parse import urlsplit

from attrs import define, field

_VERSION = re.compile(r"/v\d[\d.]*/?$")


def origin_of(url: str) -> str:
    """``http://host:port``."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc}"


def catalog_of(body: bytes) -> list[tuple[str, str]]:
    """The services of a token's answer: their types and addresses."""
    try:
        catalog = json.loads(body)["token"]["catalog"]
    except (ValueError, KeyError, TypeError):
        return []
    return [(one["type"], point["url"]) for one in catalog for point in one["endpoints"]]


@define
class Origins:
    """The origins that have doors."""

    doors: dict[str, str] = field(factory=dict)  # origin -> our address for it
    _roots: dict[tuple[str, str], str] = field(factory=dict)  # (origin, path) -> service

    def learn(self, service: str, url: str) -> None:
        """A service's endpoint, which may have a version at its end."""
        path = _VERSION.sub("", urlsplit(url).path).rstrip("/")
        self._roots[origin_of(url), path] = service

    def service_of(self, origin: str, path: str) -> tuple[str, str]:
        """The service that a path belongs to, and the path below its unversioned root."""
        path_only = path.partition("?")[0]
        for (known, root), service in sorted(self._roots.items(), key=lambda row: -len(row[0][1])):
            if known == origin and (path_only == root or path_only.startswith(f"{root}/")):
                return service, path[len(root) :]
        return "identity", path

    def to_doors(self, text: bytes) -> bytes:
        """A body or header with our addresses in the place of the real ones."""
        for origin, door in self.doors.items():
            text = re.sub(re.escape(origin.encode()) + rb"(?!\d)", door.encode(), text)
        return text
