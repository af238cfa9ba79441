"""A virt driver for nova-compute: Nova's own fake one, with delays and errors to order.

The metadata that a server is created with says what happens to it, or, for a program that
chooses its own metadata, the properties of the image it is made from:

  lab_spawn_delay     seconds before it is built (it stays in BUILD)
  lab_spawn_error     any text: the build is given up with it (it ends in ERROR)
  lab_destroy_delay   seconds its deletion takes
  lab_stop_delay      seconds its stop takes
  lab_start_delay     seconds its start takes

One nova-compute pretends POOLSM_LAB_NODES hypervisors, because one hypervisor of the fake
driver is too small for a pool of hundreds.
"""

import os
import time
import uuid

from nova import exception
from nova.compute import power_state
from nova.virt import fake

LONGEST = 600.0


def _order(instance, key):
    """What metadata or image say under `key`; a half-deleted server has none.

    Nova keeps the properties of a server's image in its system metadata.
    """
    try:
        ordered = (instance.metadata or {}).get(key)
        return ordered or (instance.system_metadata or {}).get(f"image_{key}")
    except exception.NovaException:
        return None


def _wait(instance, key):
    try:
        seconds = float(_order(instance, key) or 0)
    except ValueError:
        return
    time.sleep(min(max(seconds, 0.0), LONGEST))


def _node_uuid(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


class Driver(fake.FakeDriver):
    """Nova's FakeDriver obeying a server's metadata and image."""

    def init_host(self, host):
        super().init_host(host)
        count = int(os.environ["POOLSM_LAB_NODES"])
        self._set_nodes([f"lab-node-{number:02}" for number in range(1, count + 1)])

    def get_available_resource(self, nodename):
        found = super().get_available_resource(nodename)
        if found:  # the stock driver makes a new id in each run; the seed knows the old one
            found["uuid"] = _node_uuid(nodename)
        return found

    def get_nodenames_by_uuid(self, refresh=False):
        return {_node_uuid(name): name for name in self.get_available_nodes()}

    def _remember(self, instance, state):
        """Take up a server from before a restart, which the stock driver forgets."""
        if instance.uuid not in self.instances:
            flavor = instance.flavor
            self.resources.claim(vcpus=flavor.vcpus, mem=flavor.memory_mb, disk=flavor.root_gb)
            self.instances[instance.uuid] = fake.FakeInstance(instance.name, state, instance.uuid)

    def spawn(self, context, instance, *args, **kwargs):
        _wait(instance, "lab_spawn_delay")
        why = _order(instance, "lab_spawn_error")
        if why:
            # this exception is not tried again on another node
            raise exception.BuildAbortException(instance_uuid=instance.uuid, reason=why)
        return super().spawn(context, instance, *args, **kwargs)

    def destroy(self, context, instance, *args, **kwargs):
        _wait(instance, "lab_destroy_delay")
        return super().destroy(context, instance, *args, **kwargs)

    def power_off(self, instance, *args, **kwargs):
        _wait(instance, "lab_stop_delay")
        self._remember(instance, power_state.RUNNING)
        return super().power_off(instance, *args, **kwargs)

    def power_on(self, context, instance, *args, **kwargs):
        _wait(instance, "lab_start_delay")
        self._remember(instance, power_state.SHUTDOWN)
        return super().power_on(context, instance, *args, **kwargs)

    def resume_state_on_host_boot(self, context, instance, *args, **kwargs):
        self._remember(instance, power_state.RUNNING)
