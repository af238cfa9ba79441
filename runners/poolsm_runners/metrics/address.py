"""Where metrics are served."""

from __future__ import annotations

from attrs import frozen

from poolsm.errors import PoolsmError


class AddressError(PoolsmError):
    """The address for metrics is none, or cannot be listened at."""


@frozen
class Address:
    """Where to listen."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """From ``host:port``; an IPv6 address in brackets, port 0 for any that is free.

        Raises:
            AddressError: it is no such text.
        """
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
        if not colon or not host or (":" in host) is not bracketed or not 0 <= number <= 65_535:
            raise AddressError(
                f"metrics address {text!r}: is no host:port; give one like 127.0.0.1:9464, "
                "or [::1]:9464"
            )
        return cls(host.strip("[]"), number)

    def __str__(self) -> str:
        """As it is written."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
