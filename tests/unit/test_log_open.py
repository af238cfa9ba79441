"""Opening: what is no log of ours is refused in one line and left exactly as it was."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from poolsm.entries import Entry
from poolsm.events import RunnerStopped
from poolsm_runners.log import files, lock, schema, sqlite
from poolsm_runners.log.port import LogLockedError, LogOpenError

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "runners")))}
EVENTS = 400

KILLED_WRITER = """
import asyncio, os, sys
from poolsm.entries import Entry
from poolsm.events import RunnerStopped
from poolsm_runners.log import sqlite
async def main():
    log = await sqlite.open_for_append(sys.argv[1])
    last = log.last_position()
    await log.append([
        Entry(last + n, RunnerStopped(at_ms=n, why="y" * 200)) for n in range(1, 101)
    ])
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
HOLDER = """
import asyncio, sys
from poolsm_runners.log import sqlite
async def main():
    log = await sqlite.open_for_append(sys.argv[1])
    print("held", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A log at rest, and one whose runner was killed: (path, path with a write-ahead log)."""
    folder = tmp_path_factory.mktemp("sound")

    async def make():
        async with await sqlite.create(folder / "rest.db", created_ms=0) as log:
            await log.append(
                [Entry(n, RunnerStopped(at_ms=n, why=f"{n}" * 60)) for n in range(1, EVENTS + 1)]
            )

    asyncio.run(make())
    shutil.copy(folder / "rest.db", folder / "killed.db")
    subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, folder / "killed.db"], env=ENV, check=False
    )
    assert (folder / "killed.db-wal").stat().st_size
    return folder


def take(sound, tmp_path, name):
    for found in sound.glob(f"{name}.db*"):
        if not found.name.endswith((".lock", "-shm")):
            shutil.copy(found, tmp_path / found.name.replace(name, "fleet"))
    return tmp_path / "fleet.db"


def state_of(folder):
    """Names, times and bytes of everything in a folder."""
    return {
        found.name: (
            found.lstat().st_mtime_ns,
            found.lstat().st_mode,
            found.read_bytes() if found.is_file() else None,
        )
        for found in folder.iterdir()
    }


async def assert_refused(path, match, *, create_match="exists already"):
    before = state_of(path.parent)
    for opening in (
        lambda: sqlite.open_for_append(path),
        lambda: as_coroutine(sqlite.open_read_only, path),
    ):
        with pytest.raises(LogOpenError, match=match) as caught:
            await opening()
        text = str(caught.value)
        assert "\n" not in text
        assert str(path) in text
        assert state_of(path.parent) == before
    with pytest.raises(LogOpenError, match=create_match):
        await sqlite.create(path, created_ms=0)
    assert state_of(path.parent) == before


def start(command, **options):
    return subprocess.Popen(command, **options)


def run(command, **options):
    return subprocess.run(command, check=False, **options)


async def as_coroutine(function, *arguments):
    return function(*arguments)


def foreign_sqlite(path, *pragmas):
    with closing(sqlite3.connect(path)) as connection, connection:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (1)")


