"""A running runner has no file descriptor left, and gets some again."""

import resource

import pytest

from poolsm_runners.control_requests import Status
from tests.integration.running import until
from tests.machine.test_disk import said, town

pytestmark = pytest.mark.timeout(180)


def test_without_file_descriptors_it_says_so_and_goes_on_later(tmp_path):
    with town(tmp_path, tmp_path / "runner") as t:
        t.runner.start()
        t.runner.wait_listed()
        t.apply(2)
        until("ready", lambda: t.runner.pool("p").ready == 2, 30)
        pid = t.runner._process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))  # what is open stays open
        t.kill_one()
        assert t.runner.try_to_ask(Status(), timeout_s=1.0) is None
        until("it says so", lambda: said(t.runner, "Too many open files"), 30)
        assert "Traceback" not in t.runner.output()
        assert t.runner.running
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        t.assert_whole(2)
