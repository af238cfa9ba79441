"""Every reason and condition that the code can give is explained to operators."""

import ast
import re

from snippets import ROOT

from poolsm import commands, events, shapes
from poolsm.conditions import FLEET_CONDITIONS, POOL_CONDITIONS

# modules that give reasons, and what else they spell in the same way
NAMES = {kind.__name__ for kind in (*commands.COMMAND_TYPES, *events.EVENT_TYPES)} - {
    "ListingFailed",
    "ClockStepped",
    "PoolPaused",
    "FleetPaused",
}  # these are conditions or reasons as well
NAMES |= {name for name in dir(shapes) if name[0].isupper()}
NAMES |= {commands.HOST_VALUE}
WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*")


def reasons():
    found = set()
    for path in sorted((ROOT / "poolsm").rglob("*.py")):
        if "testing" in path.parts or path.name in ("__init__.py", "wording.py", "codec.py"):
            continue
        tree = ast.parse(path.read_text())
        parts = {
            id(v) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for v in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if not WORD.fullmatch(node.value) or node.value in NAMES:
                    continue
                prefixes = ("Flavor", "Network") if id(node) in parts else ("",)
                found |= {prefix + node.value for prefix in prefixes}
    return found


def test_every_reason_is_documented():
    page = (ROOT / "docs" / "conditions.md").read_text()
    missing = sorted(reason for reason in reasons() if f"`{reason}`" not in page)
    assert not missing, "docs/conditions.md does not explain these"


def test_no_reason_is_documented_that_the_code_cannot_give():
    page = (ROOT / "docs" / "conditions.md").read_text()
    begin = page.index("## Of the fleet")
    cells = [
        cell
        for line in page[begin:].splitlines()
        if line.startswith("|")
        for cell in line.split("|")[1:3]
    ]
    told = {name for cell in cells for name in re.findall(r"`([A-Z]\w+)`", cell)}
    assert told, "the tables are gone"
    assert told <= reasons()


def test_the_page_has_each_type_of_condition_and_no_other():
    page = (ROOT / "docs" / "conditions.md").read_text()
    fleet, _, rest = page.partition("## Of the fleet")[2].partition("## Of a pool")
    pool = rest.partition("## Why a pool is where it is")[0]
    for part, known in ((fleet, FLEET_CONDITIONS), (pool, POOL_CONDITIONS)):
        first_cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
        told = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
        assert told == set(known)
