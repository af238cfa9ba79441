"""The served cloud and the lab as the reckoning sees them."""

from collections import Counter

from poolsm.commands import COMMAND_ID, SERVERPOOL_ID
from tests.chaos.killing import Server
from tests.integration.served import ServedCloud
from tests.lab.openstack.client import LabClient


class ServedSide:
    """The simulated cloud keeps the story of each server for ever."""

    def __init__(self, cloud: ServedCloud) -> None:
        self._cloud = cloud

    def live(self) -> list[Server]:
        return [
            Server(s.server_id, s.name, s.status, s.task_state, s.metadata)
            for s in self._cloud.live()
        ]

    def creates(self) -> Counter[str]:
        return Counter(self._cloud.creates())

    def writes(self) -> list[str]:
        return self._cloud.writes()

    def deleted_by_us_while_attributed(self) -> list[str]:
        """Servers that a DELETE call removed while their tags said that they are somebody's."""
        return [
            story.server_id
            for story in self._cloud.stories()
            if story.deletes and story.metadata.get("reattrib") == "true"
        ]


class LabSide:
    """Nova keeps deleted servers, too, but without their metadata: their names tell them.

    Args:
        lab: with no server in the project that ours do not concern.
        prefix: with which the names of the pools begin, new for each test.
    """

    def __init__(self, lab: LabClient, prefix: str) -> None:
        self._lab = lab
        self._prefix = prefix

    def live(self) -> list[Server]:
        return [
            Server(
                row["id"],
                row["name"],
                row["status"],
                row["OS-EXT-STS:task_state"],
                row["metadata"],
            )
            for row in self._lab.servers("vmpool")
        ]

    def creates(self) -> Counter[str]:
        rows = [*self._lab.servers("vmpool"), *self._lab.servers("vmpool", deleted="true")]
        names = {row["id"]: row for row in rows if row["name"].startswith(self._prefix)}
        return Counter(_command_of(row) for row in names.values())

    def writes(self) -> list[str]:
        """Calls of the program under test that change something, by Nova's access log."""
        lines = self._lab.access_log("nova-api")
        return [line for line in lines if " poolsm " in line and line.split(" ")[1] != "GET"]


def _command_of(row: dict[str, object]) -> str:
    """A server is named after its pool and its create command (R5)."""
    metadata = row["metadata"]
    if isinstance(metadata, dict) and metadata.get(COMMAND_ID):
        assert str(row["name"]) == f"{metadata[SERVERPOOL_ID]}-{metadata[COMMAND_ID]}"
    return str(row["name"])[-36:]
