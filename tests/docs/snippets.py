"""What the tests of the documentation share: the code blocks of a page."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def blocks(page, language):
    """The code blocks of one language, in order."""
    return [body for _, name, body in _FENCE.findall(page.read_text()) if name == language]


def commands(page):
    """Lines of shell blocks without comments, blanks aside."""
    lines = [line for body in blocks(page, "sh") for line in body.splitlines()]
    return [text for line in lines if (text := re.sub(r"(^|\s)#.*", "", line).strip())]
