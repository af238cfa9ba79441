"""The life of a simulated server: which states follow each other, and after how long.

The sequences are those of Nova as its API shows them (vm_state/task_state):

    create   building/scheduling -> building/None -> building/networking -> building/spawning
             -> active, or error
    stop     active/powering-off -> stopped
    start    stopped/powering-on -> active
    rebuild  .../rebuilding -> .../rebuild_spawning -> what it was
    delete   .../deleting -> deleted for a moment -> 404; during a boot it waits for its end
"""

from __future__ import annotations

from collections.abc import Callable

from poolsm.testing.faults import Fault
from poolsm.testing.server import DELETED, ServerFault, SimServer, host_id_of
from poolsm.testing.world import World, subject_of

NO_HOST_TEXT = "No valid host was found. "


def begin_build(world: World, server: SimServer, now_ms: int) -> None:
    """A create was accepted: set the whole boot going."""
    speeds = world.config.speeds
    subject = subject_of(server)
    fault = world.faults.strike(
        ("spawn_error", "boot_hang", "boot_slow"), now_ms, "create", server.project, subject
    )
    if server.flavor.impossible:
        at_ms = now_ms + world.lasts(speeds.no_host_ms)
        world.schedule(at_ms, "no_host", server)
        return
    at_ms = now_ms + world.lasts(speeds.scheduling_ms)
    world.schedule(at_ms, "build", server)
    at_ms += world.lasts(speeds.building_ms)
    world.schedule(at_ms, "network", server)
    at_ms += world.lasts(speeds.networking_ms)
    world.schedule(at_ms, "spawn", server)
    at_ms += world.lasts(speeds.spawning_ms)
    server.boot_ends = fault is None or fault.kind != "boot_hang"
    if fault is None:
        world.schedule(at_ms, "activate", server)
    elif fault.kind == "boot_slow":
        world.schedule(at_ms + fault.delay_ms, "activate", server)
    elif fault.kind == "spawn_error":
        world.schedule(at_ms, "fail", server, _spawn_error_text(fault, server))


def _spawn_error_text(fault: Fault, server: SimServer) -> str:
    if fault.fault_text:
        return fault.fault_text.replace("{id}", server.server_id)
    reason = fault.message or "the simulated hypervisor refused"
    return f"Build of instance {server.server_id} aborted: {reason}"


def begin_stop(world: World, server: SimServer, now_ms: int, fault: Fault | None) -> None:
    """A stop was accepted."""
    _begin(world, server, now_ms, "powering-off", fault)
    at_ms = now_ms + world.lasts(world.config.speeds.stop_ms)
    _then(world, server, at_ms, "stop", fault)


def begin_start(world: World, server: SimServer, now_ms: int, fault: Fault | None) -> None:
    """A start was accepted."""
    _begin(world, server, now_ms, "powering-on", fault)
    at_ms = now_ms + world.lasts(world.config.speeds.start_ms)
    _then(world, server, at_ms, "activate", fault)


def begin_rebuild(world: World, server: SimServer, now_ms: int, fault: Fault | None) -> None:
    """A rebuild was accepted; it ends in the state that it began in."""
    after = "stop" if server.face.vm_state == "stopped" else "activate"
    _begin(world, server, now_ms, "rebuilding", fault)
    half_ms = world.lasts(world.config.speeds.rebuild_ms) // 2
    world.schedule(now_ms + half_ms, "rebuild_spawn", server)
    _then(world, server, now_ms + 2 * half_ms, after, fault)


def begin_delete(world: World, server: SimServer, now_ms: int, fault: Fault | None) -> None:
    """A delete was accepted; one in flight is not disturbed by another."""
    face = server.face
    if face.vm_state == DELETED or (face.task_state == "deleting" and not server.stuck):
        return
    speeds = world.config.speeds
    booting = face.vm_state == "building" and face.task_state in (None, "networking", "spawning")
    if booting and fault is None and server.boot_ends:
        server.delete_wanted = True
        world.change(server, now_ms, task_state="deleting")
        return
    _begin(world, server, now_ms, "deleting", fault)
    unscheduled = face.vm_state == "building" and face.task_state == "scheduling"
    at_ms = now_ms + (0 if unscheduled else world.lasts(speeds.delete_ms))
    _then(world, server, at_ms, "delete", fault)