FOREIGN = {
    "plain text": b"Dear diary\n" * 50,
    "one byte": b"x",
    "json lines": b'{"format":"poolsm-log","version":1}\n' * 20,
    "gzip": gzip.compress(b"x" * 5000),
    "noise": random.Random(1).randbytes(20_000),
    "zeros": bytes(8192),
    "half a magic": b"SQLite form",
    "magic and noise": b"SQLite format 3\0" + random.Random(2).randbytes(8176),
    "elf": b"\x7fELF" + bytes(5000),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
async def test_a_file_that_is_not_sqlite(tmp_path, content):
    path = tmp_path / "fleet.db"
    path.write_bytes(content)
    path.chmod(0o640)
    await assert_refused(path, "not an SQLite file.*name another file")


async def test_an_empty_file(tmp_path):
    (tmp_path / "fleet.db").touch()
    await assert_refused(tmp_path / "fleet.db", "is empty, so not a log; restore a backup")


@pytest.mark.parametrize("application_id", [0, 0x0F055112, -1])
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
async def test_a_database_of_something_else(tmp_path, application_id, mode):
    path = tmp_path / "fleet.db"
    foreign_sqlite(path, f"journal_mode = {mode}", f"application_id = {application_id}")
    await assert_refused(path, "SQLite database of something else.*application_id")


async def test_a_database_of_something_else_with_a_waiting_write_ahead_log(tmp_path):
    live = tmp_path / "live"
    live.mkdir()
    with closing(sqlite3.connect(live / "fleet.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        for name in ("fleet.db", "fleet.db-wal"):
            shutil.copy(live / name, tmp_path / name)
    await assert_refused(tmp_path / "fleet.db", "something else")


async def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nothing")
    for name in ("pipe", "folder"):
        await assert_refused(tmp_path / name, "is not a regular file")
    for name in ("absent", "no/such/folder", "dangling"):
        for opening in (
            sqlite.open_for_append,
            lambda path: as_coroutine(sqlite.open_read_only, path),
        ):
            with pytest.raises(LogOpenError, match="no such log"):
                await opening(tmp_path / name)
    assert {found.name for found in tmp_path.iterdir()} == {"pipe", "folder", "dangling"}


@pytest.mark.parametrize(("version", "match"), [(3, "format 3.*newer one"), (0, "no release")])
@pytest.mark.parametrize("name", ["rest", "killed"])
async def test_another_format(sound, tmp_path, version, match, name):
    path = take(sound, tmp_path, name)
    if name == "rest":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
    else:  # in the write-ahead log alone
        code = (
            "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
            f"c.execute('PRAGMA user_version = {version}'); os.kill(os.getpid(), 9)"
        )
        run([sys.executable, "-c", code, path])
        path.with_name("fleet.db-shm").unlink()
        assert path.with_name("fleet.db-wal").stat().st_size
    await assert_refused(path, match)


@pytest.mark.parametrize("cut", [1, 50, 100, 511, 4096, 4097, 10_000, -4096, -100, -1])
async def test_a_log_that_was_cut_off(sound, tmp_path, cut):
    path = take(sound, tmp_path, "rest")
    path.write_bytes(path.read_bytes()[:cut])
    await assert_refused(path, "is damaged.*restore a backup|not an SQLite file")


@pytest.mark.parametrize("name", ["rest", "killed"])
async def test_a_log_with_overwritten_pages(sound, tmp_path, name):
    path = take(sound, tmp_path, name)
    content = bytearray(path.read_bytes())
    for page in range(2, len(content) // 4096 - 1, 2):
        content[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    path.write_bytes(content)
    await assert_refused(path, "is damaged.*restore a backup")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE position = 7",
        "DELETE FROM events WHERE position = 1",
        "UPDATE events SET position = 1000 WHERE position = 400",
        "DELETE FROM header",
        "DROP TABLE header",
        "DROP TABLE events",
    ],
)
async def test_a_log_with_something_missing(sound, tmp_path, statement):
    path = take(sound, tmp_path, "rest")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    await assert_refused(path, "is damaged")


async def test_a_killed_runners_log_is_read_with_its_write_ahead_log(sound, tmp_path):
    path = take(sound, tmp_path, "killed")
    before = state_of(tmp_path)
    files.check(path)
    assert files.identify(path) == schema.FORMAT_VERSION
    assert state_of(tmp_path) == before
    assert sqlite.open_read_only(path).last_position() == EVENTS + 100
    async with await sqlite.open_for_append(path) as log:
        assert log.last_position() == EVENTS + 100
        await log.append([Entry(EVENTS + 101, RunnerStopped(at_ms=0, why=""))])
    assert len(list(sqlite.open_read_only(path).read())) == EVENTS + 101


def test_a_killed_runners_log_in_a_folder_that_cannot_be_written_is_not_read_in_part(sound):
    code = (
        "import os, sys; from poolsm_runners.log import port, sqlite\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try: sqlite.open_read_only(sys.argv[1])\n"
        "except port.LogOpenError as error: print(error)"
    )
    folder = Path(tempfile.mkdtemp())
    try:
        path = take(sound, folder, "killed")
        for name in ("fleet.db", "fleet.db-wal"):
            (folder / name).chmod(0o444)
        folder.chmod(0o555)
        result = run([sys.executable, "-c", code, path], env=ENV, capture_output=True, text=True)
        assert "its runner was killed and its folder cannot be written" in result.stdout, result
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


async def test_half_a_checkpoint_is_no_damage(sound, tmp_path):
    # The first page already tells the new size, the file does not have it yet.
    path = take(sound, tmp_path, "killed")
    (tmp_path / "whole").mkdir()
    whole = take(sound, tmp_path / "whole", "killed")
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    path.write_bytes(whole.read_bytes()[:4096] + content[4096:])
    assert sqlite.open_read_only(path).last_position() == EVENTS + 100
    async with await sqlite.open_for_append(path) as log:
        assert log.last_position() == EVENTS + 100


async def test_strange_names(tmp_path):
    for name in ("a b?mode=memory#x%41", "é.db"):
        async with await sqlite.create(tmp_path / name, created_ms=0) as log:
            await log.append([Entry(1, RunnerStopped(at_ms=0, why=""))])
        assert sqlite.open_read_only(str(tmp_path / name)).last_position() == 1
        assert (tmp_path / name).is_file()


async def test_creating_never_replaces_anything(tmp_path):
    path = tmp_path / "fleet.db"
    await (await sqlite.create(path, created_ms=0)).close()
    (tmp_path / "link").symlink_to("fleet.db")
    (tmp_path / "dangling").symlink_to("gone/nowhere")
    before = state_of(tmp_path)
    for name in ("fleet.db", "link"):
        with pytest.raises(LogOpenError, match="exists already"):
            await sqlite.create(tmp_path / name, created_ms=0)
    for name in ("no/such/folder", "dangling"):
        with pytest.raises(LogOpenError, match="no log can be made here"):
            await sqlite.create(tmp_path / name, created_ms=0)
    assert state_of(tmp_path) == before


def test_a_log_in_a_folder_that_cannot_be_written_is_read(sound):
    code = (
        "import asyncio, concurrent.futures.thread, os, sys\n"
        "from poolsm_runners.log import port, sqlite\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)  # root may write anywhere\n"
        "if not os.access(os.path.dirname(sys.argv[1]), os.W_OK):\n"
        "    print(len(list(sqlite.open_read_only(sys.argv[1]).read())))\n"
        "try: asyncio.run(sqlite.open_for_append(sys.argv[1]))\n"
        "except port.LogOpenError as error: print(error)"
    )
    folder = Path(tempfile.mkdtemp())
    try:
        path = take(sound, folder, "rest")
        path.chmod(0o444)
        folder.chmod(0o555)
        result = run([sys.executable, "-c", code, path], env=ENV, capture_output=True, text=True)
        lines = result.stdout.splitlines()
        assert lines[0] == str(EVENTS), result.stderr
        assert re.search("fleet.db: its lock file cannot be written .*Permission denied", lines[1])
        assert [found.name for found in folder.iterdir()] == ["fleet.db"]
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


# --- the lock ---


async def test_a_second_writer_is_refused_by_name_and_the_lock_dies_with_its_process(
    sound, tmp_path
):
    path = take(sound, tmp_path, "rest")
    (tmp_path / "other name").symlink_to("fleet.db")
    with start(
        [sys.executable, "-c", HOLDER, path], env=ENV, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            for name in ("fleet.db", "other name"):
                with pytest.raises(LogLockedError, match=rf"pid {holder.pid} on .* since 20\d\d-"):
                    await sqlite.open_for_append(tmp_path / name)
            assert sqlite.open_read_only(path).last_position() == EVENTS
            assert lock.is_held(path)
        finally:
            holder.send_signal(signal.SIGKILL)
    assert not lock.is_held(path)
    async with await sqlite.open_for_append(path) as log:
        assert log.last_position() == EVENTS
        with pytest.raises(LogLockedError, match=f"pid {os.getpid()}"):
            await sqlite.open_for_append(path)
        assert lock.is_held(path)  # the refused one did not take it along
    await (await sqlite.open_for_append(path)).close()


async def test_looking_whether_a_log_is_locked_does_not_refuse_a_runner(sound, tmp_path):
    path = take(sound, tmp_path, "rest")
    code = (
        "import sys, pathlib; from poolsm_runners.log.lock import is_held\n"
        "print('up', flush=True)\n"
        "while True: is_held(pathlib.Path(sys.argv[1]))"
    )
    await (await sqlite.open_for_append(path)).close()
    with start([sys.executable, "-c", code, path], env=ENV, stdout=subprocess.PIPE) as prober:
        try:
            prober.stdout.readline()
            for _ in range(20):
                await (await sqlite.open_for_append(path)).close()
        finally:
            prober.kill()


# --- network file systems, migration ---


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/data/x", None),
        ("/mnt/nfs/x", "nfs4"),
        ("/mnt/nfs/local/x", None),
        ("/mnt/with blank/x", "cifs"),
        ("/mnt/nfsish", None),
        ("/over", None),
    ],
)
def test_network_file_systems(tmp_path, folder, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\nserver:/x /mnt/nfs nfs4 rw 0 0\n"
        "/dev/vdb /mnt/nfs/local xfs rw 0 0\n//s/x /mnt/with\\040blank cifs rw 0 0\n"
        "server:/y /over nfs rw 0 0\ntmpfs /over tmpfs rw 0 0\n"
    )
    path = Path(folder) / "fleet.db"
    if kind is None:
        files.refuse_network(path, mounts)
    else:
        with pytest.raises(LogOpenError, match=f"network file system .{kind} at .*local disk"):
            files.refuse_network(path, mounts)
    files.refuse_network(path, tmp_path / "absent")


def test_an_sqlite_that_is_too_old():
    files.refuse_old_sqlite((3, 37, 0))
    with pytest.raises(LogOpenError, match=r"SQLite 3\.34\.1: is too old .*3\.37\.0"):
        files.refuse_old_sqlite((3, 34, 1))


def test_migration_is_one_transaction(sound, tmp_path):
    path = take(sound, tmp_path, "rest")
    steps = {2: ["CREATE TABLE a (x)"], 3: ["CREATE TABLE b (x)", "INSERT INTO a VALUES (1)"]}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:

        def found():
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
            return connection.execute("PRAGMA user_version").fetchone()[0], tables & {"a", "b"}

        with pytest.raises(sqlite3.OperationalError):
            schema.migrate(connection, 2, 4, {**steps, 3: ["CREATE TABLE b (x)", "nonsense"]})
        assert found() == (2, set())
        with pytest.raises(KeyError):
            schema.migrate(connection, 2, 5, steps)
        assert found() == (2, set())
        schema.migrate(connection, 2, 4, steps)
        assert found() == (4, {"a", "b"})
