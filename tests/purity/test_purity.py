"""The core has no clock, no randomness, no I/O, and is the same in every process (C1, I8)."""

import ast
import asyncio
import hashlib
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from poolsm import Fleet
from poolsm.codec import encode
from poolsm.commands import Command
from tests.unit.world import World

ROOT = Path(__file__).parents[2]
CORE = [p for p in (ROOT / "poolsm").rglob("*.py") if "testing" not in p.parts]
PURE = {
    "__future__", "abc", "base64", "binascii", "bisect", "collections", "datetime", "difflib",
    "enum", "functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "quopri",
    "re", "shlex", "string", "textwrap", "types", "typing", "uuid", "zlib",
    "attrs", "transitions", "poolsm",
}  # fmt: skip
SEEDS = ("0", "1", "31337")


def story():
    """A run with creations, failures, claims, deletions, a crash and a change of day."""
    w = World()
    w.declare("pool_vms", user_id="admin", min_vm=2, warm=True)
    w.declare("tp", min_vm=3, max_vm=4, off_days=("tuesday",))
    w.run(60)
    w.ask("r1", "tp")
    w.cloud.boot = "no valid host"
    w.declare("other", min_vm=2, flavor_ref="large")
    w.run(120)
    w.crash()
    w.cloud.boot = "ACTIVE"
    w.release("r1")
    w.run(24 * 3600)
    return w


def digest(w):
    found = hashlib.sha256()
    for entry in w.entries:
        found.update(encode(entry.event))
        for command in entry.commands:
            found.update(encode(command))
    return found.hexdigest()


@pytest.mark.parametrize("path", CORE, ids=lambda p: str(p.relative_to(ROOT)))
def test_direct_imports_are_of_the_pure_kind(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.split(".")[0]
            assert top in PURE or (top == "msgspec" and path.name == "codec.py"), name
            assert not name.startswith("poolsm.testing"), name


@pytest.mark.parametrize("path", CORE, ids=lambda p: str(p.relative_to(ROOT)))
def test_neither_the_builtin_hash_nor_open_nor_print_is_called(path):
    tree = ast.parse(path.read_text())
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"hash", "id", "open", "print", "input", "exec", "eval"}


def test_a_log_is_folded_without_clock_randomness_and_sockets(monkeypatch):
    entries = story().entries

    def forbidden(*_, **__):
        raise AssertionError("the core asked the outside world")

    for module, name in (
        (time, "time"), (time, "time_ns"), (time, "monotonic"), (time, "sleep"),
        (random, "random"), (random, "randrange"), (secrets, "token_bytes"), (os, "urandom"),
        (uuid, "uuid4"), (uuid, "uuid1"), (socket, "socket"), (threading, "Thread"),
        (asyncio, "get_running_loop"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, forbidden)
    fleet, commands = Fleet(), list[Command]()
    for entry in entries:
        commands += fleet.step(entry.event).commands
    monkeypatch.undo()
    assert commands == [command for entry in entries for command in entry.commands]
    assert len(commands) > 15


def test_the_same_events_give_the_same_bytes_under_every_hash_seed():
    code = "from tests.purity.test_purity import digest, story; print(digest(story()))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}"},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in SEEDS
    }
    assert found == {digest(story()) + "\n"}
