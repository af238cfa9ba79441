"""The embedded default: a simulated cloud in the runner's own process.

It ends with the process, so it begins with the servers that the log remembers: a second run
on the same log finds what the first one left, as on a real cloud.
"""

from __future__ import annotations

from poolsm.observe import expected_servers
from poolsm.state import State
from poolsm.testing import SimulatedCloud
from poolsm_runners.clock import Clock
from poolsm_runners.cloud.simulated import SimulatedTransport


def embedded_transport(state: State, clock: Clock) -> SimulatedTransport:
    """A transport to a new simulated cloud that has the servers of this fold."""
    cloud = SimulatedCloud()
    known = expected_servers(state).values()
    cloud.take_up(record for record in known if record is not None and record.metadata is not None)
    return SimulatedTransport(cloud, clock)
