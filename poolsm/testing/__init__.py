"""For tests of services that embed the library: a simulated cloud. May do what the core may not.

``SimulatedCloud`` answers the requests that the runners send, with what a real OpenStack
answers, and goes wrong as one does (``Fault``). Time comes from the caller.
"""

from poolsm.testing.cloud import SimulatedCloud
from poolsm.testing.config import (
    INFRA,
    QUICK,
    VM,
    CloudConfig,
    FlavorConfig,
    ImageConfig,
    NetworkConfig,
    Quotas,
    Speeds,
    Spread,
    image_id_of,
    network_id_of,
    project_id_of,
    read_config,
)
from poolsm.testing.faults import KINDS, OPERATIONS, Fault
from poolsm.testing.hands import Hands
from poolsm.testing.inspection import CallRecord, ServerStory
from poolsm.testing.replies import SimReply

__all__ = [
    "SimulatedCloud",
    "SimReply",
    "Hands",
    # what it is made of
    "CloudConfig",
    "FlavorConfig",
    "ImageConfig",
    "NetworkConfig",
    "Quotas",
    "Speeds",
    "Spread",
    "QUICK",
    "VM",
    "INFRA",
    "image_id_of",
    "network_id_of",
    "project_id_of",
    "read_config",
    # what goes wrong
    "Fault",
    "KINDS",
    "OPERATIONS",
    # what it knows
    "CallRecord",
    "ServerStory",
]
