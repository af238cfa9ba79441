"""The SQLite log on real files: order, durability of what was accepted, reading, secrets."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import sqlite3
import stat
from contextlib import closing

import pytest

from poolsm.commands import Reason, StopServer
from poolsm.entries import Entry
from poolsm.events import LogOpened, RunnerStopped, Ticked
from poolsm_runners.log import sqlite, writer
from poolsm_runners.log.port import (
    LogDamagedError,
    LogMisuseError,
    LogWriteError,
    SecretMissingError,
    Snapshot,
)

LOG_ID = "6f1c9f5e-3c1b-4a55-9a0e-2b7f0a4c1d10"


def entry(position, commands=0):
    return Entry(
        position,
        RunnerStopped(at_ms=position, why=f"é {position}"),
        tuple(
            StopServer(command_id=f"c-{position}-{n}", reason=Reason("R9", "x"), server_id="s")
            for n in range(commands)
        ),
    )


def entries(first, last, commands=0):
    return [entry(position, commands) for position in range(first, last + 1)]


@pytest.fixture
async def log(tmp_path):
    async with await sqlite.create(tmp_path / "fleet.db", created_ms=7, log_id=LOG_ID) as log:
        yield log


async def reopen(log):
    await log.close()
    return await sqlite.open_for_append(log._reader.path)


async def test_what_is_appended_is_read(log):
    first = Entry(1, LogOpened(at_ms=1, log_id=LOG_ID))
    await log.append([first])
    await log.append(entries(2, 4, commands=12))
    expected = [first, *entries(2, 4, commands=12)]
    assert list(log.read()) == expected
    assert list(log.read(2)) == expected[2:]
    assert list(log.read(1, 3)) == expected[1:3]
    assert list(log.read(4)) == []
    assert list(log.read(3, 2)) == []
    assert log.last_position() == 4
    async with await reopen(log) as again:
        assert list(again.read()) == expected
        assert again.last_position() == 4
        assert (again.header.log_id, again.header.created_ms) == (LOG_ID, 7)
        await again.append([entry(5)])
        assert sqlite.open_read_only(again._reader.path).last_position() == 5


async def test_a_log_of_several_chunks_is_read_whole_and_in_order(log):
    await log.append(entries(1, 2501, commands=1))
    assert list(log.read()) == entries(1, 2501, commands=1)
    assert [e.position for e in log.read(999, 2000)] == list(range(1000, 2001))


async def test_log_ids_and_keys_are_drawn_afresh(tmp_path):
    logs = [await sqlite.create(tmp_path / name, created_ms=0) for name in "ab"]
    assert logs[0].header.log_id != logs[1].header.log_id
    assert logs[0]._key != logs[1]._key
    assert len(logs[0]._key) == 32
    for log in logs:
        await log.close()


@pytest.mark.parametrize("positions", [[2], [0], [1, 3], [1, 1], [-1]])
async def test_a_gap_is_refused_and_the_log_goes_on(log, positions):
    with pytest.raises(LogMisuseError, match="the next one is"):
        await log.append([entry(position) for position in positions])
    await log.append([entry(1)])
    assert list(log.read()) == [entry(1)]


@pytest.mark.parametrize(
    "bad",
    [
        Entry(1, Ticked(at_ms=0), (StopServer(reason=Reason("", ""), server_id="s"),)),
        Entry(1, Ticked(at_ms=2**63)),
        Entry(1, RunnerStopped(at_ms=0, why="\ud800")),
        Entry(1, RunnerStopped(at_ms=0, why=object())),
    ],
)
async def test_an_entry_that_cannot_be_stored_is_refused_and_the_log_goes_on(log, bad):
    with pytest.raises(LogMisuseError, match="entry 1"):
        await log.append([bad])
    await log.append([entry(1)])


async def test_appending_nothing_is_fine_until_the_log_is_closed(log):
    await log.append([])
    await log.close()
    await log.close()
    for call in (log.append([]), log.append([entry(1)]), log.put_secret("x")):
        with pytest.raises(LogWriteError, match="closed"):
            await call


async def test_concurrent_appends_are_written_in_the_order_of_the_calls_and_share_commits(log):
    commits = 0

    def count(statement):
        nonlocal commits
        commits += statement == "COMMIT"

    await log._connection.set_trace_callback(count)
    await asyncio.gather(*(log.append(entries(n, n + 2, commands=2)) for n in range(1, 300, 3)))
    assert list(log.read()) == entries(1, 300, commands=2)
    assert commits <= 3


async def test_a_cancelled_appender_neither_loses_nor_splits_its_batch(log):
    tasks = [asyncio.create_task(log.append(entries(n, n + 2))) for n in range(1, 151, 3)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results[:2]] == [asyncio.CancelledError, type(None)]
    await log.append([entry(151)])
    async with await reopen(log) as again:
        assert list(again.read()) == entries(1, 151)


async def test_an_appender_cancelled_while_it_waits_for_room_has_written_nothing(log, monkeypatch):
    monkeypatch.setattr(writer, "QUEUE_LIMIT", 4)
    tasks = [asyncio.create_task(log.append(entries(n, n + 2))) for n in (1, 4, 7)]
    await asyncio.sleep(0)
    assert log._accepted == 3
    tasks[1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], asyncio.CancelledError)
    assert isinstance(results[2], LogMisuseError)  # loud, not a gap
    assert list(log.read()) == entries(1, 3)
    await log.append(entries(4, 20))  # larger than the queue: waits until it is alone
    assert list(log.read()) == entries(1, 20)


async def test_waiting_for_room_keeps_the_order(log, monkeypatch):
    monkeypatch.setattr(writer, "QUEUE_LIMIT", 4)
    await asyncio.gather(*(log.append(entries(n, n + 2)) for n in range(1, 61, 3)))
    assert list(log.read()) == entries(1, 60)


async def test_closing_writes_what_was_accepted(log):
    tasks = [asyncio.create_task(log.append([entry(n)])) for n in range(1, 50)]
    await asyncio.sleep(0)
    async with await reopen(log) as again:
        await asyncio.gather(*tasks)
        assert list(again.read()) == entries(1, 49)


async def test_a_cancelled_writer_task_fails_its_callers_instead_of_leaving_them(log):
    await log.append([entry(1)])
    task = asyncio.create_task(log.append([entry(2)]))
    await asyncio.sleep(0)
    log._writer.cancel()
    with pytest.raises(LogWriteError, match="open it again"):
        await task
    async with await reopen(log) as again:
        last = again.last_position()
        assert list(again.read()) == entries(1, last)


async def test_a_slow_reader_does_not_hold_up_the_checkpoint(log):
    await log.append(entries(1, 3000))
    reading = log.read()
    next(reading)
    await log.append(entries(3001, 4000))
    with closing(sqlite3.connect(log._reader.path)) as other:
        busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy
    assert [e.position for e in reading] == list(range(2, 4001))


async def test_reading_works_in_another_thread(log):
    await log.append(entries(1, 10))
    assert await asyncio.to_thread(lambda: list(log.read())) == entries(1, 10)
    reading = log.read()
    next(reading)
    assert len(await asyncio.to_thread(list, reading)) == 9


async def test_a_missing_position_is_never_read_over(log):
    await log.append(entries(1, 5))
    with closing(sqlite3.connect(log._reader.path)) as other, other:
        other.execute("DELETE FROM events WHERE position = 3")
    with pytest.raises(LogDamagedError, match="position 3 is missing"):
        list(log.read())


async def test_secrets(log):
    text = "clé\x00\n" * 100
    ref = await log.put_secret(text)
    assert ref.size_bytes == len(text.encode())
    assert ref.digest == hmac.new(log._key, text.encode(), hashlib.sha256).hexdigest()
    assert log.get_secret(ref.digest) == text
    assert await log.put_secret(text) == ref
    assert (await log.put_secret("")).size_bytes == 0
    assert text not in repr(log) + repr(ref)
    with pytest.raises(SecretMissingError, match="holds no secret 00ff"):
        log.get_secret("00ff")
    with pytest.raises(LogMisuseError, match="secret") as caught:
        await log.put_secret("pass\ud800word")
    assert "word" not in str(caught.value)
    async with await reopen(log) as again:
        assert again.get_secret(ref.digest) == text
        assert await again.put_secret(text) == ref


async def test_a_secret_is_durable_before_the_event_that_refers_to_it(log):
    async def declare(n):
        ref = await log.put_secret(f"secret {n}")
        await log.append([Entry(n, RunnerStopped(at_ms=0, why=ref.digest))])

    for n in range(1, 20):
        await declare(n)
    reader = sqlite.open_read_only(log._reader.path)
    for n, stored in enumerate(reader.read(), 1):
        assert reader.get_secret(stored.event.why) == f"secret {n}"


async def test_snapshots(log):
    await log.append(entries(1, 9))
    assert log.load_snapshot(1) is None
    for position in (3, 5, 8):
        await log.save_snapshot(Snapshot(position, 1, b"\x00%d" % position))
    assert log.load_snapshot(1) == Snapshot(8, 1, b"\x008")
    assert log.load_snapshot(1, upto=8) == Snapshot(8, 1, b"\x008")
    assert log.load_snapshot(1, upto=7) == Snapshot(5, 1, b"\x005")
    assert log.load_snapshot(1, upto=4) is None  # two are kept
    assert log.load_snapshot(2) is None
    assert log.load_snapshot(0) is None
    await log.save_snapshot(Snapshot(8, 2, b"new"))
    assert log.load_snapshot(1) is None
    assert log.load_snapshot(2) == Snapshot(8, 2, b"new")
    for position in (0, 10):
        with pytest.raises(LogMisuseError, match=f"position {position}"):
            await log.save_snapshot(Snapshot(position, 2, b""))


async def test_a_snapshot_that_cannot_be_saved_does_not_stop_the_log(log):
    await log.append([entry(1)])
    (pages,) = next(iter(await log._connection.execute_fetchall("PRAGMA page_count")))
    await log._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LogWriteError, match=r"snapshot not saved.*goes on"):
        await log.save_snapshot(Snapshot(1, 1, bytes(100_000)))
    await log.append([entry(2)])
    assert list(log.read()) == entries(1, 2)


async def test_files_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        path = tmp_path / "fleet.db"
        async with await sqlite.create(path, created_ms=0) as log:
            await log.append([entry(1)])
            names = {"fleet.db", "fleet.db-wal", "fleet.db-shm", "fleet.db.lock"}
            assert {found.name for found in tmp_path.iterdir()} == names
            modes = {stat.S_IMODE(found.stat().st_mode) for found in tmp_path.iterdir()}
            assert modes == {0o600}
        path.chmod(0o644)
        await (await sqlite.open_for_append(path)).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


async def test_a_closed_log_is_one_file(log):
    await log.append([entry(1)])
    await log.close()
    names = {found.name for found in log._reader.path.parent.iterdir()}
    assert names == {"fleet.db", "fleet.db.lock"}
