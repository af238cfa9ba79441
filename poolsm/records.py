"""Raw observations: what the cloud said, before anyone has interpreted it (C4).

These classes mirror the fields of Nova's, Glance's and Neutron's answers that any rule
reads. Field values are the cloud's own (status spelling, ISO 8601 timestamps), so that an
interpretation that proves wrong can be corrected and the log replayed.
"""

from __future__ import annotations

from attrs import frozen


@frozen(weakref_slot=False)
class ServerRecord:
    """One server of a Nova listing (``GET /servers/detail``, microversion >= 2.69).

    Attributes:
        server_id: Nova's UUID.
        status: Nova's status, upper case (``ACTIVE``, ``BUILD``, ``UNKNOWN`` ...).
        name: display name; None in the partial record of a cell that is down.
        task_state: Nova's ``OS-EXT-STS:task_state``; None when nothing is under way.
        metadata: the server's metadata; None when the record carries none at all (a cell
            that is down), which is not the same as an empty mapping.
        image_id: UUID of the image it was built from; None for boot from volume.
        flavor_id: id or, from microversion 2.47 on, name of the flavor as Nova embeds it.
        key_name: the key pair it was created with.
        addresses: ``<network name>:<ip>`` for each address, in Nova's order.
        created: ISO 8601 UTC timestamp as Nova gives it.
        fault: text of the fault of a server in ERROR.
        progress: 0 to 100.
    """

    server_id: str
    status: str
    name: str | None = None
    task_state: str | None = None
    metadata: dict[str, str] | None = None
    image_id: str | None = None
    flavor_id: str | None = None
    key_name: str | None = None
    addresses: tuple[str, ...] = ()
    created: str = ""
    fault: str | None = None
    progress: int = 0


@frozen
class ImageRecord:
    """One image of a Glance listing, as the listing project sees it.

    Attributes:
        status: ``active``, ``queued``, ``deactivated`` ...
        visibility: ``public``, ``private``, ``shared`` or ``community``. Glance lists a
            ``shared`` image of another project only once its membership is accepted.
        owner: id of the project that owns it.
        created: ISO 8601 UTC timestamp as Glance gives it.
    """

    image_id: str
    name: str | None
    status: str
    visibility: str
    owner: str | None
    created: str = ""


@frozen
class FlavorRecord:
    """One flavor of a Nova listing."""

    flavor_id: str
    name: str
    vcpus: int = 0
    ram_mb: int = 0
    disk_gb: int = 0


@frozen
class NetworkRecord:
    """One network of a Neutron listing."""

    network_id: str
    name: str
    status: str = ""
    owner: str | None = None
    shared: bool = False
