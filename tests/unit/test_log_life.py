"""Backups, restores, archives and checks of logs that real runs wrote."""

import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
import zstandard

from poolsm.replay import replay
from poolsm_runners.log import archive, schema, sqlite
from poolsm_runners.log.backup import backup
from poolsm_runners.log.checking import check_log
from poolsm_runners.log.jsonl import export_jsonl
from poolsm_runners.log.port import LogDamagedError, LogError, LogMisuseError, LogOpenError
from tests.unit.test_cli import CODE, ENV, pool_file, poolsm

RUN = ("--speed", "30", "--no-table")
EVENTS = 120


def run(log, folder, seconds, *, min_vm=2):
    pools = pool_file(folder, min_vm=min_vm, max_vm=min_vm + 2)
    poolsm("run", pools, *RUN, "--for", seconds, log=log, check=0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A log of several runs, between which the pool changed; never changed by a test."""
    folder = tmp_path_factory.mktemp("recorded")
    log = folder / "fleet.db"
    run(log, folder, 1)
    poolsm("assign", "lab", "--to", "carol", "--request-id", "r-1", "--no-wait", log=log, check=4)
    sizes = itertools.cycle((12, 1))
    while last_of(log) < EVENTS:
        run(log, folder, 1, min_vm=next(sizes))
    return log


@pytest.fixture
def log(recorded, tmp_path):
    """A copy of it to be changed."""
    path = tmp_path / "fleet.db"
    backup(recorded, path)
    return path


def running(log, folder):
    """A runner that goes on until it is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, "run", pool_file(folder, min_vm=3), *RUN, "--log", log],
        env=ENV,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 30
    while poolsm("status", log=log).stdout.find("a runner runs") < 0:
        assert time.monotonic() < end
        assert process.poll() is None
    return process


def stop(process):
    process.terminate()
    assert process.wait(30) == 0


def exported(log, out):
    with out.open("wb") as file:
        export_jsonl(sqlite.open_read_only(log), file)
    return out.read_bytes()


def edit(log, statement, *parameters):
    with closing(sqlite3.connect(log)) as connection:
        connection.execute(statement, parameters)
        connection.commit()


def last_of(log):
    return sqlite.open_read_only(log).last_position()


# --- backup and restore --------------------------------------------------------------------------


def test_a_backup_of_a_running_log_is_one_whole_moment_of_it(log, tmp_path):
    process = running(log, tmp_path)
    try:
        told = poolsm("backup", tmp_path / "copy.db", "--json", log=log, check=0)
    finally:
        stop(process)
    copy = tmp_path / "copy.db"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*copy.db-*")), "a copy is one file"
    assert check_log(copy).problems == []
    position = json.loads(told.stdout)["position"]
    assert position == last_of(copy) <= last_of(log)
    mine = list(sqlite.open_read_only(copy).read())
    assert mine == list(sqlite.open_read_only(log).read(upto=position))
    assert not list(tmp_path.glob(".*.draft*"))


def test_a_backup_never_writes_over_anything_unless_told(log, tmp_path):
    there = tmp_path / "there.db"
    there.write_text("mine")
    refused = poolsm("backup", there, log=log, check=3)
    assert "exists already; --replace" in refused.stderr
    assert there.read_text() == "mine"
    poolsm("backup", there, "--replace", log=log, check=0)
    assert check_log(there).problems == []
    assert "is the log itself" in poolsm("backup", log, "--replace", log=log, check=3).stderr


def test_a_damaged_log_gives_no_backup(log, tmp_path):
    data = bytearray(log.read_bytes())
    data[8192:12288] = os.urandom(4096)
    log.write_bytes(data)
    refused = poolsm("backup", tmp_path / "copy.db", log=log, check=3)
    assert "damaged" in refused.stderr or "malformed" in refused.stderr
    assert not (tmp_path / "copy.db").exists()


