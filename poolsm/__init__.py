"""poolsm: pools of VMs on OpenStack as pure state machines.

Observed events go in, commands come out::

    fleet = Fleet()
    step = fleet.step(event)   # append step.entries to a log, then carry out step.commands

See the documentation for a complete example of embedding the library.
"""

from poolsm.entries import Entry
from poolsm.errors import PoolsmError, UnknownKindError, UnreadableRecordError
from poolsm.fleet import Fleet, MisuseError, Step
from poolsm.listing import diff_catalog, diff_listing
from poolsm.members import Anomaly, Moved
from poolsm.spec import PoolKey, PoolSpec, Problem, RunnerSettings, SecretRef, check_spec
from poolsm.state import STATE_VERSION

__version__ = "0.1.0"

__all__ = [
    "Anomaly",
    "Entry",
    "Fleet",
    "MisuseError",
    "Moved",
    "PoolKey",
    "PoolSpec",
    "PoolsmError",
    "Problem",
    "RunnerSettings",
    "STATE_VERSION",
    "SecretRef",
    "Step",
    "UnknownKindError",
    "UnreadableRecordError",
    "__version__",
    "check_spec",
    "diff_catalog",
    "diff_listing",
]
