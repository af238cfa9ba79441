"""A machine whose disk and clock fail, for one process: see ``faults.c``."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faults.c")


class Machine:
    """What a process that was started within :meth:`env` believes of its machine."""

    def __init__(self, folder: Path, under: Path) -> None:
        self._folder = folder / "faults"
        self._folder.mkdir()
        self._library = folder / "faults.so"
        self._under = under
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", self._library, SOURCE, "-ldl"], check=True
        )

    @contextmanager
    def env(self) -> Iterator[None]:
        """Processes that are started in the block are on this machine."""
        mine = {
            "LD_PRELOAD": str(self._library),
            "FAULTS": str(self._folder),
            "FAULTS_UNDER": str(self._under),
        }
        os.environ.update(mine)
        try:
            yield
        finally:
            for name in mine:
                del os.environ[name]

    def fail(self, call: str, number: int) -> None:
        """From now on; see ``faults.c`` for the calls and what the number is."""
        draft = self._folder / f".{call}"
        draft.write_text(str(number))
        draft.rename(self._folder / call)

    def mend(self, call: str) -> None:
        """No more of it."""
        (self._folder / call).unlink(missing_ok=True)


@contextmanager
def small_disk(at: Path, size_kib: int) -> Iterator[Path]:
    """A file system of its own of that size; skipped where one may not be mounted."""
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(at)]
    if os.getuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)