def test_restore_puts_the_old_log_aside_and_runs_on(log, tmp_path):
    copy = tmp_path / "copy.db"
    poolsm("backup", copy, log=log, check=0)
    before = last_of(copy)
    run(log, tmp_path, 2, min_vm=3)
    newer = last_of(log)
    assert "exists already; --replace" in poolsm("restore", copy, log=log, check=3).stderr
    process = running(log, tmp_path)
    try:
        held = poolsm("restore", copy, "--replace", log=log, check=3)
    finally:
        stop(process)
    assert "another runner appends to it" in held.stderr
    newer = last_of(log)
    told = json.loads(poolsm("restore", copy, "--replace", "--json", log=log, check=0).stdout)
    assert last_of(log) == before == told["restored"]["position"]
    assert last_of(told["aside"]) == newer
    run(log, tmp_path, 2)
    assert check_log(log).problems == []
    assert replay(sqlite.open_read_only(log).read()).same
    old = {row[0] for row in rows(told["aside"], "SELECT command_id FROM commands")}
    new = {row[0] for row in rows(log, "SELECT command_id FROM commands")}
    common = {row[0] for row in rows(copy, "SELECT command_id FROM commands")}
    assert old & new == common, "ids are never used twice (C3)"


def rows(log, statement):
    with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as connection:
        return connection.execute(statement).fetchall()


def test_a_killed_runners_log_is_put_aside_with_its_newest_entries(log, tmp_path):
    copy = tmp_path / "copy.db"
    poolsm("backup", copy, log=log, check=0)
    process = running(log, tmp_path)
    process.kill()
    process.wait()
    assert log.with_name(log.name + "-wal").stat().st_size
    newest = last_of(log)
    assert newest > last_of(copy)
    told = json.loads(poolsm("restore", copy, "--replace", "--json", log=log, check=0).stdout)
    assert last_of(told["aside"]) == newest
    assert check_log(told["aside"]).problems == []
    assert last_of(log) == last_of(copy)
    assert not log.with_name(log.name + "-wal").exists()


STEPS = ("before the old one is aside", "before its archive", "before the copy's", "before the end")


@pytest.mark.parametrize("step", STEPS)
def test_kill_9_while_restoring_leaves_a_log_and_all_that_was_there(log, tmp_path, step):
    copy = tmp_path / "backups" / "copy.db"
    copy.parent.mkdir()
    archived(log, last_of(log))
    poolsm("backup", copy, log=log, check=0)
    run(log, tmp_path, 1)
    there, wanted = exported(log, tmp_path / "there.jsonl"), exported(copy, tmp_path / "copy.jsonl")
    code = f"""
import os, shutil, sys
from pathlib import Path
from poolsm_runners.log import backup
def killed(*_, **__):
    os.kill(os.getpid(), 9)
step = {STEPS.index(step)}
if step == 0: backup.os.link = killed
elif step == 1: backup.shutil.move = killed
elif step == 2: backup._copy_archive = killed
else: Path.replace = killed
backup.restore(Path({str(copy)!r}), Path({str(log)!r}), replace=True)
"""
    done = subprocess.run([sys.executable, "-c", code], env=ENV, check=False)
    assert done.returncode == -signal.SIGKILL
    assert log.exists(), "a runner that starts now must not begin a new log"
    poolsm("restore", copy, "--replace", log=log, check=0)
    assert exported(log, tmp_path / "after.jsonl") == wanted
    asides = [path for path in tmp_path.glob("fleet.db.before-restore-*") if path.is_file()]
    found = []
    for aside in asides:
        with suppress(LogError):  # one of two names of it may be without the archive
            found.append(exported(aside, tmp_path / "aside.jsonl"))
    assert there in found


def test_a_backup_of_the_format_before_is_restored_and_runs_on(tmp_path):
    old, copy, log = tmp_path / "old.db", tmp_path / "copy.db", tmp_path / "fleet.db"
    run(tmp_path / "new.db", tmp_path, 1)
    made_by_format_1(old, tmp_path / "new.db")
    before = exported_rows(old)
    poolsm("backup", copy, log=old, check=0)
    assert rows(copy, "PRAGMA user_version") == [(1,)], "the release before must read it, too"
    told = poolsm("restore", copy, log=log, check=0)
    assert f"is at position {len(before)} " in told.stdout
    run(log, tmp_path, 1)
    assert exported_rows(log)[: len(before)] == before
    assert check_log(log).problems == []


