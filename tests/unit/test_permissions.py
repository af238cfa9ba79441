"""The table of files in docs/security.md: for their owner alone, whatever the umask."""

import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from tests.unit.test_cli import CODE, ENV, pool_file

OPEN_TO_ALL = 0o000


def modes(folder):
    return {
        str(file.relative_to(folder)): oct(file.stat().st_mode & 0o777)
        for file in folder.rglob("*")
        if file.suffix != ".toml"
    }


def poolsm(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, arguments)],
        cwd=folder, env={**ENV, "POOLSM_LOG": "poolsm.db"}, umask=OPEN_TO_ALL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log that ran, its archive, a backup, and a log restored from it."""
    folder = tmp_path_factory.mktemp("modes")
    poolsm(
        folder, "run", pool_file(folder), "--cloud", "sim", "--speed", 20, "--for", 2, "--no-table"
    )
    poolsm(folder, "backup", "copy.db")
    poolsm(folder, "restore", "copy.db", "--log", "restored.db")
    (folder / "restored.db").chmod(0o644)  # as a copy by hand would be
    poolsm(folder, "pools", "apply", "pools.toml", "--log", "restored.db")
    poolsm(folder, "events", "archive", "--before", "0d")
    poolsm(folder, "events", "export", "--out", "log.jsonl")
    return folder


def test_what_holds_secrets_is_its_owners_alone(folder):
    found = modes(folder)
    assert {"poolsm.db", "poolsm.db.lock", "copy.db", "restored.db"} <= set(found)
    private = {name: mode for name, mode in found.items() if name != "log.jsonl"}
    folders = {name for name in private if (folder / name).is_dir()}
    assert folders == {"poolsm.db.archive"}
    assert {private[name] for name in folders} == {"0o700"}
    assert {private[name] for name in private.keys() - folders} == {"0o600"}


def test_an_export_and_an_archive_hold_no_secret(folder):
    with_secret = {
        file.name
        for file in folder.rglob("*")
        if file.is_file() and b"echo sesame" in content(file)
    }
    assert with_secret == {"pools.toml", "poolsm.db", "copy.db", "restored.db"}


def content(file: Path) -> bytes:
    data = file.read_bytes()
    return zstandard.ZstdDecompressor().decompress(data) if file.suffix == ".zst" else data
