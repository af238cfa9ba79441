"""The service of the documentation runs, and prints what the page shows."""

import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def embed():
    spec = importlib.util.spec_from_file_location("embed", EXAMPLES / "embed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shape(text):
    return re.sub(r"10\.77\.0\.\d+", "ADDRESS", UUID.sub("ID", text))


async def test_it_hands_out_a_machine_and_prints_what_the_page_shows(embed, tmp_path, capsys):
    answer = await embed.main(tmp_path / "log.jsonl", speed=60.0)
    assert (answer.state, answer.claimant) == ("granted", "alice")
    assert shape(capsys.readouterr().out) == shape((EXAMPLES / "embed.txt").read_text())


async def test_it_goes_on_from_its_log(embed, tmp_path):
    first = await embed.main(tmp_path / "log.jsonl", speed=60.0)
    second = await embed.main(tmp_path / "log.jsonl", speed=60.0)
    assert second.state == "granted"
    assert second.server_id != first.server_id, "one VM has one claimant"
