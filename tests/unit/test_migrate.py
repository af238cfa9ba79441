"""Reading the replaced service's database, and what follows from it and the servers' metadata."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from poolsm.records import ServerRecord
from poolsm.spec import PoolKey, PoolSpec
from poolsm_runners.control_requests import Apply, Remove, TakeOver
from poolsm_runners.environment import Environment
from poolsm_runners.migrate import snapshot
from poolsm_runners.migrate.mapping import Choices, map_database, problems_of
from poolsm_runners.migrate.report import outcome_of
from poolsm_runners.migrate.servers import compare
from poolsm_runners.migrate.snapshot import OldDatabaseError, digests
from poolsm_runners.migrate.tables import read_old_database
from poolsm_runners.migrate.users import users
from poolsm_runners.operations import ConfigDeclaration, PoolDeclaration, RefusedError
from poolsm_runners.session import opened_state, perform, rehearse
from poolsm_runners.takeover import AttributionDeclaration
from tests.tools.olddb import POOL, SCHEMA, insert, make

ORIGIN = "migration of old.db"
KEY = PoolKey("tp", "alice")


def mapped(path, environment=None, **choices):
    return map_database(read_old_database(path), environment or Environment(), Choices(**choices))


def specs(found):
    return {pool.spec.serverpool_id: pool.spec for pool in found.pools.values()}


# --- the file ---------------------------------------------------------------------------------


def sides(path):
    """Bytes and times of a database and all that lies beside it."""
    return {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(path.parent.iterdir())
    }


@pytest.mark.parametrize("wal", [False, True])
def test_an_open_database_is_read_and_left_byte_for_byte(tmp_path, wal):
    path = make(tmp_path / "old.db", pools=[{"serverpool_id": "tp"}], wal=wal)
    with closing(sqlite3.connect(path, isolation_level=None)) as service:
        insert(service, "serverpools", {**POOL, "serverpool_id": "late"})  # in the -wal alone
        before = sides(path)
        assert ("old.db-wal" in before) is wal
        assert set(specs(mapped(path))) == {"tp", "late"}
        assert sides(path) == before
        insert(service, "serverpools", {**POOL, "serverpool_id": "later"})  # nothing is locked


def test_what_a_killed_service_left_in_its_wal_is_read_and_stays(tmp_path):
    path = make(tmp_path / "old.db", wal=True)
    pid = os.fork()
    if pid == 0:
        service = sqlite3.connect(path, isolation_level=None)
        insert(service, "serverpools", {**POOL, "serverpool_id": "tp"})
        os._exit(0)  # as kill -9 would: no checkpoint
    os.waitpid(pid, 0)
    before = sides(path)
    assert len(before["old.db-wal"][0]) > 0
    assert set(specs(mapped(path))) == {"tp"}
    assert sides(path) == before


def test_an_unfinished_transaction_is_not_read(tmp_path):
    path = make(tmp_path / "old.db", pools=[{"serverpool_id": "tp"}])
    with closing(sqlite3.connect(path, isolation_level=None)) as service:
        service.execute("PRAGMA cache_size = 1")  # so that it spills into the file
        service.execute("BEGIN")
        for number in range(2000):
            insert(service, "config_pools", {"name": f"c{number}", "data": "x" * 500})
        service.execute("DELETE FROM serverpools")
        assert path.with_name("old.db-journal").exists()
        old = read_old_database(path)
        service.execute("ROLLBACK")
    assert (len(old.pools), len(old.configs)) == (1, 0)


def test_digests_tell_of_every_write(tmp_path):
    path = make(tmp_path / "old.db", servers=[{"id": "s-1", "reattrib": 0}], wal=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as service:
        before = digests(path)
        service.execute("UPDATE servers SET reattrib = 1")  # in the -wal alone
        assert digests(path) != before
        before = digests(path)
        service.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert digests(path) != before


OPEN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM servers").fetchone()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("wal", [False, True])
def test_who_has_it_open_is_named(tmp_path, wal):
    path = make(tmp_path / "old.db", wal=wal)
    assert users(path) == ()
    service = subprocess.Popen(
        [sys.executable, "-c", OPEN, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with service:
        service.stdout.readline()
        assert [text.split()[1] for text in users(path)] == [str(service.pid)]
    assert users(path) == ()


def test_a_lock_is_seen_where_the_process_is_not(tmp_path, monkeypatch):
    path = make(tmp_path / "old.db", wal=True)
    monkeypatch.setattr("poolsm_runners.migrate.users._openers", lambda _: set())
    with subprocess.Popen(
        [sys.executable, "-c", OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as service:
        service.stdout.readline()
        assert [text.split()[1] for text in users(path)] == [str(service.pid)]


def test_a_file_that_is_written_without_a_pause_is_refused(tmp_path, monkeypatch):
    path = make(tmp_path / "old.db")
    (folder := tmp_path / "copy").mkdir()
    writes = 3
    pauses = []
    real = snapshot._read

    def read(source, target):
        nonlocal writes
        found = real(source, target)
        if target is not None and writes:  # between the copy and the second look
            writes -= 1
            with path.open("ab") as file:
                file.write(b"x")
        return found

    monkeypatch.setattr(snapshot, "_read", read)
    snapshot.copy(path, folder, pauses.append)
    assert len(pauses) == 3
    assert (folder / "old.db").read_bytes() == path.read_bytes()
    writes = 10**6
    with pytest.raises(OldDatabaseError, match="written without a pause"):
        snapshot.copy(path, folder, pauses.append)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("CREATE TABLE servers (id, reattrib)", r"no table serverpools; its tables: servers"),
        (
            SCHEMA.replace("    reattrib numeric DEFAULT false,\n", ""),
            r"table servers: has no column reattrib; its columns: config_id, flavor_ref, host, id",
        ),
        (
            SCHEMA.replace("min_vm integer,\n    max_vm integer,", "minimum integer,"),
            r"table serverpools: has no column min_vm, max_vm; .*minimum",
        ),
        (
            SCHEMA.replace("min_vm integer,", "min_vm integer, MinVM integer,"),
            r"table serverpools: min_vm and MinVM are both min_vm",
        ),
    ],
)
def test_a_layout_that_is_not_known_is_named(tmp_path, schema, told):
    path = make(tmp_path / "old.db", schema=schema)
    with pytest.raises(OldDatabaseError, match=told):
        read_old_database(path)


def test_all_that_is_missing_is_told_at_once(tmp_path):
    with pytest.raises(OldDatabaseError) as caught:
        read_old_database(make(tmp_path / "old.db", schema="CREATE TABLE other (x)"))
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("content", [b"", b"not a database, by far" * 99])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "old.db"
    path.write_bytes(content)
    with pytest.raises(OldDatabaseError, match=r"old\.db: (is no SQLite|has no table)"):
        read_old_database(path)
    with pytest.raises(OldDatabaseError, match="there is no such file"):
        read_old_database(tmp_path / "none.db")


def test_columns_go_by_any_spelling_and_strange_ones_are_told(tmp_path):
    schema = """
    CREATE TABLE ServerPools (ServerpoolID text, UserID text, MinVM int, MaxVM int,
        ImageRef text, FlavorRef text, Networks text, DeletedAt datetime, timewindow text);
    CREATE TABLE Servers (ServerID text, Reattrib bool, id integer);
    CREATE TABLE config_pools (Name text, Data text);
    INSERT INTO ServerPools VALUES ('tp', 'alice', 1, 2, 'img', 'tiny', 'n-1, n-2', NULL, 'x');
    INSERT INTO ServerPools VALUES ('old', 'alice', 1, 2, 'img', 'tiny', '', '2026-01-01', '');
    INSERT INTO Servers VALUES ('s-1', 'true', 7);
    """
    found = mapped(make(tmp_path / "old.db", schema=schema))
    assert list(specs(found)) == ["tp"]
    assert specs(found)["tp"].networks == ("n-1", "n-2")
    assert found.attributed == {"s-1": True}
    notes = " ".join(found.notes)
    assert "columns that poolsm has no use for: timewindow" in notes
    assert "1 rows have a deleted_at" in notes
    assert "column id is not read: ServerID is" in notes


# --- the rows ---------------------------------------------------------------------------------


def test_a_row_becomes_the_pool_that_a_pool_file_would_declare(tmp_path):
    path = make(
        tmp_path / "old.db",
        pools=[
            {
                "serverpool_id": "intro",
                "networks": '["lab-net", "other"]',
                "config_id": "7",
                "config_data": "#!/bin/sh\necho own\n",
                "off_days": "sunday,saturday",
                "image_ref": "",
            },
            {"serverpool_id": "pool_vms", "user_id": "admin", "max_vm": 0},
        ],
        configs=[{"id": 7, "user_id": "system", "name": "jupyter-snapshot-a", "data": "x"}],
    )
    found = mapped(path, key_name="admin-key")
    intro, warm = specs(found)["intro"], specs(found)["pool_vms"]
    assert intro.networks == ("lab-net", "other")
    assert intro.config_id == "jupyter-snapshot-a"
    assert intro.off_days == ("saturday", "sunday")
    assert (intro.warm, intro.warm_match, intro.key_name) == (False, "hardware", "admin-key")
    assert (warm.warm, warm.max_vm) == (True, 0)
    assert [pool.config_data for pool in found.pools.values()] == ["#!/bin/sh\necho own\n", None]
    assert found.configs == (ConfigDeclaration("system", "jupyter-snapshot-a", "x"),)
    assert not found.problems
    assert not found.invalid


def test_every_row_that_is_wrong_is_named_at_once(tmp_path):
    path = make(
        tmp_path / "old.db",
        pools=[
            {"serverpool_id": "many", "min_vm": 5, "max_vm": 2},
            {"serverpool_id": "words", "min_vm": "two", "off_days": "Samstag"},
            {"serverpool_id": "null", "max_vm": None},
            {"serverpool_id": "nets", "networks": '[{"uuid": "n"}]'},
            {"serverpool_id": "fine"},
            {"serverpool_id": "fine", "min_vm": 2},
            {"serverpool_id": "large", "config_data": "#!/bin/sh\n" + os.urandom(50_000).hex()},
            {"serverpool_id": "", "user_id": ""},
        ],
        servers=[{"id": "s-1", "reattrib": "maybe"}],
        configs=[{"name": "a/b", "data": ""}, {"name": "c", "data": b"\xff"}],
    )
    found = mapped(path)
    told = "\n".join(problems_of(found, kept=(), skip_invalid=False))
    for expected in (
        'serverpools[1] "alice/many".min_vm = 5: is above max_vm = 2',
        "serverpools[2] \"alice/words\".min_vm = 'two': is no whole number",
        "serverpools[2] \"alice/words\".off_days = 'Samstag': is no English weekday",
        'serverpools[3] "alice/null".max_vm = None: is no whole number',
        'serverpools[4] "alice/nets".networks',
        'serverpools[6] "alice/fine".serverpool_id = alice/fine: is also serverpools[5]',
        'serverpools[7] "alice/large" = alice/large',
        "serverpools[8].serverpool_id",
        "servers[1].reattrib = 'maybe'",
        "config_pools[1].name = 'system/a/b'",
        "config_pools[2].data = (not shown)",
    ):
        assert expected in told, expected
    assert list(specs(found)) == ["fine"]
    kept = (PoolKey("many", "alice"),)
    assert "many" not in "\n".join(problems_of(found, kept=kept, skip_invalid=False))
    left = "\n".join(problems_of(found, kept=(), skip_invalid=True))
    assert "words" not in left
    assert "maybe" in left


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (1, True), (0, False), ("true", True), ("FALSE", False), ("t", True), ("f", False),
        (b"1", True), (None, None), ("", None),
    ],
)  # fmt: skip
def test_reattrib_is_read_in_every_spelling(tmp_path, value, read):
    path = make(tmp_path / "old.db", servers=[{"id": "s-1", "reattrib": value}])
    assert mapped(path).attributed == {"s-1": read}


# --- held against the cloud -------------------------------------------------------------------


def server(server_id, flag=None, key=KEY, **more):
    tags = {"serverpool_id": key.serverpool_id, "user_id": key.user_id, "reattrib": flag}
    metadata = {name: value for name, value in tags.items() if value is not None}
    return ServerRecord(server_id, "ACTIVE", name=server_id, metadata=metadata, **more)


@pytest.mark.parametrize(
    ("flag", "row", "verdict"),
    [
        ("true", 1, ("attributed", None, False)),
        ("true", 0, ("attributed", None, True)),
        ("true", "none", ("attributed", None, False)),
        ("false", 1, ("attributed", True, True)),
        ("false", 0, ("free", None, False)),
        ("false", None, ("attributed", True, True)),
        ("false", "none", ("unknown", True, True)),
        (None, 1, ("attributed", True, False)),
        (None, 0, ("free", False, False)),
        (None, None, ("unknown", None, True)),
        (None, "none", ("unknown", None, True)),
        ("yes", 1, ("unknown", True, True)),
        ("yes", 0, ("unknown", None, True)),
    ],
)
def test_whose_a_server_is(tmp_path, flag, row, verdict):
    standing, declared, remarked = verdict
    rows = [] if row == "none" else [{"id": "s-1", "reattrib": row}]
    found = mapped(make(tmp_path / "old.db", servers=rows))
    (judged,) = compare(found, [server("s-1", flag)], {KEY}).servers
    assert judged.standing == standing
    assert (judged.declare.attributed if judged.declare else None) is declared
    assert bool(judged.remark) is remarked
    assert judged.claimant == ("" if standing == "free" else "alice")


def test_servers_of_nobody_of_others_and_of_the_past(tmp_path):
    rows = [
        {"id": "gone", "reattrib": 1},
        {"id": "moved", "reattrib": 0, "serverpool_id": "other", "user_id": "alice"},
        {"id": "bare", "reattrib": 1, "serverpool_id": "tp", "user_id": "alice"},
        {"id": "dark", "reattrib": 1, "serverpool_id": "tp", "user_id": "alice"},
    ]
    found = mapped(make(tmp_path / "old.db", servers=rows))
    records = [
        server("moved", "false"),
        ServerRecord("bare", "ACTIVE", metadata={}),
        ServerRecord("dark", "UNKNOWN", metadata=None),
        ServerRecord("theirs", "ACTIVE", metadata={"role": "database"}),
        server("lost", "true", PoolKey("unknown", "bob")),
        ServerRecord("dying", "DELETED", metadata={"serverpool_id": "tp", "user_id": "alice"}),
    ]
    compared = compare(found, records, {KEY})
    assert {s.server_id: s.standing for s in compared.servers} == {
        "moved": "free",
        "dark": "attributed",
    }
    assert compared.others == 2
    assert compared.strays == {PoolKey("unknown", "bob"): 1}
    assert compared.gone == ("gone",)
    told = "\n".join(compared.remarks)
    assert "server moved: the database has it in pool alice/other" in told
    assert "server bare: the database has it in pool alice/tp, its metadata says of no pool" in told


# --- declared ---------------------------------------------------------------------------------


def request(max_vm=3):
    spec = PoolSpec("tp", "alice", 1, max_vm, "worker-image", "m1.tiny", ("lab-net",))
    return TakeOver(
        (PoolDeclaration(spec, "#!/bin/sh\necho sesame\n"),),
        (ConfigDeclaration("system", "intro", "#!/bin/sh\n"),),
        (AttributionDeclaration("s-1", attributed=True, claimant="alice"),),
    )


def test_the_same_twice_is_the_same(tmp_path):
    log = tmp_path / "log.db"
    rehearsed, _ = rehearse(log, request(), origin=ORIGIN)
    assert not log.exists()
    first, _ = perform(log, request(), origin=ORIGIN)
    assert first.lines == rehearsed.lines
    assert first.lines == (
        "config system/intro: declared",
        "pool alice/tp: declared",
        "attributions: 1 declared, 0 known",
    )
    second, _ = perform(log, request(), origin=ORIGIN)
    assert second.position == first.position
    assert second.lines[-1] == "attributions: 0 declared, 1 known"
    with opened_state(log) as (state, _):
        assert state.declared["s-1"].claimant == "alice"


def test_a_later_migration_follows_the_database(tmp_path):
    log = tmp_path / "log.db"
    perform(log, request(), origin=ORIGIN)
    done, _ = perform(log, request(max_vm=9), origin="migration of newer.db")
    assert outcome_of("pool alice/tp", done.lines, "") == "changed"
    with opened_state(log) as (state, _):
        assert state.pools[KEY].spec.max_vm == 9


def test_what_was_declared_since_stays_and_is_told(tmp_path):
    log = tmp_path / "log.db"
    perform(log, request(), origin=ORIGIN)
    theirs = request(max_vm=7)
    perform(
        log,
        Apply(theirs.pools, (ConfigDeclaration("system", "intro", "#!/bin/sh\ntrue\n"),)),
        origin="file pools.toml",
    )
    done, _ = perform(log, request(), origin=ORIGIN)
    kept = "kept as it is: declared by file pools.toml"
    assert done.lines[:2] == (f"config system/intro: {kept}", f"pool alice/tp: {kept}")
    with opened_state(log) as (state, _):
        assert state.pools[KEY].spec.max_vm == 7


def test_a_pool_that_is_being_removed_is_not_brought_back(tmp_path):
    log = tmp_path / "log.db"
    perform(log, request(), origin=ORIGIN)
    perform(log, Remove("tp"), origin="command line of ann")
    done, _ = perform(log, request(), origin=ORIGIN)
    assert "pool alice/tp: kept as it is: it is being removed" in done.lines
    with opened_state(log) as (state, _):
        assert state.pools[KEY].state == "draining"


def test_what_is_refused_leaves_no_trace(tmp_path):
    log = tmp_path / "log.db"
    wrong = request()
    pool = PoolDeclaration(wrong.pools[0].spec, "#!/bin/sh\n" + os.urandom(50_000).hex())
    with pytest.raises(RefusedError, match="65535"):
        rehearse(log, TakeOver((pool,), wrong.configs, wrong.attributions), origin=ORIGIN)
    assert not log.exists()
