"""Plain sentences for events, commands, answers and transitions."""

from __future__ import annotations

from poolsm import answers
from poolsm.answers import classify
from poolsm.commands import (
    ATTRIBUTED,
    CLAIMANT,
    REQUEST_ID,
    ClaimServer,
    Command,
    RebuildServer,
    RenameServer,
)
from poolsm.events import (
    AssignmentRequested,
    AttributionDeclared,
    CallAnswered,
    ClockStepped,
    Event,
    FleetPaused,
    FleetResumed,
    ListingCompleted,
    ListingFailed,
    LossConfirmed,
    PoolAcknowledged,
    PoolDeclared,
    PoolPaused,
    PoolRemovalRequested,
    PoolReset,
    PoolResumed,
    RebuildRequested,
    ReleaseRequested,
    RunnerStarted,
    Ticked,
    VmHeld,
    VmUnheld,
)
from poolsm.shapes import PoolStanding
from poolsm.spec import PoolSpec
from poolsm.views import pool_after_claim
from poolsm.vm import ACTIVE, BUILD, DELETING, ERROR, MISSING, PENDING

_NOUNS = {
    "CreateServer": "creation",
    "DeleteServer": "deletion",
    "StopServer": "stop",
    "StartServer": "start",
    "ClaimServer": "claim",
    "RenameServer": "new name",
    "RebuildServer": "rebuild",
    "FindServer": "lookup",
    "FetchImage": "image listing",
}

_VERBS = {
    "CreateServer": "create it",
    "DeleteServer": "delete it",
    "StopServer": "stop it",
    "StartServer": "start it",
    "FindServer": "look it up in the cloud by its id",
    "FetchImage": "list the images afresh",
}

# what a rule is for, before its own words
_RULES = {
    "R2 provision": "the pool was short of VMs",
    "R4 warm pool": "a ready VM of a warm pool serves better than a new one",
    "R4 refresh": "its image is out of date",
    "R6 failure": "it failed",
    "R11 start-up": "its metadata has to say whose it is",
    "R12 removal": "its pool is being removed",
    "R8 scale_down": "the pool has more VMs than its maximum",
    "R8 repeat": "the deletion before had no effect",
    "R9 power": "the pool's calendar",
    "R10 observation": "it is not in the listing, and only the cloud's own word proves it gone",
    "R13 image": "the cloud refused the image",
    "R16 assignment": "somebody asked for a VM",
    "R16 release": "it was given back",
}


def noun(kind: str) -> str:
    """A command's kind as a noun."""
    return _NOUNS.get(kind, kind)


def decision_text(command: Command) -> str:
    """What was decided, of a VM called "it"."""
    return f"Decided to {_verb(command)}."


def _verb(command: Command) -> str:
    if isinstance(command, RenameServer):
        return f"name it {command.name}"
    if isinstance(command, RebuildServer):
        return f"rebuild it from image {command.image_id}"
    if isinstance(command, ClaimServer):
        return _claim(command)
    return _VERBS.get(type(command).__name__, type(command).__name__)


def _claim(command: ClaimServer) -> str:
    tags = command.metadata
    if tags.get(ATTRIBUTED) != "true":
        return "make it free for others again"
    request = f" (request {tags[REQUEST_ID]})" if tags.get(REQUEST_ID) else ""
    home, pool = command.expect.pool, pool_after_claim(command)
    moved = f", moving it from pool {home} to pool {pool}" if home != pool else ""
    return f"give it to {tags.get(CLAIMANT, '')}{request}{moved}"


def reason_text(command: Command) -> str:
    """Why, in words and with the rule's own numbers."""
    why = _RULES.get(command.reason.rule)
    return f"{why}: {command.reason.text}" if why else command.reason.text


def standing_text(standing: PoolStanding) -> str:
    """How a pool stood."""
    states = ", ".join(f"{n} {_state(state)}" for state, n in standing.by_state.items())
    most = f"at most {standing.max_vm}" if standing.max_vm else "no maximum"
    return (
        f"Pool {standing.key} then had {standing.capacity} usable VMs; it wants at least "
        f"{standing.min_vm}, {most}; {standing.owned} in all ({states or 'none'})."
    )


def _state(state: str) -> str:
    return "not seen yet" if state == PENDING else state


def answer_text(kind: str, event: CallAnswered) -> str:
    """What the cloud said to a command, and what that means."""
    outcome = classify(kind, event)
    what, text = noun(kind), outcome.text
    match outcome.kind:
        case answers.DONE:
            server = f"; its server id is {event.server_id}" if event.server_id else ""
            return f"The cloud accepted the {what} ({text}){server}."
        case answers.ALREADY:
            return f"The {what} was not needed any more: {text}."
        case answers.GONE:
            return f"The cloud says that there is no such server ({text})."
        case answers.UNMET:
            return f"Nothing was done, the server was not as expected: {text}."
        case answers.QUOTA:
            return f"The cloud refused the {what} at a quota: {text}."
        case answers.BUSY:
            wait = f", in {outcome.retry_after_s} s" if outcome.retry_after_s else ""
            return f"The cloud asked to come back later{wait}: {text}."
        case answers.UNKNOWN:
            return f"The answer to the {what} proves nothing, it may have been done: {text}."
        case _:
            return f"The cloud refused the {what}: {text}."


