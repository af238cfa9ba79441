"""Whose each server is: the old database and the cloud's metadata, held against each other.

Metadata is what poolsm goes by (R11); the database adds what the metadata does not say. Where
the two differ, the VM is somebody's: a VM that is wrongly kept costs an operator one release,
one that is wrongly deleted costs its user everything on it.

=============  ===========  ================================  ==========================
metadata       database     the VM is                         declared to poolsm
=============  ===========  ================================  ==========================
``true``       anything     attributed                        nothing: metadata proves it
``false``      attributed   attributed                        attributed
``false``      free         free                              nothing: metadata proves it
``false``      not there    attributed                        attributed
not there      attributed   attributed                        attributed
not there      free         free                              free
not there      not there    attributed, until it is released  nothing: that is the rule
=============  ===========  ================================  ==========================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from attrs import frozen

from poolsm.commands import ATTRIBUTED, CLAIMANT, SERVERPOOL_ID, USER_ID
from poolsm.records import ServerRecord
from poolsm.spec import PoolKey
from poolsm.vm import GONE_STATUSES
from poolsm_runners.migrate.mapping import Mapping
from poolsm_runners.takeover import AttributionDeclaration

FREE = "free"
ATTRIBUTED_TO = "attributed"
UNKNOWN = "unknown"  # nobody says: counts as attributed


@frozen
class Found:
    """One server of the cloud that is of a pool.

    Attributes:
        standing: ``attributed``, ``free``, or ``unknown``, which counts as attributed.
        declare: what poolsm is to be told, None if its metadata is enough.
        remark: where database and metadata differ, or the database does not know it.
    """

    server_id: str
    name: str
    pool: PoolKey
    status: str
    key_name: str | None
    standing: str
    claimant: str = ""
    declare: AttributionDeclaration | None = None
    remark: str = ""


@frozen
class Comparison:
    """All servers, of the cloud and of the database.

    Attributes:
        servers: those of the given pools, in the cloud's order.
        others: servers of the project that carry no pool's tags: nobody's business here.
        strays: how many carry the tags of a pool that is not among the given ones.
        gone: ids of the database that the cloud does not have.
        remarks: what an operator should look at, one line each.
    """

    servers: tuple[Found, ...]
    others: int
    strays: dict[PoolKey, int]
    gone: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def declarations(self) -> tuple[AttributionDeclaration, ...]:
        """What poolsm is to be told."""
        return tuple(found.declare for found in self.servers if found.declare is not None)


def compare(
    old: Mapping, records: Sequence[ServerRecord], pools: Collection[PoolKey]
) -> Comparison:
    """Hold a complete listing against the database."""
    servers: list[Found] = []
    strays: Counter[PoolKey] = Counter()
    others = 0
    remarks: list[str] = []
    live = [record for record in records if record.status not in GONE_STATUSES]
    for record in live:
        key = _pool_of(record, old)
        if key in pools:
            found = _found(record, key, old)
            servers.append(found)
        elif all(key):
            strays[key] += 1
        else:
            others += 1
        owner = old.owners.get(record.server_id)
        if owner is not None and owner != key:
            where = f"of pool {key}" if all(key) else "of no pool"
            remarks.append(
                f"server {record.server_id}: the database has it in pool {owner}, its metadata "
                f"says {where}, and that is what counts"
            )
    remarks += [f"server {s.server_id} ({s.pool}): {s.remark}" for s in servers if s.remark]
    gone = sorted(old.attributed.keys() - {record.server_id for record in live})
    return Comparison(tuple(servers), others, dict(strays), tuple(gone), tuple(remarks))


def _pool_of(record: ServerRecord, old: Mapping) -> PoolKey:
    """By its metadata; a record without any (a cell that is down) is what the database says."""
    if record.metadata is None:
        return old.owners.get(record.server_id, PoolKey("", ""))
    return PoolKey(record.metadata.get(SERVERPOOL_ID, ""), record.metadata.get(USER_ID, ""))


def _found(record: ServerRecord, key: PoolKey, old: Mapping) -> Found:
    metadata = record.metadata or {}
    flag = metadata.get(ATTRIBUTED)
    known = record.server_id in old.attributed
    said = old.attributed.get(record.server_id)
    claimant = metadata.get(CLAIMANT) or key.user_id
    standing, declared, remark = _judge(flag, said, known=known)
    if record.metadata is None:
        remark = "its metadata cannot be read now (a cell that is down)"
        standing, declared = (ATTRIBUTED_TO, True) if said else (UNKNOWN, None)
    declare = None
    if declared is not None:
        declare = AttributionDeclaration(record.server_id, declared, claimant if declared else "")
    return Found(
        record.server_id,
        record.name or "",
        key,
        record.status,
        record.key_name,
        standing,
        "" if standing == FREE else claimant,
        declare,
        remark,
    )


def _judge(flag: str | None, said: bool | None, *, known: bool) -> tuple[str, bool | None, str]:
    """Standing, what is to be declared, and what an operator should know."""
    database = {True: "attributed", False: "free", None: "nothing"}[said]
    if flag == "true":
        differs = known and said is False
        remark = "metadata says attributed, the database free: stays attributed" if differs else ""
        return ATTRIBUTED_TO, None, remark
    if flag == "false":
        if said is False:
            return FREE, None, ""
        if known:
            return ATTRIBUTED_TO, True, f"metadata says free, the database {database}: attributed"
        return UNKNOWN, True, "metadata says free, the database does not know it: attributed"
    if flag is not None:
        return UNKNOWN, True if said else None, f"metadata says reattrib={flag!r}: attributed"
    if said is None:
        what = "says nothing either" if known else "does not know it"
        return UNKNOWN, None, f"metadata says nothing, the database {what}: attributed"
    return (ATTRIBUTED_TO, True, "") if said else (FREE, False, "")
