"""What the lab's commands print: one line each, with the seconds since the start."""

import sys
import time

_BEGAN = time.monotonic()


def say(text: str) -> None:
    """Progress goes to standard error: standard output is for `env` and `status`."""
    print(f"[{time.monotonic() - _BEGAN:6.1f}s] {text}", file=sys.stderr, flush=True)