def test_a_disk_that_has_no_room_for_the_copy_is_said_in_a_line(log, tmp_path):
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
import sys
sys.argv = ["poolsm", "backup", {str(tmp_path / "copy.db")!r}, "--log", {str(log)!r}]
from poolsm_runners.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENV, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "no copy of" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == []


def test_a_broken_archive_of_a_backup_changes_nothing(log, tmp_path):
    copy = tmp_path / "backups" / "copy.db"
    copy.parent.mkdir()
    archived(log, last_of(log))
    poolsm("backup", copy, log=log, check=0)
    (part,) = archive.files_of(copy)
    part.path.write_bytes(part.path.read_bytes()[:-7])
    there = exported(log, tmp_path / "there.jsonl")
    refused = poolsm("restore", copy, "--replace", log=log, check=3)
    assert part.path.name in refused.stderr
    assert exported(log, tmp_path / "after.jsonl") == there
    assert not list(tmp_path.glob("*before-restore*"))


def test_what_is_no_backup_is_not_restored(tmp_path):
    nothing = tmp_path / "nothing.db"
    nothing.write_bytes(b"x" * 5000)
    refused = poolsm("restore", nothing, log=tmp_path / "fleet.db", check=3)
    assert "not an SQLite file" in refused.stderr
    assert not (tmp_path / "fleet.db").exists()


# --- archive -------------------------------------------------------------------------------------


def archived(log, before, *more):
    told = poolsm("events", "archive", "--before", before, "--json", *more, log=log, check=0)
    return json.loads(told.stdout)["archive"]


def test_archived_events_are_read_as_if_they_were_in_the_log(log, tmp_path):
    whole = exported(log, tmp_path / "before.jsonl")
    story = poolsm("explain", "r-1", log=log, check=0).stdout
    last = last_of(log)
    assert archived(log, last, "--dry-run")["events"] > EVENTS // 2
    assert not archive.folder_of(log).exists()
    done = archived(log, last)
    assert done["upto"] + 20 > last
    ((count,),) = rows(log, "SELECT count(*) FROM events")
    assert count == last - done["upto"]
    assert exported(log, tmp_path / "after.jsonl") == whole
    assert poolsm("explain", "r-1", log=log, check=0).stdout == story
    assert poolsm("replay", log=log, check=0).stdout.endswith("decided again just so\n")
    assert check_log(log).problems == []
    run(log, tmp_path, 1)
    again = archived(log, last_of(log))
    assert again["upto"] > done["upto"]
    assert check_log(log).problems == []
    assert replay(sqlite.open_read_only(log).read()).same


def test_a_runner_goes_on_while_its_log_is_archived(log, tmp_path, monkeypatch):
    process = running(log, tmp_path)
    try:
        done = archived(log, last_of(log))
        assert done["events"] > EVENTS // 2
        assert process.poll() is None
        poolsm("assign", "lab", "--to", "dave", "--no-wait", log=log, check=4)
    finally:
        stop(process)
    assert check_log(log).problems == []
    assert replay(sqlite.open_read_only(log).read()).same


def test_archiving_gives_space_back(log):
    before = log.stat().st_size
    archived(log, last_of(log))
    with closing(sqlite3.connect(log)) as connection:
        (pages,) = connection.execute("PRAGMA freelist_count").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert pages == 0
    assert log.stat().st_size < before


def test_a_full_fold_reads_the_archive_when_no_snapshot_is_of_this_release(log):
    state = poolsm("status", "--json", log=log, check=0).stdout
    archived(log, last_of(log))
    edit(log, "UPDATE snapshots SET state_version = 0")
    assert poolsm("status", "--json", log=log, check=0).stdout == state
    (file,) = archive.files_of(log)
    file.path.rename(file.path.with_suffix(".away"))
    refused = poolsm("status", log=log, check=3)
    assert "the file that begins with position 1 is missing" in refused.stderr
    assert f"{log}.archive" in refused.stderr


