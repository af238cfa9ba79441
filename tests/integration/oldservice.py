"""What the replaced service leaves behind: servers with its metadata, and its database.

It makes servers as that service did, by plain Nova calls, so nothing in them is poolsm's: no log
id, no command id, and whatever the test says of ``reattrib``.
"""

import sqlite3
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from openstack.connection import Connection

from tests.integration.running import until
from tests.tools.olddb import POOL, insert, make

Tags = Mapping[str, str]


class OldService:
    """Servers of its making, and its rows."""

    def __init__(
        self, path: Path, connection: Connection, *, image: str, flavor: str, network: str
    ) -> None:
        self.path = make(path, wal=True)
        self._connection = connection
        self._made_of = (image, flavor, network)

    def pool(self, serverpool_id: str, user_id: str, **columns: object) -> None:
        """One row of serverpools."""
        self._insert(
            "serverpools", {**POOL, "serverpool_id": serverpool_id, "user_id": user_id, **columns}
        )

    def config(self, user_id: str, name: str, data: str) -> None:
        """One row of config_pools."""
        self._insert("config_pools", {"user_id": user_id, "name": name, "data": data})

    def server(
        self,
        pool: str,
        user: str,
        *,
        tag: str | None,
        row: bool | None,
        flavor: str = "",
    ) -> str:
        """Make a server; ``tag``: its metadata's reattrib, ``row``: its row's; None: none."""
        image, usual, network = self._made_of
        tags = {
            "user_id": user,
            "serverpool_id": pool,
            "min_vm": "1",
            "max_vm": "3",
            "host": "OpenStack",
            "network_uuid": network,
        }
        if tag is not None:
            tags["reattrib"] = tag
        name = f"{pool}-{uuid.uuid4()}"
        server_id = self.create(name, tags, image=image, flavor=flavor or usual, network=network)
        if row is not None:
            self.row(server_id, pool, user, attributed=row)
        return server_id

    def create(self, name: str, tags: Tags, *, image: str, flavor: str, network: str) -> str:
        """Any server at all."""
        made: Any = self._connection.compute.create_server(
            name=name,
            image_id=image,
            flavor_id=flavor,
            networks=[{"uuid": network}],
            metadata=dict(tags),
        )
        return str(made.id)

    def stranger(self) -> str:
        """A server of somebody else in the project."""
        image, flavor, network = self._made_of
        return self.create("database", {"role": "db"}, image=image, flavor=flavor, network=network)

    def row(self, server_id: str, pool: str, user: str, *, attributed: bool) -> None:
        """One row of servers."""
        self._insert(
            "servers",
            {"id": server_id, "serverpool_id": pool, "user_id": user, "reattrib": attributed},
        )

    def settled(self, seconds: float) -> None:
        """Wait until no server is in BUILD."""
        until("every server is built", lambda: "BUILD" not in self.statuses().values(), seconds)

    def statuses(self) -> dict[str, str]:
        """Nova's status of every server of the project."""
        return {s.id: str(s.status) for s in self._connection.compute.servers()}

    def tags(self, server_id: str) -> dict[str, str]:
        """A server's metadata."""
        found: Any = self._connection.compute.get_server(server_id)
        return dict(found.metadata)

    def _insert(self, table: str, row: Mapping[str, object]) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            insert(connection, table, row)
