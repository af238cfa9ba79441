"""The few lines of sd_notify(3): what a service tells systemd.

The protocol is one datagram of ``NAME=value`` lines. Of the libraries for it, the small one has
had no release since 2017, and the others bind a C library for it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """Speaks to the service manager that started us; silent where there is none.

    What cannot be sent is not said: a service must not end because nobody listens.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # an abstract address is written with @, and has a NUL in its place
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(environment) if address else 0.0

    def __bool__(self) -> bool:
        """Whether somebody wants to be told."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The service is up."""
        self._send("READY=1", f"STATUS={status}")

    def alive(self, status: str) -> None:
        """Sent more often than ``WatchdogSec``, or the service is killed and started again."""
        self._send("WATCHDOG=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={status}")

    def stopping(self) -> None:
        """It ends because it was told to."""
        self._send("STOPPING=1", "STATUS=stopping")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
        ):
            sender.settimeout(0)  # a manager that hangs must not take us along
            sender.connect(self._address)
            sender.send("\n".join(line.replace("\n", " ") for line in lines).encode())


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """``WatchdogSec`` of the unit, 0 if it has none or it is meant for another process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return int(environment.get("WATCHDOG_USEC", "0")) / 1e6
    except ValueError:
        return 0.0