@pytest.mark.parametrize("what", ["other bytes", "other text", "another log's"])
def test_an_archive_that_is_not_what_was_archived_is_named(log, what):
    archived(log, last_of(log))
    (file,) = archive.files_of(log)
    data = file.path.read_bytes()
    if what == "other bytes":
        data = data[:500] + b"\0" + data[501:]
    else:
        text = zstandard.ZstdDecompressor().decompress(data)
        old, new = (b"carol", b"david") if what == "other text" else (text[55:60], b"00000")
        data = zstandard.ZstdCompressor().compress(text.replace(old, new))
    file.path.write_bytes(data)
    with pytest.raises(LogDamagedError, match=file.path.name):
        list(sqlite.open_read_only(log).read())
    assert any(file.path.name in problem for problem in check_log(log).problems)


def test_before_means_a_position_a_time_or_an_age(log):
    ((at_ms,),) = rows(log, "SELECT at_ms FROM events WHERE position = 50")
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms // 1000))
    assert 0 < archived(log, moment, "--dry-run")["upto"] <= 50
    assert archived(log, "50", "--dry-run")["upto"] < 50
    assert archived(log, "1d", "--dry-run")["upto"] == 0
    refused = poolsm("events", "archive", "--before", "yesterday", log=log, check=1)
    assert "'yesterday': is no position, time" in refused.stderr


@pytest.mark.parametrize("wrong", ["seal", "end"])
async def test_nothing_leaves_the_log_for_an_archive_that_is_not_its_own(log, wrong):
    """The writer looks for itself: whoever asks it to remove events may be mistaken."""
    async with await sqlite.open_for_append(log) as open_log:
        reader = sqlite.open_read_only(log)
        last = reader.sealed_upto(reader.last_position())
        seal = reader.seal_at(last) if wrong == "end" else b"of another history"
        archive.write(log, reader.header.log_id, seal, reader.read_stored(0, last))
        upto = last - 1 if wrong == "end" else last
        with pytest.raises(LogMisuseError, match="is not the archive of this log"):
            await open_log.trim(upto)
        with pytest.raises(LogDamagedError, match="is missing"):
            await open_log.trim(last + 1)
    ((count,),) = rows(log, "SELECT count(*) FROM events")
    assert count == last_of(log)
    assert check_log(log).archived == 0


def test_an_archive_goes_along_with_backup_and_restore(log, tmp_path):
    whole = exported(log, tmp_path / "before.jsonl")
    archived(log, last_of(log))
    copy = tmp_path / "backup" / "copy.db"
    copy.parent.mkdir()
    told = poolsm("backup", copy, log=log, check=0)
    assert "1 files of its archive" in told.stdout
    other = tmp_path / "other.db"
    poolsm("restore", copy, log=other, check=0)
    assert exported(other, tmp_path / "after.jsonl") == whole


# each names what is done once more, the second time, by a process that dies of it
KILLS = {
    "before a file has its name": "dying(Path, 'replace')",
    "before a file is read back": "dying(archive, '_whole')",
    "between a file and its removal from the log": "dying(archiving, 'perform')",
    "between the rows of events and of commands": "schema.ARCHIVE = Dying(schema.ARCHIVE[:1])",
    "before the header says so": "schema.ARCHIVE = Dying(schema.ARCHIVE[:2])",
    "before the commit": "schema.ARCHIVE = Dying(schema.ARCHIVE)",
    "between two of the removals of one file": "dying(writer.SqliteLog, '_commit_trim')",
}
DYING = """
import os, sys
from pathlib import Path
from poolsm_runners import archiving
from poolsm_runners.log import archive, schema, writer
archive.EVENTS_PER_FILE, writer.TRIM_EVENTS = 30, 7

def die(): os.kill(os.getpid(), 9)

def dying(where, name):
    real, calls = getattr(where, name), []
    def call(*args, **more):
        calls.append(1)
        return die() if len(calls) > 1 else real(*args, **more)
    setattr(where, name, call)

class Dying(tuple):
    def __iter__(self):
        yield from super().__iter__()
        die()

sys.argv = ["poolsm", "events", "archive", "--before", "1000000", "--log", sys.argv[1]]
from poolsm_runners.cli import main
"""


