"""JSON lines: out and in again, exact, whole or not at all, and never a secret."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path

import pytest

from poolsm.commands import CreateServer, Reason, StopServer
from poolsm.entries import Entry
from poolsm.errors import PoolsmError, UnknownKindError, UnreadableRecordError
from poolsm.events import ConfigDeclared, RunnerStarted, RunnerStopped
from poolsm.spec import PoolKey, RunnerSettings, SecretRef
from poolsm_runners.log import sqlite
from poolsm_runners.log.jsonl import JsonlSource, export_jsonl, import_jsonl
from poolsm_runners.log.port import (
    LogExchangeError,
    LogOpenError,
    LogSource,
    SecretMissingError,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "log-v1.jsonl"


def export(source: LogSource, upto=None) -> bytes:
    out = io.BytesIO()
    export_jsonl(source, out, upto)
    return out.getvalue()


def golden_lines():
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


async def test_out_and_in_again(tmp_path):
    async with await sqlite.create(tmp_path / "fleet.db", created_ms=7) as log:
        ref = await log.put_secret("hush-hush")
        commands = tuple(
            StopServer(command_id=f"c-{n}", reason=Reason("R9", "é"), server_id="s")
            for n in (3, 1, 2)
        )
        event = ConfigDeclared(at_ms=1, user_id="u", name="n\n", data=ref, origin="file")
        await log.append([Entry(1, event, commands)])
        await log.append([Entry(n, RunnerStopped(at_ms=n, why="w")) for n in range(2, 1200)])
        expected = list(log.read())
        text = export(log)
        assert export(log, upto=10**9) == text
        assert export(log, upto=5).count(b"\n") == 6
        key = log._key
    assert b"hush" not in text
    assert key not in text
    assert key.hex().encode() not in text
    assert ref.digest.encode() in text
    (tmp_path / "fleet.jsonl").write_bytes(text)
    assert import_jsonl(tmp_path / "fleet.jsonl", tmp_path / "new.db") == 1199
    new = sqlite.open_read_only(tmp_path / "new.db")
    assert list(new.read()) == expected
    assert new.header == log.header
    assert new.secret_key() != key
    assert export(new) == text
    with pytest.raises(SecretMissingError):
        new.get_secret(ref.digest)
    async with await sqlite.open_for_append(tmp_path / "new.db") as log:
        await log.append([Entry(1200, RunnerStopped(at_ms=0, why=""))])


async def test_an_empty_log(tmp_path):
    async with await sqlite.create(tmp_path / "fleet.db", created_ms=7) as log:
        (tmp_path / "fleet.jsonl").write_bytes(export(log))
    assert import_jsonl(tmp_path / "fleet.jsonl", tmp_path / "new.db") == 0
    assert list(JsonlSource(tmp_path / "fleet.jsonl").read()) == []
    async with await sqlite.open_for_append(tmp_path / "new.db") as log:
        await log.append([Entry(1, RunnerStopped(at_ms=0, why=""))])


def check_golden(source: LogSource):
    entries = list(source.read())
    assert [entry.position for entry in entries] == [1, 2, 3, 4, 5, 6]
    # version 1 had the settings beside the other fields
    assert entries[1].event == RunnerStarted(
        at_ms=1735725600010,
        epoch="0d7c2c3e-91b4-4a5e-8f0c-64c1a0b7e8aa",
        version="0.0.9",
        settings=RunnerSettings(
            vm_project_id="p-vm",
            infra_project_id="p-infra",
            time_zone="Europe/Paris",
            admin_key=SecretRef(
                "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 80
            ),
            creations_limit=12,
        ),
    )
    (create,) = entries[3].commands
    assert isinstance(create, CreateServer)
    assert create.pool == PoolKey("tp-1", "prof")
    assert create.name == f"tp-1-{create.command_id}"


def test_the_golden_log_of_version_1_is_read_in_both_forms(tmp_path):
    source = JsonlSource(GOLDEN)
    assert source.header.log_id == "6f1c9f5e-3c1b-4a55-9a0e-2b7f0a4c1d10"
    check_golden(source)
    import_jsonl(GOLDEN, tmp_path / "fleet.db")
    reader = sqlite.open_read_only(tmp_path / "fleet.db")
    stored = next(reader.read_stored(1))
    assert (stored.kind, stored.version) == ("RunnerStarted", 1), "it is stored as it was written"
    check_golden(reader)
    assert export(reader) == GOLDEN.read_bytes()


def test_an_export_is_read_in_parts():
    source = JsonlSource(GOLDEN)
    assert [entry.position for entry in source.read(2, 4)] == [3, 4]
    assert [stored.position for stored in source.read_stored(4)] == [5, 6]
    assert source.last_position() == 6
    assert source.load_snapshot(1) is None
    with pytest.raises(SecretMissingError, match="an export holds no secret"):
        source.get_secret("00")


def bad(index, **changes):
    """The golden lines with one changed; a value of None removes the key."""
    lines = golden_lines()
    lines[index].update(changes)
    lines[index] = {key: value for key, value in lines[index].items() if value is not None}
    return lines


def bad_command(**changes):
    lines = golden_lines()
    lines[4]["commands"][0].update(changes)
    return lines


def repeated_command():
    lines = golden_lines()
    lines[5]["commands"] = lines[4]["commands"]
    return lines


def moved(*order):
    lines = golden_lines()
    return [lines[index] for index in order]


BAD = [
    (bad(3, kind="PoolExploded"), UnknownKindError, r"line 4: event PoolExploded.*newer one"),
    (bad(2, version=3), UnknownKindError, r"line 3: event RunnerStarted version 3.*1 to 2.*newer"),
    (bad(2, version=0), UnknownKindError, r"line 3: event RunnerStarted version 0"),
    (bad_command(kind="Explode"), UnknownKindError, r"line 5: command Explode.*newer one"),
    (bad_command(version=2), UnknownKindError, r"line 5: command CreateServer version 2"),
    (bad(3, event={"at_ms": 1}), UnreadableRecordError, r"line 4: event PoolDeclared"),
    (bad(3, event=[]), UnreadableRecordError, r"line 4: event PoolDeclared"),
    (bad_command(command={}), UnreadableRecordError, r"line 5: command CreateServer"),
    (bad(1, event={"at_ms": 2**63, "log_id": ""}), LogExchangeError, "line 2: at_ms = 9223"),
    (bad(3, position=4), LogExchangeError, r"line 4: has position 4, not 3"),
    (bad(3, position="3"), LogExchangeError, r"line 4: is no line of an export"),
    (bad(3, kind=None), LogExchangeError, r"line 4: is no line.*kind"),
    (bad(3, extra=1), LogExchangeError, r"line 4: is no line.*extra"),
    (moved(0, 1, 2, 4, 5, 6), LogExchangeError, r"line 4: has position 4, not 3"),
    (moved(0, 1, 2, 2, 3, 4, 5, 6), LogExchangeError, r"line 4: has position 2, not 3"),
    (moved(0, 2, 1), LogExchangeError, r"line 2: has position 2, not 1"),
    (moved(0, 1, 2, 3), LogExchangeError, r"has 3 entries, line 1 promises 6.*cut off"),
    (moved(0), LogExchangeError, r"has 0 entries, line 1 promises 6"),
    (moved(1, 2), LogExchangeError, r"line 1: is no line"),
    ([], LogExchangeError, r"line 1: is no line"),
    (bad(0, entries=5), LogExchangeError, r"has 6 entries, line 1 promises 5"),
    (bad(0, version=2), LogExchangeError, r"line 1: is format 'poolsm-log' version 2.*release"),
    (bad(0, format="other"), LogExchangeError, r"line 1: is format 'other'"),
    (repeated_command(), LogExchangeError, r"positions 1 to 6 hold a command id twice"),
]


@pytest.mark.parametrize(("lines", "kind", "match"), BAD)
def test_a_bad_export_is_refused_and_leaves_nothing(tmp_path, lines, kind, match):
    source = write_lines(tmp_path / "bad.jsonl", lines)
    with pytest.raises(kind, match=match) as caught:
        import_jsonl(source, tmp_path / "new.db")
    assert isinstance(caught.value, PoolsmError)
    assert "\n" not in str(caught.value)
    assert str(source) in str(caught.value)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("cut", [1, 30, 400, 800, -1, -20])
def test_an_export_that_was_cut_off_is_refused(tmp_path, cut):
    source = tmp_path / "bad.jsonl"
    source.write_bytes(GOLDEN.read_bytes()[:cut])
    with pytest.raises(LogExchangeError, match=r"line .*cut off"):
        import_jsonl(source, tmp_path / "new.db")
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"\x00" * 600 + b"\n", b"[" * 99_999 + b"\n"])
def test_what_is_no_export_is_refused(tmp_path, content):
    source = tmp_path / "bad.jsonl"
    source.write_bytes(content)
    with pytest.raises(LogExchangeError, match="line 1: is no line of an export"):
        import_jsonl(source, tmp_path / "new.db")
    with pytest.raises(LogExchangeError, match="cannot be read"):
        import_jsonl(tmp_path / "absent", tmp_path / "new.db")
    assert list(tmp_path.iterdir()) == [source]


async def test_an_import_never_replaces_anything(tmp_path):
    path = tmp_path / "fleet.db"
    path.write_text("precious")
    with pytest.raises(LogOpenError, match="exists already"):
        import_jsonl(GOLDEN, path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


async def test_a_log_with_an_unknown_kind_is_not_skipped_over(tmp_path):
    import_jsonl(GOLDEN, tmp_path / "fleet.db")
    async with await sqlite.open_for_append(tmp_path / "fleet.db") as log:
        for kind, version, match in (
            ("PoolExploded", 1, r"position 3: event PoolExploded.*no such kind"),
            ("PoolDeclared", 2, r"position 3: event PoolDeclared version 2.*newer one"),
        ):
            await log._connection.execute(
                "UPDATE events SET kind = ?, version = ? WHERE position = 3", (kind, version)
            )
            reading = log.read()
            assert [next(reading).position, next(reading).position] == [1, 2]
            with pytest.raises(UnknownKindError, match=match):
                next(reading)


async def test_memory_does_not_grow_with_the_log(tmp_path):
    async with await sqlite.create(tmp_path / "fleet.db", created_ms=7) as log:
        await log.append(
            [Entry(n, RunnerStopped(at_ms=n, why="w" * 1000)) for n in range(1, 20_001)]
        )
    tracemalloc.start()
    try:
        with (tmp_path / "fleet.jsonl").open("xb") as out:
            export_jsonl(sqlite.open_read_only(tmp_path / "fleet.db"), out)
        import_jsonl(tmp_path / "fleet.jsonl", tmp_path / "new.db")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "fleet.jsonl").stat().st_size > 20_000_000
    assert peak_bytes < 10_000_000
