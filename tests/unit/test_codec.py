"""The codec: every kind there and back, the same bytes everywhere, nothing unknown skipped."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import types
import typing
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolsm import codec
from poolsm.commands import COMMAND_TYPES
from poolsm.errors import UnknownKindError, UnreadableRecordError
from poolsm.events import EVENT_TYPES, RunnerStarted
from poolsm.spec import RunnerSettings, SecretRef

ROOT = Path(__file__).resolve().parents[2]
INT64 = st.integers(-(2**63), 2**63 - 1)


def parts_of(hint):
    return {name: kind for name, kind in typing.get_type_hints(hint).items() if name[0] != "_"}


def strategy(hint):
    """All values of a type, every field drawn (builds() alone keeps the defaults)."""
    arguments = typing.get_args(hint)
    if hint is int:
        return INT64
    if attrs.has(hint) or hasattr(hint, "_fields"):
        return st.builds(hint, **{name: strategy(kind) for name, kind in parts_of(hint).items()})
    if isinstance(hint, types.UnionType):
        return st.one_of(*map(strategy, arguments))
    if typing.get_origin(hint) is tuple:
        if arguments[-1] is ...:
            return st.lists(strategy(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(strategy, arguments))
    return st.from_type(hint)


def sample(hint, name="value"):
    """One fixed value of a type with nothing left at its default."""
    arguments = typing.get_args(hint)
    if hint in (int, bool):
        return hint(len(name))
    if hint is str:
        return f"{name} é\n"
    if attrs.has(hint) or hasattr(hint, "_fields"):
        return hint(**{part: sample(kind, part) for part, kind in parts_of(hint).items()})
    if isinstance(hint, types.UnionType):
        return sample(arguments[0], name)
    if typing.get_origin(hint) is tuple:
        kinds = arguments[:1] * 2 if arguments[-1] is ... else arguments
        return tuple(sample(kind, f"{name}{n}") for n, kind in enumerate(kinds))
    assert hint == dict[str, str], hint
    return {"zeta": "1", "alpha": "2", "mu": "3"}


def encode_samples():
    return b"\n".join(codec.encode(sample(kind)) for kind in (*EVENT_TYPES, *COMMAND_TYPES))


@pytest.mark.parametrize("kind", EVENT_TYPES)
@settings(deadline=None)  # the first example of a kind resolves its types
@given(data=st.data())
def test_every_event_comes_back_equal_and_encodes_to_the_same_bytes(kind, data):
    event = data.draw(strategy(kind))
    encoded = codec.encode(event)
    again = codec.decode_event(kind.__name__, codec.EVENT_VERSIONS[kind.__name__], encoded)
    assert type(again) is kind
    assert again == event
    assert codec.encode(again) == encoded
    assert b"\n" not in encoded


@pytest.mark.parametrize("kind", COMMAND_TYPES)
@settings(deadline=None)  # the first example of a kind resolves its types
@given(data=st.data())
def test_every_command_comes_back_equal_and_encodes_to_the_same_bytes(kind, data):
    command = data.draw(strategy(kind))
    encoded = codec.encode(command)
    again = codec.decode_command(kind.__name__, codec.COMMAND_VERSIONS[kind.__name__], encoded)
    assert type(again) is kind
    assert again == command
    assert codec.encode(again) == encoded


def test_the_order_of_a_mapping_is_kept():
    # Decisions may follow it, so replay must see what the runner saw.
    encoded = codec.encode({"zeta": 1, "alpha": 2})
    assert encoded == b'{"zeta":1,"alpha":2}'


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_the_bytes_do_not_depend_on_the_hash_seed(seed):
    path = os.pathsep.join((str(ROOT), str(ROOT / "runners")))
    run = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        capture_output=True,
        check=True,
        text=True,
    )
    assert run.stdout.strip() == hashlib.sha256(encode_samples()).hexdigest()


def test_an_old_version_is_read_through_its_upcaster():
    old = (
        b'{"at_ms":5,"epoch":"e","version":"0.0.9","time_zone":"Europe/Paris",'
        b'"admin_key":{"digest":"d","size_bytes":3}}'
    )
    assert codec.decode_event("RunnerStarted", 1, old) == RunnerStarted(
        at_ms=5,
        epoch="e",
        version="0.0.9",
        settings=RunnerSettings(time_zone="Europe/Paris", admin_key=SecretRef("d", 3)),
    )


def test_every_version_below_the_newest_has_an_upcaster():
    for kind, newest in codec.EVENT_VERSIONS.items():
        assert all((kind, version) in codec.UPCASTERS for version in range(1, newest))
    for newest in codec.COMMAND_VERSIONS.values():
        assert newest == 1, "decode_command has no upcasting yet"


@pytest.mark.parametrize("version", [-1, 0, 3, 10**9])
def test_a_version_that_no_release_wrote_is_an_error(version):
    with pytest.raises(UnknownKindError, match=f"RunnerStarted version {version}.*newer one"):
        codec.decode_event("RunnerStarted", version, b"{}")
    with pytest.raises(UnknownKindError, match="StopServer"):
        codec.decode_command("StopServer", version, b"{}")


@pytest.mark.parametrize("decode", [codec.decode_event, codec.decode_command])
def test_an_unknown_kind_is_an_error(decode):
    with pytest.raises(UnknownKindError, match=r"ServerExploded version 1.*no such kind"):
        decode("ServerExploded", 1, b"{}")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b"nonsense", b'{"at_ms":"x"}', b"\xff", b'{"x":' + b"[" * 100_000],
)
def test_what_is_not_the_event_is_an_error(version, data):
    with pytest.raises(UnreadableRecordError, match="RunnerStarted"):
        codec.decode_event("RunnerStarted", version, data)


if __name__ == "__main__":
    print(hashlib.sha256(encode_samples()).hexdigest())
