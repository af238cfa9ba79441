"""R2, R3, R4, R5, R6: how many servers a pool lacks, and where they come from."""

from __future__ import annotations

from attrs import frozen

from poolsm.commands import (
    ATTRIBUTED,
    HOST,
    HOST_VALUE,
    LOG_ID,
    MAX_VM,
    MIN_VM,
    NETWORK_UUID,
    SERVERPOOL_ID,
    USER_ID,
    Command,
    CreateServer,
    FetchImage,
    Reason,
)
from poolsm.failure import breaker_allows, quota_holds
from poolsm.members import Pool, Target
from poolsm.pool import DRAINING
from poolsm.requests import waiting_requests
from poolsm.rules.claims import transfer, warm_candidates
from poolsm.state import State
from poolsm.target import Unresolved, resolve_target
from poolsm.vm import BUILD, PENDING
from poolsm.words import blocked, suspended


@frozen
class Need:
    """What a pool lacks.

    ``missing = MinVM - capacity``, and one VM for each request that none is coming for. With a
    ceiling, what is owned (ERROR, missing and deleting ones too) leaves the room (R3).
    """

    min_vm: int
    max_vm: int
    capacity: int
    owned: int
    waiting: int
    coming: int

    @property
    def count(self) -> int:
        """How many servers."""
        return max(self.min_vm - self.capacity, self.waiting - self.coming, 0)

    @property
    def room(self) -> int:
        """How many fit under the ceiling."""
        return max(self.max_vm - self.owned, 0) if self.max_vm else self.count

    @property
    def text(self) -> str:
        """The arithmetic."""
        text = f"missing = {self.min_vm} - {self.capacity} = {self.min_vm - self.capacity}"
        if self.waiting:
            asked = self.waiting - self.coming
            text += f", asked for = {self.waiting} - {self.coming} coming = {asked}"
        if self.max_vm:
            text += f", room = {self.max_vm} - {self.owned} = {self.max_vm - self.owned}"
        return text


@frozen
class Want:
    """What a pool would have done now, and why not more.

    Attributes:
        commands: to be issued whatever the project's limit: transfers, an image refresh.
        creates: how many servers it would create at once.
        target: what they would be.
        text: the arithmetic.
        reason: machine-readable state of its provisioning.
        message: the same for people.
    """

    commands: tuple[Command, ...]
    creates: int
    target: Target | None
    text: str
    reason: str
    message: str


def need_of(pool: Pool, state: State) -> Need:
    """What a pool lacks now: a booting VM is in capacity, as pending, then as BUILD (R2)."""
    waiting = len(waiting_requests(state, pool.key))
    coming = 0
    if waiting:
        coming = sum(
            1
            for vm in state.pool_vms(pool, PENDING, BUILD)
            if vm.attribution is None and not (vm.condemned or vm.leaving or vm.held)
        )
    spec = pool.spec
    return Need(spec.min_vm, spec.max_vm, pool.capacity, pool.owned, waiting, coming)


def provision(pool: Pool, state: State) -> Want:
    """What to transfer and create for a pool now, and the reason it is at n of m (R2 to R6)."""
    capacity, least = pool.capacity, pool.spec.min_vm
    if capacity >= least and pool.key not in state.asked_of and pool.state != DRAINING:
        return _idle(*(blocked(pool, state) or ("Satisfied", f"{capacity} of {least}")))
    need = need_of(pool, state)
    if pool.state == DRAINING:
        return _idle("Draining", f"being removed; {need.owned} servers left")
    if need.count == 0:
        full = ("Satisfied", f"{need.capacity} of {need.min_vm}")
        return _idle(*(blocked(pool, state) or full))
    held = suspended(pool, state)
    if held:
        return _idle(*held)
    count = min(need.count, need.room)
    if count == 0:
        return _idle("AtCeiling", f"owned {need.owned} of max_vm {need.max_vm}")
    target = resolve_target(pool, state)
    if isinstance(target, Unresolved):
        return _idle(target.reason, target.message)
    text = need.text
    transfers = _transfers(pool, target, count, text, state)
    count -= len(transfers)
    if count == 0:
        return Want(transfers, 0, target, text, "Transferring", text)
    return _creations(pool, target, count, state, transfers=transfers, text=text)


def _idle(reason: str, message: str) -> Want:
    return Want((), 0, None, "", reason, message)


def _transfers(
    pool: Pool, target: Target, count: int, text: str, state: State
) -> tuple[Command, ...]:
    """Never paused by quota or breaker: nothing is built (R6)."""
    if pool.spec.warm:
        return ()
    requests = waiting_requests(state, pool.key)
    found = warm_candidates(pool, target, state)[:count]
    return tuple(
        transfer(pool, warm, vm, requests[n] if n < len(requests) else None, text)
        for n, (warm, vm) in enumerate(found)
    )


def _creations(
    pool: Pool,
    target: Target,
    count: int,
    state: State,
    *,
    transfers: tuple[Command, ...],
    text: str,
) -> Want:
    """Creation with everything that may hold it back, the longest-lasting first (R6, R13)."""
    now_ms = state.now_ms

    def held(reason: str, message: str, *commands: Command) -> Want:
        return Want((*transfers, *commands), 0, target, text, reason, message)

    if pool.invalid and pool.invalid_target in ("", target.fingerprint):
        return held("SpecInvalid", pool.invalid)
    if pool.image_retry == "wanted" and now_ms >= pool.backoff_until_ms:
        refused = f"a create was refused for image {target.image_id}"
        reason = Reason("R13 image", refused)
        fetch = FetchImage(pool=pool.key, image_ref=pool.spec.image_ref, reason=reason)
        return held("ImageRefused", f"{refused}; listing the images again", fetch)
    if pool.image_retry == "asked":
        return held("ImageRefused", "listing the images again")
    allowed = breaker_allows(pool, now_ms)
    if allowed == 0:
        last = pool.conditions.get("LastFailure")
        why = last.message if last else "failures"
        return held("BreakerOpen", f"{pool.failures} failures since the last ACTIVE: {why}")
    if now_ms < pool.backoff_until_ms:
        last = pool.conditions.get("LastFailure")
        left_s = (pool.backoff_until_ms - now_ms) // 1000
        return held("BackingOff", f"for {left_s} s after: {last.message if last else 'a failure'}")
    if now_ms < state.creation_pause_until_ms:
        return held("ProjectPaused", state.creation_pause_text)
    if quota_holds(state, target.flavor_id):
        return held("QuotaExceeded", state.quotas[target.flavor_id].message)
    if target.flavor_id in state.quotas:
        allowed = 1  # a probe
    creates = count if allowed is None else min(count, allowed)
    return Want(transfers, creates, target, text, "Provisioning", text)


def create_draft(pool: Pool, target: Target, text: str, state: State) -> CreateServer:
    """The create call's content: everything that makes the server ours, in one call (R5)."""
    return CreateServer(
        pool=pool.key,
        image_id=target.image_id,
        flavor_id=target.flavor_id,
        networks=target.networks,
        key_name=target.key_name,
        user_data=target.user_data,
        metadata={
            USER_ID: pool.spec.user_id,
            SERVERPOOL_ID: pool.spec.serverpool_id,
            MIN_VM: str(pool.spec.min_vm),
            MAX_VM: str(pool.spec.max_vm),
            HOST: HOST_VALUE,
            NETWORK_UUID: target.networks[0] if target.networks else "",
            ATTRIBUTED: "false",
            LOG_ID: state.log_id,
        },
        reason=Reason("R2 provision", f"{text}; image: {target.steps}"),
    )
