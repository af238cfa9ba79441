"""Whoever reads the log lines, or does not, the run goes on; what is lost is counted."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from poolsm_runners.library_lines import LibraryLines
from poolsm_runners.line_output import LineOutput
from poolsm_runners.log import sqlite
from tests.unit.test_cli import CODE, ENV, pool_file

PAGE = 4096


@pytest.fixture
def pipe():
    """A pipe for one page."""
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PAGE)
    yield ends
    for end in ends:
        with suppress(OSError):  # a test closed it
            os.close(end)


def until(what, seconds=20):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def read_lines(fd, count):
    data = b""
    while data.count(b"\n") < count:
        data += os.read(fd, PAGE)
    return data.decode().splitlines()


def test_lines_come_out_in_order_whatever_they_are(pipe):
    output = LineOutput(pipe[1], lambda _: None)
    lines = [f"{number} é \udcff" for number in range(100)]
    for line in lines:
        output.write(line + "\n")
    assert read_lines(pipe[0], 100) == [line.replace("\udcff", "\\udcff") for line in lines]
    assert output.drain(5)


def test_a_pipe_that_nobody_reads_costs_lines_and_no_time(pipe):
    lost = []
    output = LineOutput(pipe[1], lost.append, lines_limit=50)
    for number in range(1000):
        output.write(f"{number:>99}\n")
    assert not output.drain(0.1)
    least = 50  # the pipe takes more, if the thread was quick
    found = read_lines(pipe[0], least)
    assert output.drain(5)
    os.set_blocking(pipe[0], False)
    with suppress(BlockingIOError):
        found += os.read(pipe[0], PAGE).decode().splitlines()
    numbers = [int(line) for line in found]
    assert numbers == sorted(set(numbers))
    assert numbers[:least] == list(range(least)), "the oldest are kept"
    assert sum(lost) + len(numbers) == 1000
    output.write("on it goes\n")
    os.set_blocking(pipe[0], True)
    assert read_lines(pipe[0], 1) == ["on it goes"]


def test_a_pipe_that_others_made_nonblocking(pipe):
    os.set_blocking(pipe[1], False)
    output = LineOutput(pipe[1], lambda _: None)
    for number in range(100):
        output.write(f"{number:>99}\n")
    assert [int(line) for line in read_lines(pipe[0], 100)] == list(range(100))


def test_a_stream_that_fails_or_is_none_raises_nothing(pipe):
    os.close(pipe[0])
    LineOutput(pipe[1], lambda _: None).write("x\n")
    nowhere = LineOutput(None, lambda _: None)
    nowhere.write("x\n")
    assert nowhere.drain(0)


def test_what_libraries_say_is_one_line_and_not_said_again_and_again():
    noisy = logging.getLogger("noisy")
    noisy.addHandler(LibraryLines())
    with capture_logs() as lines:
        for number in (1, 1, 1, 2):
            fault = ValueError(f"no room {number}")
            noisy.error("failed\nat %s", "this", exc_info=fault)
        noisy.info("not worth a line")
    assert [line["text"] for line in lines] == [
        "failed at this (ValueError: no room 1)",
        "failed at this (ValueError: no room 2)",
    ]
    assert {line["log_level"] for line in lines} == {"error"}


def start(log, folder, **more):
    arguments = ["run", str(pool_file(folder)), "--log", str(log), "--speed", "50", "--json"]
    return subprocess.Popen([sys.executable, "-c", CODE, *arguments], env=ENV, **more)


def position(log):
    return sqlite.open_read_only(log).last_position() if Path(log).exists() else 0


def test_a_runner_whose_lines_nobody_reads_goes_on_and_ends(tmp_path, pipe):
    log = tmp_path / "log.db"
    process = start(log, tmp_path, stderr=pipe[1])
    try:
        until(lambda: position(log) > 0)
        os.set_blocking(pipe[1], False)
        while True:  # whatever room the runner left
            try:
                os.write(pipe[1], b"\n")
            except BlockingIOError:
                break
        os.set_blocking(pipe[1], True)
        before = position(log)
        until(lambda: position(log) >= before + 10)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("stream", ["full", "closed", "gone"])
def test_a_runner_without_a_working_stderr(tmp_path, stream):
    log = tmp_path / "log.db"
    if stream == "full":
        with Path("/dev/full").open("w") as full:
            process = start(log, tmp_path, stderr=full)
    elif stream == "closed":
        close = {"preexec_fn": lambda: [os.close(fd) for fd in range(3)]}
        process = start(log, tmp_path, **close)
    else:
        ends = os.pipe()
        process = start(log, tmp_path, stderr=ends[1])
        os.close(ends[0])
        os.close(ends[1])
    try:
        until(lambda: position(log) > 20)
        descriptors = [str(Path(f"/proc/{process.pid}/fd/{fd}").readlink()) for fd in range(3)]
        assert not any("log.db" in name for name in descriptors), descriptors
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_hangup_ends_a_run_in_order_unless_it_is_to_be_ignored(tmp_path):
    log = tmp_path / "log.db"
    for ignore in (False, True):
        handler = signal.SIG_IGN if ignore else signal.SIG_DFL  # ours may be either (nohup)
        hangup = {"preexec_fn": lambda handler=handler: signal.signal(signal.SIGHUP, handler)}
        process = start(log, tmp_path, stderr=subprocess.PIPE, **hangup)
        try:
            before = position(log)
            until(lambda start=before: position(log) > start + 2)
            process.send_signal(signal.SIGHUP)
            if ignore:
                status = Path(f"/proc/{process.pid}/status").read_text()
                (mask,) = [row.split()[1] for row in status.splitlines() if "SigIgn" in row]
                assert int(mask, 16) & 1 << (signal.SIGHUP - 1)
                process.send_signal(signal.SIGTERM)
            _, lines = process.communicate(timeout=20)
            assert process.returncode == 0
            assert json.loads(lines.splitlines()[-1])["event"] == "runner.stopped"
        finally:
            process.kill()
            process.wait()
