"""What an operator declares: pools, and the settings of the runner that keeps them.

A :class:`PoolSpec` is desired state. It is checked whole by :func:`check_spec` before it
becomes an event, so that a refused declaration leaves no trace, and every problem is
reported at once.
"""

from __future__ import annotations

from typing import NamedTuple

from attrs import frozen

from poolsm.calendar import WEEKDAYS

NAME_LIMIT_CHARS = 255  # Nova: server names and metadata values
COMMAND_UUID_CHARS = 36
SERVERPOOL_ID_LIMIT_CHARS = NAME_LIMIT_CHARS - COMMAND_UUID_CHARS - 1

WARM_SERVERPOOL_ID = "pool_vms"
WARM_USER_ID = "admin"
SYSTEM_USER_ID = "system"

WARM_MATCHES = ("exact", "hardware")


class PoolKey(NamedTuple):
    """A pool's identity: a server is in a pool if both equal its metadata (R1)."""

    serverpool_id: str
    user_id: str

    def __str__(self) -> str:
        """``user/pool``, as the command line shows and takes it."""
        return f"{self.user_id}/{self.serverpool_id}"


@frozen
class SecretRef:
    """A secret that lives in the log's table of secrets (C11).

    Attributes:
        digest: HMAC-SHA256 (hex) of the secret under the log's own key.
        size_bytes: length of the secret in UTF-8.
    """

    digest: str
    size_bytes: int


@frozen
class PoolSpec:
    """The desired state of one pool.

    Attributes:
        min_vm: capacity that the pool always holds (R2).
        max_vm: ceiling of owned servers; 0 means none (R3).
        image_ref: UUID or name, resolved by :mod:`poolsm.images` (R13).
        flavor_ref: id or name of a flavor.
        networks: ids or names; empty means servers without a network.
        config_id: name of a declared config, and of the snapshot image (R13, R14).
        config_data: the pool's own user-data part; wins over a config named ``config_id``.
        packages: extra packages for the admin cloud-config.
        off_days: English weekday names, lower case, in calendar order (R9).
        time_zone: IANA name; empty means the runner's.
        warm: a pool of ready machines that ordinary pools draw from (R4).
        warm_match: ``exact``, or ``hardware`` to accept other user-data when drawing.
        reuse: a released VM returns to the pool instead of being deleted (R16).
        respect_user_stop: leave a VM that its user stopped as it is (R9).
        boot_timeout_s: seconds from the create call to ACTIVE before it is a failure (R6).
    """

    serverpool_id: str
    user_id: str
    min_vm: int
    max_vm: int
    image_ref: str
    flavor_ref: str
    networks: tuple[str, ...] = ()
    key_name: str | None = None
    config_id: str = ""
    config_data: SecretRef | None = None
    packages: tuple[str, ...] = ()
    off_days: tuple[str, ...] = ()
    time_zone: str = ""
    warm: bool = False
    warm_match: str = "exact"
    reuse: bool = False
    respect_user_stop: bool = False
    boot_timeout_s: int = 600

    @property
    def key(self) -> PoolKey:
        """The pool's identity."""
        return PoolKey(self.serverpool_id, self.user_id)


@frozen
class RunnerSettings:
    """What a runner was started with, recorded so that replay decides the same.

    Attributes:
        vm_project_id: id of the project where the servers live.
        infra_project_id: id of the project of images, flavors and networks.
        time_zone: zone of pools that name none.
        admin_key: the admin's SSH public key, part of every user-data.
        registrar: the vm-registrar agent's configuration, when there is one.
        creations_limit: servers of the project that may be on their way to ACTIVE at once.
        listing_age_limit_s: no create, delete or power command on an older listing (R10).
        settle_time_s: from dispatch until the fate of an unanswered create is decided (R7);
            longer than the client's and any proxy's timeout.
        delete_repeat_s: a deletion in flight is not repeated before that (R8).
        power_repeat_s: a stop or start in flight is not repeated before that (R9).
        backoff_first_s, backoff_limit_s: first and longest pause after failures and at
            quota (R6).
        breaker_failures: ended failures since the last ACTIVE that open a breaker (R6).
        breaker_pause_s: from open to the half-open probe.
    """

    vm_project_id: str = ""
    infra_project_id: str = ""
    time_zone: str = "UTC"
    admin_key: SecretRef | None = None
    registrar: SecretRef | None = None
    creations_limit: int = 40
    listing_age_limit_s: int = 30
    settle_time_s: int = 120
    delete_repeat_s: int = 90
    power_repeat_s: int = 60
    backoff_first_s: int = 5
    backoff_limit_s: int = 120
    breaker_failures: int = 5
    breaker_pause_s: int = 120


