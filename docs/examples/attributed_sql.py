"""From `poolsm status --vms --json` to SQL for the replaced service's `servers` table."""

import json
import sys

UPSERT = (
    "INSERT INTO servers (id, serverpool_id, user_id, reattrib) VALUES ({}, {}, {}, 1) "
    "ON CONFLICT (id) DO UPDATE SET reattrib = 1, serverpool_id = excluded.serverpool_id, "
    "user_id = excluded.user_id;"
)


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


print("BEGIN;")
for vm in json.load(sys.stdin)["vms"]:
    if vm["attributed"] and vm["server_id"]:
        user, _, pool = vm["pool"].partition("/")
        print(UPSERT.format(*map(quoted, (vm["server_id"], pool, user))))
print("COMMIT;")
