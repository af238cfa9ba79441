"""Write the pages that follow from the code: ``docs/generated``.

    python docs/generate.py            write them
    python docs/generate.py --check    exit code 1, naming them, if any is not current

They are committed, so that they can be read without building anything; a test runs the check.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "runners"), str(DOCS)]

from generators import cli, machines, metrics, records  # noqa: E402 - after the path

TARGET = DOCS / "generated"


def pages() -> dict[str, str]:
    """All generated files by name."""
    return {**machines.pages(), **records.pages(), **cli.pages(), **metrics.pages()}


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if not current")
    options = parser.parse_args()
    wanted = pages()
    found = {path.name: path.read_text() for path in sorted(TARGET.glob("*")) if path.is_file()}
    stale = sorted(name for name in wanted | found if wanted.get(name) != found.get(name))
    if options.check:
        for name in stale:
            print(f"docs/generated/{name} is not current; run `python docs/generate.py`")
        return 1 if stale else 0
    TARGET.mkdir(exist_ok=True)
    for name in stale:
        if name in wanted:
            (TARGET / name).write_text(wanted[name])
        else:
            (TARGET / name).unlink()
        print(f"docs/generated/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
