"""A mechanism driver for ML2 that needs no agent.

Neutron refuses to bind a port on a host where no agent reports, and there is no agent in
the lab. This driver says yes to every ordinary port and marks it active; the API, the
database, the address management and the quotas stay Neutron's own.
"""

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api

DETAILS = {
    portbindings.CAP_PORT_FILTER: True,
    portbindings.OVS_HYBRID_PLUG: False,
    portbindings.VIF_DETAILS_CONNECTIVITY: portbindings.CONNECTIVITY_L2,
}


class AgentlessDriver(api.MechanismDriver):
    """Binds a port to the first segment offered."""

    def initialize(self):
        """Nothing to prepare."""

    @property
    def connectivity(self):
        """Layer 2, as any bridge."""
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context):
        """Bind at once; other kinds of ports (SR-IOV and so on) stay unbound."""
        kind = context.current[portbindings.VNIC_TYPE]
        segment = next(iter(context.segments_to_bind), None)
        if kind == portbindings.VNIC_NORMAL and segment is not None:
            context.set_binding(
                segment[api.ID],
                portbindings.VIF_TYPE_OVS,
                dict(DETAILS),
                status=constants.PORT_STATUS_ACTIVE,
            )
