"""The control socket and requests with and without a runner."""

import asyncio
import os
import socket
import stat
from contextlib import asynccontextmanager

import msgspec
import pytest

from poolsm.events import LogOpened, PoolDeclared
from poolsm.spec import PoolKey, PoolSpec
from poolsm_runners import control, session
from poolsm_runners.control import ControlError, ControlServer, NoRunnerError, call, socket_path
from poolsm_runners.control_requests import (
    Apply,
    Ask,
    Assign,
    Assigned,
    ConfirmLoss,
    Done,
    Envelope,
    Hold,
    Pause,
    Release,
    Remove,
    Reset,
    Resume,
    Standing,
    Status,
    Unhold,
)
from poolsm_runners.engine import Engine, open_fleet
from poolsm_runners.log import sqlite
from poolsm_runners.log.port import LogLockedError, LogOpenError
from poolsm_runners.log_setup import open_or_create
from poolsm_runners.operations import (
    ConfigDeclaration,
    Desk,
    PoolDeclaration,
    RefusedError,
)
from poolsm_runners.session import perform

SPEC = PoolSpec("intro", "alice", 2, 5, "worker-image", "m1.tiny", config_id="c")
APPLY = Apply((PoolDeclaration(SPEC),), (ConfigDeclaration("system", "c", "#!/bin/sh\n"),))
ORIGIN = "a test"


class LogRunner:
    """All that the socket needs of a runner: an engine on a log."""

    def __init__(self, engine):
        self.engine = engine
        self.fault = None

    async def submit(self, make, origin):
        if self.fault:
            raise self.fault
        log, state = self.engine.log, self.engine.state
        desk = Desk(state, state.now_ms + 1, log.put_secret, log.get_secret, origin)
        return [await self.engine.record(event) for event in await make(desk)]


@asynccontextmanager
async def serving(path):
    log, fleet = await open_or_create(path, 1_000)
    runner = LogRunner(Engine(log, fleet))
    server = ControlServer(path)
    server.serve(runner)
    try:
        await server.start()
        yield runner
    finally:
        await server.close()
        await log.close()


async def ask(path, request):
    return await asyncio.to_thread(call, path, Envelope(request, ORIGIN), timeout_s=10)


async def talk(path, data, *, shut=False):
    """Raw bytes to the socket; what comes back."""
    reader, writer = await asyncio.open_unix_connection(socket_path(path))
    writer.write(data)
    if shut:
        writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


@pytest.fixture
def log(tmp_path):
    return tmp_path / "poolsm.db"


async def test_every_request_through_the_socket(log):
    async with serving(log) as runner:
        done = await ask(log, APPLY)
        assert done == Done(
            ("config system/c: declared", "pool alice/intro: declared"),
            (),
            runner.engine.log.last_position(),
        )
        assert (await ask(log, APPLY)).lines == (
            "config system/c: unchanged",
            "pool alice/intro: unchanged",
        )
        found = await ask(log, Assign("intro", "r1", "carol", 60.0))
        assert isinstance(found, Assigned)
        assert (found.assignment.state, found.assignment.claimant) == ("waiting", "carol")
        assert (await ask(log, Ask("r1"))).assignment == found.assignment
        assert (await ask(log, Release("r1"))).lines == ("r1: released",)
        assert (await ask(log, Reset("alice/intro"))).lines
        standing = await ask(log, Status(vms=True))
        assert isinstance(standing, Standing)
        assert [pool.key for pool in standing.fleet.pools] == [PoolKey("intro", "alice")]
        assert standing.source == "runner"
        assert "drained" in (await ask(log, Remove("intro"))).lines[0]
    declared = [
        e.event for e in sqlite.open_read_only(log).read() if isinstance(e.event, PoolDeclared)
    ]
    assert [event.origin for event in declared] == [ORIGIN]


async def test_a_refusal_changes_nothing(log):
    async with serving(log) as runner:
        await ask(log, APPLY)
        before = runner.engine.fleet.position
        for request in (
            Remove("none"),
            Release("none"),
            ConfirmLoss(),
            Assign("intro", "", "c", 1.0),
        ):
            with pytest.raises(RefusedError):
                await ask(log, request)
        assert runner.engine.fleet.position == before


async def test_an_empty_pool_is_gone_before_its_removal_is_answered(log, monkeypatch):
    """The tick that forgets it may come between; what was done is no refusal."""
    async with serving(log) as runner:
        await ask(log, APPLY)
        submit = runner.submit

        async def and_a_tick(make, origin):
            steps = await submit(make, origin)
            runner.engine.state.pools.clear()
            return steps

        monkeypatch.setattr(runner, "submit", and_a_tick)
        done = await ask(log, Remove("intro"))
        assert done.lines == ("pool alice/intro: is drained, then removed",)