@pytest.mark.parametrize("when", KILLS)
def test_kill_9_while_archiving_loses_and_doubles_nothing(log, tmp_path, when):
    whole = exported(log, tmp_path / "before.jsonl")
    code = f"{DYING}{KILLS[when]}\nmain()"
    done = subprocess.run([sys.executable, "-c", code, log], env=ENV, check=False)
    assert done.returncode == -signal.SIGKILL
    assert exported(log, tmp_path / "then.jsonl") == whole
    assert check_log(log).problems == []
    again = archived(log, last_of(log))
    assert again["events"]
    assert exported(log, tmp_path / "then.jsonl") == whole
    assert check_log(log).problems == []
    ((count,),) = rows(log, "SELECT count(*) FROM events")
    assert count == last_of(log) - again["upto"]


# --- check ---------------------------------------------------------------------------------------


def test_a_whole_log_has_no_problems(recorded):
    told = poolsm("log", "check", log=recorded, check=0)
    assert told.stdout.endswith("whole\n")
    found = check_log(recorded)
    assert (found.events, found.problems, found.unsealed) == (found.position, [], 0)
    assert found.commands
    assert found.secrets
    assert found.snapshots


EDITS = {
    "an event that causes nothing": (
        (
            "UPDATE events SET payload = replace(payload, 'carol', 'karol') "
            "WHERE kind = 'AssignmentRequested'"
        ),
        "are not what was written",
    ),
    "a command's reason": (
        (
            "UPDATE commands SET payload = replace(payload, 'missing', 'mizzing') "
            "WHERE position IN (SELECT position FROM commands LIMIT 1)"
        ),
        "are not what was written",
    ),
    "a command gone": (
        "DELETE FROM commands WHERE position IN (SELECT position FROM commands LIMIT 1)",
        "are not what was written",
    ),
    "the time in an event's column": (
        "UPDATE events SET at_ms = at_ms + 1 WHERE position = 40",
        "are not what was written",
    ),
    "a command's id in its column": (
        "UPDATE commands SET command_id = 'x' WHERE rowid = 2",
        "are not what was written",
    ),
    "a command too many": (
        (
            "INSERT INTO commands SELECT 'x', 1000000, n, kind, version, payload FROM commands "
            "WHERE position IN (SELECT position FROM commands LIMIT 1) LIMIT 1"
        ),
        None,  # beyond the end: nobody reads it
    ),
    "an event in the middle gone": ("DELETE FROM events WHERE position = 60", "is damaged"),
    "the end cut off": (
        "DELETE FROM events WHERE position > (SELECT max(position) - 3 FROM events)",
        "is damaged.*was sealed up to",
    ),
    "an event added": (
        (
            "INSERT INTO events SELECT (SELECT max(position) + 1 FROM events), at_ms, kind, "
            "version, payload, NULL FROM events WHERE position = 30"
        ),
        "is damaged.*was sealed up to",
    ),
    "a seal": (
        (
            "UPDATE events SET seal = x'00' WHERE position = "
            "(SELECT max(position) FROM events WHERE seal IS NOT NULL AND position < 60)"
        ),
        "are not what was written",
    ),
    "a secret": ("UPDATE secrets SET text = text || '!'", "is not what its digest says"),
    "a snapshot": (
        (
            "UPDATE snapshots SET payload = CAST(replace(CAST(payload AS TEXT), 'carol', 'karol') "
            "AS BLOB)"
        ),
        "is not the state that its events lead to",
    ),
    "a kind": (
        (
            "UPDATE events SET kind = 'Ticket' WHERE position IN "
            "(SELECT position FROM events WHERE kind = 'Ticked' LIMIT 1)"
        ),
        "Ticket",
    ),
}


