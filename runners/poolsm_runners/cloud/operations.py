"""What a request to a cloud is, in one word of a fixed set: for metrics and traces."""

from __future__ import annotations

import re

# service, method, path without its query: what it is. Anything else is "other".
_OPERATIONS = tuple(
    (service, method, re.compile(pattern), operation)
    for service, method, pattern, operation in (
        ("compute", "GET", r"/servers/detail", "list_servers"),
        ("compute", "GET", r"/flavors/detail", "list_flavors"),
        ("compute", "GET", r"/servers/[^/]+", "read_server"),
        ("compute", "POST", r"/servers", "create_server"),
        ("compute", "PUT", r"/servers/[^/]+", "rename_server"),
        ("compute", "DELETE", r"/servers/[^/]+", "delete_server"),
        ("compute", "POST", r"/servers/[^/]+/action", "act_on_server"),
        ("compute", "POST", r"/servers/[^/]+/metadata", "write_metadata"),
        ("image", "GET", r"/images", "list_images"),
        ("network", "GET", r"/networks", "list_networks"),
    )
)


def operation(service: str, method: str, path: str) -> str:
    """What a request is, in one word of a fixed set."""
    bare = path.partition("?")[0]
    for its_service, its_method, pattern, name in _OPERATIONS:
        if service == its_service and method == its_method and pattern.fullmatch(bare):
            return name
    return "other"
