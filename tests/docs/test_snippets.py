"""What README and pages show works: snippets run, command lines are understood."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from itertools import takewhile

import click
import pytest
from snippets import PAGES, ROOT, blocks, commands

from poolsm_runners.cli import main
from poolsm_runners.poolfile import read_pool_file

README = ROOT / "README.md"
POOLSM = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'poolsm'; from poolsm_runners.cli import main; main()",
]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'runners'}"}


def test_readme_has_a_snippet_of_each_use():
    assert len(blocks(README, "toml")) == 1
    assert len(blocks(README, "python")) == 1
    verbs = {shlex.split(line)[1] for line in commands(README) if line.startswith("poolsm")}
    assert {"check", "status", "assign", "explain", "replay"} <= verbs


def test_library_snippet_runs():
    (snippet,) = blocks(README, "python")
    exec(compile(snippet, "README.md", "exec"), {})


def test_testing_snippet_runs():
    snippet = next(b for b in blocks(ROOT / "docs/embedding.md", "python") if "SimulatedCloud" in b)
    found = {}
    exec(compile(snippet, "embedding.md", "exec"), found)
    assert found["cloud"].faults()[0][0].kind == "spawn_error"


@pytest.mark.parametrize("page", [README, ROOT / "docs/quickstart.md"], ids=lambda p: p.name)
def test_pool_files_are_right(page, tmp_path):
    (text,) = blocks(page, "toml")
    path = tmp_path / "pools.toml"
    path.write_text(text)
    assert len(read_pool_file(path).pools) == 1


def poolsm(line, folder):
    arguments = shlex.split(line.partition("poolsm ")[2])
    return subprocess.run(
        [*POOLSM, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ready(folder):
    done = poolsm("poolsm status --json", folder)
    if done.returncode:
        return False
    return any(pool["ready"] for pool in json.loads(done.stdout)["fleet"]["pools"])


def test_runner_and_replay_snippets_run(tmp_path):
    """README's commands in their order; the cloud is simulated, and ids are of this run."""
    (text,) = blocks(README, "toml")
    (tmp_path / "pools.toml").write_text(text)
    runner = None
    try:
        for line in commands(README):
            if "poolsm " not in line:
                continue
            if "poolsm run" in line:
                fast = "run pools.toml --cloud sim --speed 20 --start-at 2026-06-01T09:00:00Z"
                runner = subprocess.Popen(
                    [*POOLSM, *fast.split()],
                    cwd=tmp_path,
                    env=ENVIRONMENT,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                give_up = time.monotonic() + 60
                while not ready(tmp_path) and time.monotonic() < give_up:
                    time.sleep(0.2)
                continue
            if re.search(r"explain [0-9a-f]{8}-", line):
                shown = json.loads(poolsm("poolsm status --vms --json", tmp_path).stdout)
                line = f"poolsm explain {shown['vms'][0]['server_id']}"  # noqa: PLW2901
            done = poolsm(line, tmp_path)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
    finally:
        if runner is not None:
            runner.terminate()
            runner.wait(30)
    assert runner.returncode == 0


LINES = [(page.name, line) for page in PAGES for line in commands(page) if "poolsm " in line]


@pytest.mark.parametrize(("page", "line"), LINES, ids=str)
def test_command_lines_are_understood(page, line):
    words = shlex.split(line)
    if "poolsm" not in words:
        return  # a file's name, not the command
    words = words[words.index("poolsm") + 1 :]
    words = list(takewhile(lambda word: word not in ("|", ">"), words))  # the shell's from there
    command, context = main, click.Context(main, info_name="poolsm")
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"{page}: {name} is no command"
        command, context = found, click.Context(found, info_name=name, parent=context)
    files = [word for word in words if word.endswith((".toml", ".jsonl", ".db"))]
    try:
        command.make_context(command.name, words)
    except click.BadParameter as error:  # the file is not here
        if not any(file in error.message for file in files):
            raise


def test_make_targets_exist():
    wanted = {
        match[1]
        for page in PAGES
        for line in commands(page)
        if (match := re.match(r"make (\S+)", line))
    }
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert wanted
    assert wanted <= targets