@frozen
class Problem:
    """One thing that is wrong with a declaration: what, with which value, and the remedy."""

    key: str
    value: str
    message: str
    remedy: str

    def __str__(self) -> str:
        """One line for an operator."""
        return f"{self.key} = {self.value}: {self.message}; {self.remedy}"


def check_spec(spec: PoolSpec) -> tuple[Problem, ...]:
    """Everything that is wrong with a pool's declaration; empty when it may be declared."""
    return (
        *_check_names(spec),
        *_check_numbers(spec),
        *_check_references(spec),
        *_check_off_days(spec),
    )


def _check_names(spec: PoolSpec) -> tuple[Problem, ...]:
    # A name that the cloud rejects is found here, before any server was launched for it.
    found = []
    limits = (
        ("serverpool_id", spec.serverpool_id, SERVERPOOL_ID_LIMIT_CHARS),
        ("user_id", spec.user_id, NAME_LIMIT_CHARS),
    )
    for key, value, limit in limits:
        if not value or value != value.strip():
            found.append(Problem(key, repr(value), "is empty or has outer blanks", "give a name"))
        elif len(value) > limit:
            found.append(
                Problem(
                    key,
                    repr(value),
                    f"has {len(value)} characters, the limit is {limit}",
                    f"shorten it to {limit}; servers are named <serverpool_id>-<uuid>",
                )
            )
        elif not value.isprintable() or "/" in value:
            found.append(
                Problem(key, repr(value), "has a control character or '/'", "use letters, - and _")
            )
    return tuple(found)


def _check_numbers(spec: PoolSpec) -> tuple[Problem, ...]:
    found = []
    for key, value, least in (
        ("min_vm", spec.min_vm, 0),
        ("max_vm", spec.max_vm, 0),
        ("boot_timeout_s", spec.boot_timeout_s, 1),
    ):
        if value < least:
            found.append(Problem(key, str(value), f"is below {least}", f"give {least} or more"))
    if spec.min_vm > spec.max_vm > 0:
        found.append(
            Problem(
                "min_vm",
                str(spec.min_vm),
                f"is above max_vm = {spec.max_vm}",
                "lower min_vm, raise max_vm, or set max_vm = 0 for no ceiling",
            )
        )
    return tuple(found)


def _check_references(spec: PoolSpec) -> tuple[Problem, ...]:
    found = [
        Problem(key, repr(value), "is empty", "give the id or the name")
        for key, value in (
            ("flavor_ref", spec.flavor_ref),
            ("image_ref", spec.image_ref or spec.config_id),
        )
        if not value
    ]
    if any(not network for network in spec.networks):
        found.append(
            Problem("networks", repr(list(spec.networks)), "has an empty entry", "remove it")
        )
    if len(set(spec.networks)) != len(spec.networks):
        found.append(
            Problem("networks", repr(list(spec.networks)), "names one twice", "name each once")
        )
    if spec.warm_match not in WARM_MATCHES:
        found.append(
            Problem("warm_match", repr(spec.warm_match), "is unknown", "use 'exact' or 'hardware'")
        )
    return tuple(found)


def _check_off_days(spec: PoolSpec) -> tuple[Problem, ...]:
    found = [
        Problem(
            "off_days",
            repr(day),
            "is no English weekday in lower case",
            f"use {', '.join(WEEKDAYS)}",
        )
        for day in spec.off_days
        if day not in WEEKDAYS
    ]
    if spec.warm and spec.off_days:
        found.append(
            Problem(
                "off_days",
                repr(",".join(spec.off_days)),
                "a warm pool has no off-days",
                "remove off_days, or warm",
            )
        )
    return tuple(found)
