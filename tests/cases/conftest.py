from __future__ import annotations

from tests.unit.world import world

__all__ = ["world"]
