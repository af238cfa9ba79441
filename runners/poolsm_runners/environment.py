"""The replaced service's environment variables, as they were set for it.

``SSH_PUBLIC_KEY_PATH`` names the admin's public key, part of every user-data. ``REGISTRAR_*``
configure the vm-registrar agent: all three, or none. ``NETWORK_ID``, ``SERVER_IMAGE_REF``,
``SERVER_FLAVOR_REF`` and ``METADATA_MIN_VM`` declare the warm pool, in which ``API_KEYNAME``,
``METADATA_MAX_VM`` (default 0: no ceiling), ``METADATA_SERVERPOOL_ID`` (default ``pool_vms``) and
``METADATA_USER_ID`` (default ``admin``) may be left out. A variable that is set to nothing, or to
blanks, counts as not set. Pools in files are not touched by any of these but the key and the
registrar.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

from poolsm.errors import PoolsmError
from poolsm.spec import WARM_SERVERPOOL_ID, WARM_USER_ID, PoolSpec, Problem, check_spec
from poolsm.userdata import Registrar, UserDataParts
from poolsm_runners.operations import PoolDeclaration

KEY_LIMIT_BYTES = 65_536

WARM_REQUIRED = ("NETWORK_ID", "SERVER_IMAGE_REF", "SERVER_FLAVOR_REF", "METADATA_MIN_VM")
WARM_OPTIONAL = (
    "API_KEYNAME",
    "METADATA_MAX_VM",
    "METADATA_SERVERPOOL_ID",
    "METADATA_USER_ID",
)
REGISTRAR = ("REGISTRAR_PG_DSN", "REGISTRAR_CONTROL_CENTER_URL", "REGISTRAR_DOWNLOAD_URL")

_VARIABLE_OF = {
    "serverpool_id": "METADATA_SERVERPOOL_ID",
    "user_id": "METADATA_USER_ID",
    "min_vm": "METADATA_MIN_VM",
    "max_vm": "METADATA_MAX_VM",
    "image_ref": "SERVER_IMAGE_REF",
    "flavor_ref": "SERVER_FLAVOR_REF",
    "networks": "NETWORK_ID",
}


class EnvironmentVariableError(PoolsmError):
    """Environment variables that cannot be used; one line for each problem."""


@frozen
class Environment:
    """What the environment says.

    Attributes:
        cloud: ``OS_CLOUD``; empty if not set.
        infra_cloud: ``INFRA_OS_CLOUD``; empty means the same project.
        admin_key: text of the file at ``SSH_PUBLIC_KEY_PATH``; None if not set.
        registrar: the agent's configuration; None if not set.
        warm_pool: the pool that the variables declare; None if none of them is set.
    """

    cloud: str = ""
    infra_cloud: str = ""
    admin_key: str | None = field(default=None, repr=False)
    registrar: Registrar | None = field(default=None, repr=False)
    warm_pool: PoolDeclaration | None = None


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Read the variables and the key file.

    Raises:
        EnvironmentVariableError: every problem, each with variable, value and remedy.
    """
    given = {name: value.strip() for name, value in variables.items() if value.strip()}
    problems: list[Problem] = []
    found = Environment(
        cloud=given.get("OS_CLOUD", ""),
        infra_cloud=given.get("INFRA_OS_CLOUD", ""),
        admin_key=_admin_key(given, problems),
        registrar=_registrar(given, problems),
        warm_pool=_warm_pool(given, problems),
    )
    if problems:
        raise EnvironmentVariableError("\n".join(f"environment: {p}" for p in problems))
    return found


def _admin_key(given: Mapping[str, str], problems: list[Problem]) -> str | None:
    name = "SSH_PUBLIC_KEY_PATH"
    path = given.get(name)
    if path is None:
        return None
    remedy = "name the .pub file of the admin's key, or unset it"
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(KEY_LIMIT_BYTES + 1)
        text = data.decode()
    except OSError as error:
        problems.append(Problem(name, repr(path), f"cannot be read ({error.strerror})", remedy))
        return None
    except UnicodeDecodeError:
        problems.append(Problem(name, repr(path), "is no text file", remedy))
        return None
    if len(data) > KEY_LIMIT_BYTES or not text.strip():
        problems.append(Problem(name, repr(path), f"has {len(data)} bytes", remedy))
        return None
    try:
        UserDataParts(config_id="", config_data="", admin_public_key=text)
    except ValueError as error:  # its text shows nothing of the key
        problems.append(Problem(name, repr(path), str(error), remedy))
        return None
    return text


def _registrar(given: Mapping[str, str], problems: list[Problem]) -> Registrar | None:
    present = [name for name in REGISTRAR if name in given]
    if not present:
        return None
    missing = [name for name in REGISTRAR if name not in given]
    problems += [
        Problem(
            name,
            "(not set)",
            f"is needed beside {' and '.join(present)} for the vm-registrar agent",
            f"set it, or unset {' and '.join(present)}",
        )
        for name in missing
    ]
    if missing:
        return None
    try:
        return Registrar(*(given[name] for name in REGISTRAR))
    except ValueError as error:  # its text names the field and shows no value
        at_fault = next(
            (n for n in REGISTRAR if n.removeprefix("REGISTRAR_").lower() in str(error)),
            REGISTRAR[0],
        )
        problems.append(Problem(at_fault, "(not shown)", str(error), "correct it"))
        return None


def _warm_pool(given: Mapping[str, str], problems: list[Problem]) -> PoolDeclaration | None:
    present = [name for name in (*WARM_REQUIRED, *WARM_OPTIONAL) if name in given]
    if not present:
        return None
    missing = [name for name in WARM_REQUIRED if name not in given]
    if missing:
        problems.append(
            Problem(
                present[0],
                repr(given[present[0]]),
                f"declares a warm pool together with {', '.join(WARM_REQUIRED)}, but "
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
                f"set {', '.join(missing)}, or unset {', '.join(present)}",
            )
        )
        return None
    before = len(problems)
    min_vm = _number("METADATA_MIN_VM", given, problems)
    max_vm = _number("METADATA_MAX_VM", given, problems)
    spec = PoolSpec(
        serverpool_id=given.get("METADATA_SERVERPOOL_ID", WARM_SERVERPOOL_ID),
        user_id=given.get("METADATA_USER_ID", WARM_USER_ID),
        min_vm=min_vm,
        max_vm=max_vm,
        image_ref=given["SERVER_IMAGE_REF"],
        flavor_ref=given["SERVER_FLAVOR_REF"],
        networks=(given["NETWORK_ID"],),
        key_name=given.get("API_KEYNAME"),
        warm=True,
    )
    if len(problems) == before:
        problems += [
            Problem(_VARIABLE_OF[p.key], p.value, _in_variables(p.message), _in_variables(p.remedy))
            for p in check_spec(spec)
        ]
    return PoolDeclaration(spec)


def _number(name: str, given: Mapping[str, str], problems: list[Problem]) -> int:
    value = given.get(name, "0")
    # int() would also take 1_000, +5 and other scripts' digits
    if not (value.isascii() and value.isdigit()):
        problems.append(
            Problem(name, repr(value), "is no whole number of 0 or more", "give one such as 2")
        )
        return 0
    return int(value[:18])


def _in_variables(text: str) -> str:
    for key in ("min_vm", "max_vm", "serverpool_id"):
        text = text.replace(key, _VARIABLE_OF[key])
    return text
