"""Run nova-compute with the lab's virt driver.

Nova loads drivers from its own package alone, so the driver is put there by name.
"""

import sys

from nova import monkey_patch

monkey_patch.patch(backend="threading")  # before anything else of Nova is imported

import nova.virt  # noqa: E402
import poolsm_lab  # noqa: E402
from nova.cmd import compute  # noqa: E402
from nova.scheduler.client.report import SchedulerReportClient  # noqa: E402

sys.modules["nova.virt.poolsm_lab"] = nova.virt.poolsm_lab = poolsm_lab


def _no_allocations(self, context, nodename):
    """Nova asks for the allocations of all servers of a node, one request for each, at
    every build, and needs them only for drivers that rearrange their resources. With
    hundreds of servers on a node that made builds take seconds; this driver never does.
    """
    return {}


SchedulerReportClient.get_allocations_for_provider_tree = _no_allocations
sys.setswitchinterval(0.001)  # many threads, short turns
sys.exit(compute.main())