@pytest.mark.parametrize("what", [name for name, (_, text) in EDITS.items() if text])
def test_what_was_edited_is_found(log, what):
    statement, expected = EDITS[what]
    edit(log, statement)
    done = poolsm("log", "check", log=log)
    assert done.returncode in (1, 3)
    text = " ".join((done.stdout + done.stderr).split())
    assert re.search(expected, text), text


def test_a_log_of_the_first_format_is_migrated_sealed_from_there_on_and_archived(tmp_path):
    path = tmp_path / "fleet.db"
    run(tmp_path / "new.db", tmp_path, 1.5)
    made_by_format_1(path, tmp_path / "new.db")
    before = exported_rows(path)
    with pytest.raises(LogOpenError, match="older log format 1"):
        sqlite.open_read_only(path)
    run(path, tmp_path, 1)
    assert exported_rows(path)[: len(before)] == before
    found = check_log(path)
    assert found.problems == []
    assert found.unsealed == len(before)
    edit(path, "UPDATE events SET payload = payload || ' ' WHERE position = ?", len(before) + 1)
    assert "are not what was written" in check_log(path).problems[0]
    edit(path, "UPDATE events SET payload = rtrim(payload) WHERE position = ?", len(before) + 1)
    assert archived(path, last_of(path))["upto"] > len(before)
    assert check_log(path).problems == []


GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "log-format-1.sqlite"


def test_a_log_that_the_first_format_was_written_in_is_read_as_it_was(tmp_path):
    """Written by a runner of that format: 57 events, 5 commands, and a secret."""
    path = tmp_path / "fleet.db"
    shutil.copy(GOLDEN, path)
    before, commands = exported_rows(path), rows(path, "SELECT * FROM commands ORDER BY 2, 3")
    run(path, tmp_path, 1)
    assert exported_rows(path)[: len(before)] == before
    assert rows(path, "SELECT * FROM commands ORDER BY 2, 3")[: len(commands)] == commands
    found = check_log(path)
    assert found.problems == []
    assert (found.unsealed, len(commands)) == (57, 5)
    kept = [text for (text,) in rows(path, "SELECT text FROM secrets")]
    assert "#!/bin/sh\necho a config of the first format\n" in kept
    last = last_of(path)
    assert archived(path, last)["upto"] > 57
    assert rows(path, "SELECT count(*) FROM events") < [(last - 57,)]
    assert check_log(path).position == last
    assert check_log(path).problems == []


FORMAT_1 = """
CREATE TABLE header (id INTEGER PRIMARY KEY CHECK (id = 1), log_id TEXT NOT NULL,
    created_ms INTEGER NOT NULL, secret_key BLOB NOT NULL) STRICT;
CREATE TABLE events (position INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, kind TEXT NOT NULL,
    version INTEGER NOT NULL, payload TEXT NOT NULL) STRICT;
CREATE TABLE commands (command_id TEXT PRIMARY KEY NOT NULL, position INTEGER NOT NULL,
    n INTEGER NOT NULL, kind TEXT NOT NULL, version INTEGER NOT NULL, payload TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX commands_by_position ON commands (position, n);
CREATE TABLE secrets (digest TEXT PRIMARY KEY NOT NULL, text TEXT NOT NULL) STRICT;
CREATE TABLE snapshots (position INTEGER NOT NULL, state_version INTEGER NOT NULL,
    payload BLOB NOT NULL, PRIMARY KEY (position, state_version)) STRICT;
INSERT INTO header SELECT id, log_id, created_ms, secret_key FROM new.header;
INSERT INTO events SELECT position, at_ms, kind, version, payload FROM new.events;
INSERT INTO commands SELECT * FROM new.commands;
INSERT INTO secrets SELECT * FROM new.secrets;
PRAGMA application_id = 1884507468;
PRAGMA user_version = 1;
"""


def made_by_format_1(path, new):
    """What the first release wrote, with what is in a log of today."""
    assert schema.APPLICATION_ID == 1884507468
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("ATTACH ? AS new", (str(new),))
        connection.executescript(FORMAT_1)


def exported_rows(path):
    return rows(path, "SELECT position, at_ms, kind, version, payload FROM events ORDER BY 1")