async def test_an_answer_is_durable(log):
    async with serving(log):
        await ask(log, APPLY)
        # another process would find it, whatever happens to the runner now
        assert PoolKey("intro", "alice") in open_fleet(sqlite.open_read_only(log)).state.pools


async def test_the_socket_is_for_the_owner_alone_and_is_removed(log):
    async with serving(log):
        assert stat.S_IMODE(socket_path(log).stat().st_mode) == 0o600
    assert not socket_path(log).exists()
    with pytest.raises(NoRunnerError):
        await ask(log, Status())


async def test_the_socket_of_a_dead_runner_is_replaced(log):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(socket_path(log)))
    dead.close()
    with pytest.raises(NoRunnerError):
        await ask(log, Status())
    async with serving(log):
        assert isinstance(await ask(log, Status()), Standing)


async def test_something_else_at_the_socket_is_left_alone(log):
    socket_path(log).write_text("mine")
    with pytest.raises(ControlError, match="is no socket, so not ours"):
        async with serving(log):
            pass
    assert socket_path(log).read_text() == "mine"


async def test_a_closing_runner_leaves_its_successors_socket(log):
    first = ControlServer(log)
    second = ControlServer(log)
    await first.start()
    await second.start()
    await first.close()
    assert socket_path(log).exists()
    await second.close()
    assert not socket_path(log).exists()


@pytest.mark.parametrize("folders", [1, 3])
async def test_a_path_that_is_longer_than_an_address(tmp_path, folders):
    folder = tmp_path.joinpath(*["d" * 90] * folders)
    folder.mkdir(parents=True)
    async with serving(folder / "poolsm.db"):
        assert isinstance(await ask(folder / "poolsm.db", Status()), Standing)


async def test_a_name_that_no_address_can_hold(tmp_path):
    with pytest.raises(ControlError, match="is too long a name for a socket; shorten"):
        await ControlServer(tmp_path / ("n" * 120)).start()


async def test_a_symbolic_link_leads_to_the_same_socket(log, tmp_path):
    async with serving(log):
        link = tmp_path / "link.db"
        link.symlink_to(log)
        assert isinstance(await ask(link, Status()), Standing)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\n", "not a request"),
        (b"\x00\xff\xfe\n", "not a request"),
        (b"GET / HTTP/1.1\r\n", "not a request"),
        (b'{"request": {"type": "nothing"}, "origin": ""}\n', "Invalid value 'nothing'"),
        (b'{"request": {"type": "reset", "pool": 5}, "origin": ""}\n', "Expected `str`, got `int`"),
        (b'{"request": {"type": "status"}, "origin": "", "x": 1}\n', "unknown field"),
        (b"[" * 100_000 + b"\n", "not a request"),
    ],
)
async def test_garbage_is_refused_and_hurts_nobody(log, data, error):
    async with serving(log):
        answer = await talk(log, data)
        assert error in msgspec.json.decode(answer)["error"]
        assert isinstance(await ask(log, Status()), Standing)


async def test_a_request_that_is_cut_off(log):
    async with serving(log):
        answer = await talk(log, b'{"request"', shut=True)
        assert "not a request" in msgspec.json.decode(answer)["error"]


async def test_a_slow_client_is_dropped(log, monkeypatch):
    monkeypatch.setattr(control, "READ_TIMEOUT_S", 0.1)
    async with serving(log):
        answer = await talk(log, b"{")
        assert "no whole request came within 0.1 s" in msgspec.json.decode(answer)["error"]


async def test_a_huge_request_is_refused(log, monkeypatch):
    monkeypatch.setattr(control, "REQUEST_LIMIT_BYTES", 10_000)
    async with serving(log):
        answer = await talk(log, b"x" * 30_000)
        assert "more than 10000 bytes" in msgspec.json.decode(answer)["error"]
        many = Apply(APPLY.pools * 100, APPLY.configs)
        with pytest.raises(RefusedError, match="declare fewer"):
            await ask(log, many)


async def test_a_client_that_takes_no_answer_is_dropped(log, monkeypatch):
    monkeypatch.setattr(control, "WRITE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(
        control, "carry_out", lambda host, envelope: asyncio.sleep(0, Done(("x" * 8_000_000,)))
    )
    async with serving(log):
        _, writer = await asyncio.open_unix_connection(socket_path(log), limit=1)
        writer.write(msgspec.json.encode(Envelope(Status(), "")) + b"\n")
        writer.transport.pause_reading()
        await asyncio.sleep(0.6)
        assert len((await ask(log, Status())).lines[0]) == 8_000_000
        writer.close()