def move_text(source: str, trigger: str, dest: str, *, fault: str = "", since: str = "") -> str:
    """What a VM became; ``since`` is how long after it was asked for."""
    match dest:
        case "deleted" if trigger == "creation_ended":
            return "The creation ended without a server."
        case "deleted" if trigger != "prove_gone":
            shown = f"cloud shows it as {trigger.removeprefix('see_')}"
            return (
                f"It is deleted: the {shown}."
                if source == DELETING
                else (f"The {shown}: somebody deleted it.")
            )
        case "deleted" if source == DELETING:
            return "It is deleted: a later complete listing lacks it."
        case "deleted":
            return "It is gone: proven absent, and not deleted by us."
    if dest == MISSING:
        return "It is missing: two complete listings in a row lack it."
    if dest == DELETING:
        return "It is being deleted."
    if source == MISSING:
        return f"It is back: the cloud shows it as {dest}."
    if dest == ERROR:
        return f"It is in ERROR: {fault or 'the cloud gives no reason'}."
    if dest == ACTIVE and source in (PENDING, BUILD):
        return f"It is ACTIVE{since}."
    return f"The cloud shows it as {dest}; before it was {_state(source)}."


def event_text(event: Event) -> str:
    """What happened, for events that are not about one server alone."""
    match event:
        case Ticked():
            return "The rules were run."
        case RunnerStarted():
            return f"A runner started (version {event.version})."
        case ClockStepped():
            return f"The clock was set by {event.by_ms / 1000:+.0f} s."
        case ListingCompleted():
            new, gone = len(event.changed), len(event.absent)
            return f"A complete listing came: {new} servers new or changed, {gone} absent."
        case ListingFailed():
            return f"A listing of {event.what} failed: {event.message}."
        case AssignmentRequested():
            return (
                f"{event.claimant} asked for a VM of pool {event.pool} "
                f"(request {event.request_id}, by {event.origin})."
            )
        case AttributionDeclared():
            whose = f"{event.claimant}'s" if event.attributed else "free"
            return f"It was declared to be {whose} (by {event.origin})."
        case ReleaseRequested():
            return f"{event.target} was given back (by {event.origin})."
        case RebuildRequested():
            return f"A rebuild from image {event.image_ref} was asked for (by {event.origin})."
        case PoolRemovalRequested():
            also = ", with the VMs that are somebody's" if event.include_assigned else ""
            return f"The removal of pool {event.pool} was asked for{also} (by {event.origin})."
        case PoolReset():
            return f"Pool {event.pool} was told to try again now (by {event.origin})."
        case PoolAcknowledged():
            return f"What is wrong with pool {event.pool} was acknowledged (by {event.origin})."
        case PoolPaused():
            return f"Pool {event.pool} was paused (by {event.origin}){_because(event.why)}."
        case PoolResumed():
            return f"Pool {event.pool} was resumed (by {event.origin})."
        case FleetPaused():
            return f"The whole fleet was paused (by {event.origin}){_because(event.why)}."
        case FleetResumed():
            return f"The whole fleet was resumed (by {event.origin})."
        case VmHeld():
            return f"VM {event.target} was held (by {event.origin}){_because(event.why)}."
        case VmUnheld():
            return f"VM {event.target} is held no longer (by {event.origin})."
        case PoolDeclared():
            return f"Pool {event.spec.key} was declared (by {event.origin})."
        case LossConfirmed():
            return f"The loss of servers was confirmed (by {event.origin})."
        case CallAnswered():
            return f"The answer to command {event.command_id} came."
        case _:
            return f"{type(event).__name__}."


def _because(why: str) -> str:
    return f": {why}" if why else ""


def spec_text(spec: PoolSpec) -> str:
    """A pool's declaration in one sentence."""
    most = f"at most {spec.max_vm}" if spec.max_vm else "no maximum"
    parts = [f"at least {spec.min_vm} VMs, {most}"]
    parts.append(f"image {spec.image_ref or spec.config_id}, flavor {spec.flavor_ref}")
    if spec.networks:
        parts.append(f"networks {', '.join(spec.networks)}")
    if spec.off_days:
        parts.append(f"off on {', '.join(spec.off_days)}")
    if spec.warm:
        parts.append("a warm pool for others")
    return "; ".join(parts)
