"""The generated pages say what the code says."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from poolsm.vm import STATES, TRANSITIONS

ROOT = Path(__file__).resolve().parents[2]
GENERATE = ROOT / "docs" / "generate.py"


@pytest.fixture
def machines(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("generators.machines")


def test_generated_pages_are_current():
    done = subprocess.run(
        [sys.executable, GENERATE, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_page_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    generate = importlib.import_module("generate")
    for page in (ROOT / "docs" / "generated").iterdir():
        (tmp_path / page.name).write_bytes(page.read_bytes())
    (tmp_path / "events.md").write_text("old")
    (tmp_path / "left-over.md").write_text("of a page that is made no more")
    monkeypatch.setattr(generate, "TARGET", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 1
    out = capsys.readouterr().out
    assert "events.md is not current" in out
    assert "left-over.md is not current" in out
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 0


def test_the_collapsed_picture_loses_no_row(machines):
    drawing = machines.DRAWINGS[0]
    edges = machines.collapsed(drawing)
    group, inside = drawing.layout.frame
    family = drawing.families
    for trigger, sources, dest in TRANSITIONS:
        for source in sources:
            a, b, t = (family.get(x, x) for x in (source, dest, trigger))
            shown = edges.get((a, b), ()) + (edges.get((group, b), ()) if a in inside else ())
            assert t in shown, (source, trigger, dest)


def test_a_family_that_is_not_alike_is_no_family(machines):
    drawing = machines.DRAWINGS[0]
    rows = [row for row in TRANSITIONS if row[0] != "see_PAUSED"]
    odd = ("see_PAUSED", ("BUILD",), "PAUSED")
    broken = machines.Drawing("vm", "", "", STATES, (*rows, odd), drawing.layout, drawing.families)
    with pytest.raises(SystemExit, match="no family"):
        machines.collapsed(broken)