async def test_too_many_clients(log, monkeypatch):
    monkeypatch.setattr(control, "CLIENTS_LIMIT", 2)
    async with serving(log):
        idle = [await asyncio.open_unix_connection(socket_path(log)) for _ in range(2)]
        with pytest.raises(ControlError, match="serves 2 clients; try again"):
            await ask(log, Status())
        for _, writer in idle:
            writer.close()


async def test_a_fault_of_ours_is_answered_and_does_not_end_the_runner(log):
    async with serving(log) as runner:
        runner.fault = KeyError("secret value")
        with pytest.raises(ControlError, match="KeyError: see the runner's log"):
            await ask(log, APPLY)
        runner.fault = None
        assert isinstance(await ask(log, APPLY), Done)


async def test_many_at_once_are_all_carried_out(log):
    async with serving(log):
        await ask(log, APPLY)
        found = await asyncio.gather(
            *(ask(log, Assign("intro", f"r{n}", "carol", 60.0)) for n in range(20))
        )
        assert {answer.assignment.request_id for answer in found} == {f"r{n}" for n in range(20)}


# --- without a runner ---


def test_apply_without_a_runner_makes_the_log(log):
    done, by_runner = perform(log, APPLY, origin=ORIGIN)
    assert not by_runner
    assert done.lines[1] == "pool alice/intro: declared"
    reader = sqlite.open_read_only(log)
    events = [entry.event for entry in reader.read()]
    assert isinstance(events[0], LogOpened)
    assert events[0].log_id == reader.header.log_id
    assert perform(log, Status())[0].source == "log"


def test_only_apply_makes_a_log(log):
    for request in (Status(), Reset("intro"), Assign("intro", "r", "c", 1.0)):
        with pytest.raises(LogOpenError, match="there is no log; name one with --log"):
            perform(log, request)
    assert not log.exists()


def test_requests_without_a_runner_are_recorded_in_order(log):
    perform(log, APPLY)
    found, _ = perform(log, Assign("intro", "r", "carol", 60.0))
    assert found.assignment.state == "waiting"
    perform(log, Release("r"))
    assert perform(log, Ask("r"))[0].assignment.state == "refused"


def test_who_asked_is_recorded(log):
    perform(log, APPLY)
    (pool,) = perform(log, Status())[0].fleet.pools
    assert pool.origin.startswith("command line of ")


async def test_a_runner_that_does_not_listen(log, monkeypatch):
    monkeypatch.setattr(session, "PATIENCE_S", 0.3)
    opened, _ = await open_or_create(log, 1_000)
    with pytest.raises(LogLockedError, match=f"pid {os.getpid()}.*does not listen at"):
        await asyncio.to_thread(perform, log, Reset("intro"))
    # reading is possible all the same
    assert (await asyncio.to_thread(perform, log, Status()))[0].source == "log"
    await opened.close()


async def test_a_runner_is_found_by_perform(log):
    async with serving(log):
        _, by_runner = await asyncio.to_thread(perform, log, APPLY)
        assert by_runner


# --- an operator's pauses and holds, as they are answered ----------------------------------------


def said(log, request):
    answer, _ = perform(log, request, origin="command line of ann")
    return answer.lines[0]


def test_a_pause_is_said_once_and_resume_says_what_still_stands(tmp_path):
    log = tmp_path / "log.db"
    perform(log, APPLY)
    name = str(SPEC.key)
    assert "until `poolsm resume`" in said(log, Pause(why="Nova\nis  upgraded"))
    before = perform(log, Status())[0].fleet.position
    assert "is paused already, by command line of ann: Nova is upgraded" in said(log, Pause())
    assert perform(log, Status())[0].fleet.position == before
    assert f"until `poolsm resume {name}`" in said(log, Pause(name))
    assert "but the whole fleet is still paused" in said(log, Resume(name))
    with pytest.raises(RefusedError, match="is not paused; the whole fleet is"):
        perform(log, Resume(name))
    assert "once `poolsm resume` ends the pause" in said(log, Remove(name))
    said(log, Pause(name))
    assert f"still paused by themselves: {name}" in said(log, Resume())
    with pytest.raises(RefusedError, match=f"paused by themselves are: {name}"):
        perform(log, Resume())
    with pytest.raises(RefusedError, match="at most 500"):
        perform(log, Pause(why="x" * 501))


def test_what_is_not_there_cannot_be_held(tmp_path):
    log = tmp_path / "log.db"
    perform(log, APPLY)
    for request in (Hold("nobody"), Unhold("nobody")):
        with pytest.raises(RefusedError, match="there is no VM 'nobody'"):
            perform(log, request)