def _begin(
    world: World, server: SimServer, now_ms: int, task_state: str, fault: Fault | None
) -> None:
    if fault is not None and fault.kind == "ignore":
        return
    server.plan += 1
    world.change(server, now_ms, task_state=task_state)


def _then(world: World, server: SimServer, at_ms: int, action: str, fault: Fault | None) -> None:
    server.stuck = fault is not None and fault.kind == "stuck"
    if fault is None:
        world.schedule(at_ms, action, server)
    elif fault.kind == "fails":
        world.schedule(at_ms, "settle", server)


# --- steps that happen by themselves --------------------------------------------------------


def _build(world: World, server: SimServer, at_ms: int, _: str) -> None:
    world.change(server, at_ms, task_state=None, host=host_id_of(server.server_id))


def _network(world: World, server: SimServer, at_ms: int, _: str) -> None:
    if not server.delete_wanted:
        world.change(server, at_ms, task_state="networking")


def _spawn(world: World, server: SimServer, at_ms: int, _: str) -> None:
    addresses = world.addresses_for(server)
    if isinstance(addresses, str):
        server.plan += 1
        reason = f"No fixed IP addresses available for network: {addresses}"
        _fail(world, server, at_ms, f"Build of instance {server.server_id} aborted: {reason}")
        return
    server.ports = addresses
    if not server.delete_wanted:
        world.change(server, at_ms, task_state="spawning", plugged=bool(addresses))


def _activate(world: World, server: SimServer, at_ms: int, _: str) -> None:
    if server.delete_wanted:
        _delete(world, server, at_ms, "")
        return
    launched = server.face.launched_ms or at_ms
    world.change(
        server,
        at_ms,
        vm_state="active",
        task_state=None,
        launched_ms=launched,
        addresses=server.ports,
    )


def _fail(world: World, server: SimServer, at_ms: int, text: str) -> None:
    if server.delete_wanted:
        _delete(world, server, at_ms, "")
        return
    world.unplug(server)
    world.change(
        server,
        at_ms,
        vm_state="error",
        task_state=None,
        fault=ServerFault(500, text, at_ms),
        host="",
        addresses=(),
        plugged=False,
    )


def _no_host(world: World, server: SimServer, at_ms: int, _: str) -> None:
    _fail(world, server, at_ms, NO_HOST_TEXT)


def _stop(world: World, server: SimServer, at_ms: int, _: str) -> None:
    world.change(server, at_ms, vm_state="stopped", task_state=None)


def _settle(world: World, server: SimServer, at_ms: int, _: str) -> None:
    world.change(server, at_ms, task_state=None)


def _rebuild_spawn(world: World, server: SimServer, at_ms: int, _: str) -> None:
    world.change(server, at_ms, task_state="rebuild_spawning")


def _delete(world: World, server: SimServer, at_ms: int, _: str) -> None:
    world.change(server, at_ms, vm_state=DELETED, task_state=None)
    world.schedule(at_ms + world.lasts(world.config.speeds.deleted_ms), "purge", server)


def _purge(world: World, server: SimServer, at_ms: int, _: str) -> None:
    world.expel(server, at_ms, "api")


STEPS: dict[str, Callable[[World, SimServer, int, str], None]] = {
    "build": _build,
    "network": _network,
    "spawn": _spawn,
    "activate": _activate,
    "fail": _fail,
    "no_host": _no_host,
    "stop": _stop,
    "settle": _settle,
    "rebuild_spawn": _rebuild_spawn,
    "delete": _delete,
    "purge": _purge,
}
