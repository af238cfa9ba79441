"""The replaced service's rows as poolsm's declarations: every problem at once, nothing guessed.

=================  =====================================================================
column             becomes
=================  =====================================================================
serverpool_id      ``serverpool_id``
user_id            ``user_id``
min_vm, max_vm     the same; a number that is no number is refused, never read as 0
image_ref          ``image_ref``
flavor_ref         ``flavor_ref``
networks           ``networks``, from a JSON list, or text with commas
config_id          ``config_id``; a number that is the id of a config's row: its name
config_data        the pool's own config data
off_days           ``off_days``
key_name           ``key_name``; else what the caller says
=================  =====================================================================
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from attrs import evolve, field, frozen

from poolsm.calendar import parse_off_days
from poolsm.spec import (
    NAME_LIMIT_CHARS,
    SYSTEM_USER_ID,
    WARM_SERVERPOOL_ID,
    WARM_USER_ID,
    PoolKey,
    PoolSpec,
    Problem,
    check_spec,
)
from poolsm_runners.environment import Environment
from poolsm_runners.migrate.tables import OldDatabase, Row
from poolsm_runners.operations import ConfigDeclaration, PoolDeclaration
from poolsm_runners.poolfile import VM_LIMIT, is_name
from poolsm_runners.poolfile_userdata import check_user_data_of
from poolsm_runners.toml_fields import NOT_SHOWN, shown

_TRUE = ("true", "t", "1")
_FALSE = ("false", "f", "0")


@frozen
class Mapping:
    """What the old database comes to.

    Attributes:
        pools: pools that may be declared, by where they stand in the database.
        invalid: pools that may not, and their problems.
        problems: of rows that are no pool at all, of servers and configs.
        attributed: for each server id of the database whether it is somebody's; None: it does
            not say.
        owners: pool of each server by the database; empty where the columns are missing.
    """

    pools: dict[str, PoolDeclaration] = field(factory=dict)
    configs: tuple[ConfigDeclaration, ...] = ()
    invalid: dict[PoolKey, tuple[str, ...]] = field(factory=dict)
    problems: tuple[str, ...] = ()
    attributed: dict[str, bool | None] = field(factory=dict)
    owners: dict[str, PoolKey] = field(factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@frozen
class Choices:
    """What the caller says beyond the database.

    Attributes:
        key_name: key pair of pools whose row names none.
        warm_match: of pools that are not warm; the replaced service looked at the hardware.
    """

    key_name: str = ""
    warm_match: str = "hardware"


def map_database(old: OldDatabase, environment: Environment, choices: Choices) -> Mapping:
    """Map all rows; what is wrong is in the result, by row."""
    return _Mapper(old, environment, choices).map()


class _Mapper:
    def __init__(self, old: OldDatabase, environment: Environment, choices: Choices) -> None:
        self._old = old
        self._environment = environment
        self._choices = choices
        self._problems: list[Problem] = []
        self._notes = list(old.notes)
        self._warnings: list[str] = []
        self._names: dict[str, str] = {}  # names of configs by the ids of their rows

    def map(self) -> Mapping:
        configs = self._configs()
        attributed, owners = self._servers()
        problems, self._problems = self._problems, []
        pools, invalid, broken = self._pools(configs)
        return Mapping(
            pools=pools,
            configs=tuple(configs.values()),
            invalid=invalid,
            problems=tuple(map(str, (*problems, *broken))),
            attributed=attributed,
            owners=owners,
            warnings=tuple(self._warnings),
            notes=tuple(self._notes),
        )

    # --- configs ------------------------------------------------------------------------

    def _configs(self) -> dict[str, ConfigDeclaration]:
        found: dict[str, ConfigDeclaration] = {}
        seen: dict[tuple[str, str], str] = {}
        for row in self._old.configs:
            name = self._text(row, "name")
            user = self._text(row, "user_id") or SYSTEM_USER_ID
            data = self._text(row, "data", secret=True)
            if not (is_name(name) and is_name(user)):
                value = shown(f"{user}/{name}")
                limits = f"1 to {NAME_LIMIT_CHARS} printable characters, no outer blanks, no /"
                self._refuse(row, "name", value, "is no name of a config", f"use {limits}")
                continue
            if (user, name) in seen:
                message = f"is also {seen[user, name]}"
                self._refuse(row, "name", shown(f"{user}/{name}"), message, "remove one of them")
                continue
            seen[user, name] = row.where
            if row.values.get("id") is not None:
                self._names[str(row.values["id"])] = name
            found[row.where] = ConfigDeclaration(user, name, data)
        return found

    # --- servers ------------------------------------------------------------------------

    def _servers(self) -> tuple[dict[str, bool | None], dict[str, PoolKey]]:
        attributed: dict[str, bool | None] = {}
        owners: dict[str, PoolKey] = {}
        for row in self._old.servers:
            server_id = self._text(row, "id")
            if not server_id:
                self._refuse(row, "id", "''", "is empty", "remove the row in a copy")
                continue
            flag = self._flag(row)
            if server_id in attributed:
                self._notes.append(f"{row.where}: server {server_id} has several rows")
                flag = True if True in (flag, attributed[server_id]) else None
            attributed[server_id] = flag
            key = PoolKey(self._text(row, "serverpool_id"), self._text(row, "user_id"))
            if all(key):
                owners[server_id] = key
        return attributed, owners

    def _flag(self, row: Row) -> bool | None:
        value = row.values["reattrib"]
        text = self._text(row, "reattrib").strip().lower()
        if value is None or text == "":
            self._notes.append(f"{row.where}: reattrib is not set: counts as attributed")
            return None
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        self._refuse(row, "reattrib", shown(value), "is neither true nor false", "set 1 or 0")
        return None

    # --- pools --------------------------------------------------------------------------

    def _pools(
        self, configs: dict[str, ConfigDeclaration]
    ) -> tuple[dict[str, PoolDeclaration], dict[PoolKey, tuple[str, ...]], list[Problem]]:
        """Pools that may be declared, those that may not, and rows that name no pool."""
        pools: dict[str, PoolDeclaration] = {}
        invalid: dict[PoolKey, tuple[str, ...]] = {}
        broken: list[Problem] = []
        seen: dict[PoolKey, str] = {}
        names = {config.name for config in configs.values()}
        for unnamed in self._old.pools:
            self._problems = []
            row = self._named(unnamed)
            pool = self._pool(row, names)
            key = pool.spec.key
            if key in seen:
                message = f"is also {seen[key]}"
                self._refuse(row, "serverpool_id", str(key), message, "remove one of them")
            if not self._problems:
                self._warnings += check_user_data_of(
                    {row.where: pool}, tuple(configs.values()), self._environment, self._problems
                )
            if not self._problems:
                pools[row.where] = pool
            elif all(key) and key not in seen:
                invalid[key] = tuple(map(str, self._problems))
            else:
                broken += self._problems
            seen.setdefault(key, row.where)
        self._warnings = list(dict.fromkeys(self._warnings))
        self._problems = []
        return pools, invalid, broken

    def _named(self, row: Row) -> Row:
        key = PoolKey(self._text(row, "serverpool_id"), self._text(row, "user_id"))
        return evolve(row, where=f'{row.where} "{key}"') if all(key) else row

    def _pool(self, row: Row, configs: set[str]) -> PoolDeclaration:
        key = PoolKey(self._text(row, "serverpool_id"), self._text(row, "user_id"))
        warm = self._is_warm(key)
        spec = PoolSpec(
            serverpool_id=key.serverpool_id,
            user_id=key.user_id,
            min_vm=self._number(row, "min_vm"),
            max_vm=self._number(row, "max_vm"),
            image_ref=self._text(row, "image_ref"),
            flavor_ref=self._text(row, "flavor_ref"),
            networks=self._networks(row),
            key_name=self._text(row, "key_name") or self._choices.key_name or None,
            config_id=self._config_id(row, configs),
            off_days=parse_off_days(self._text(row, "off_days")),
            warm=warm,
        )
        if not warm:
            spec = evolve(spec, warm_match=self._choices.warm_match)
        unread = {problem.key.rpartition(".")[2] for problem in self._problems}
        self._problems += [
            evolve(problem, key=f"{row.where}.{problem.key}")
            for problem in check_spec(spec)
            if problem.key not in unread
        ]
        return PoolDeclaration(spec, self._text(row, "config_data", secret=True) or None)

    def _is_warm(self, key: PoolKey) -> bool:
        declared = self._environment.warm_pool
        if declared is not None and declared.spec.key == key:
            return True
        return key == (WARM_SERVERPOOL_ID, WARM_USER_ID)

    def _config_id(self, row: Row, configs: set[str]) -> str:
        text = self._text(row, "config_id")
        if text == "0" and "0" not in self._names:
            return ""  # how a number column says that there is none
        if text in configs or text not in self._names:
            return text
        name = self._names[text]
        self._notes.append(f"{row.where}: config_id {text} is the row of config {name}")
        return name

    def _networks(self, row: Row) -> tuple[str, ...]:
        text = self._text(row, "networks").strip()
        if not text.startswith("["):
            if text == "null":
                return ()
            return tuple(word.strip() for word in text.split(",") if word.strip())
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return tuple(found)
        message = "is no JSON list of texts"
        self._refuse(row, "networks", shown(text), message, 'write it as ["lab-net"]')
        return ()

    # --- values -------------------------------------------------------------------------

    def _refuse(self, row: Row, column: str, value: str, message: str, remedy: str) -> None:
        self._problems.append(Problem(f"{row.where}.{column}", value, message, remedy))

    def _text(self, row: Row, column: str, *, secret: bool = False) -> str:
        value = row.values.get(column)
        if value is None:
            return ""
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                text = NOT_SHOWN if secret else shown(value)
                self._refuse(row, column, text, "is no UTF-8 text", "correct it in a copy")
                return ""
        return str(value)

    def _number(self, row: Row, column: str) -> int:
        text = self._text(row, column).strip()
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            value = shown(row.values.get(column))
            self._refuse(row, column, value, "is no whole number", "give one such as 2")
            return 0
        number = int(text[:18])
        if number > VM_LIMIT:
            self._refuse(row, column, text[:18], f"is above {VM_LIMIT}", f"give {VM_LIMIT} or less")
            return 0
        return number


def problems_of(found: Mapping, *, kept: Sequence[PoolKey], skip_invalid: bool) -> tuple[str, ...]:
    """What stands in the way of declaring; a pool that the log has already needs no row."""
    if skip_invalid:
        return found.problems
    wrong = [line for key, lines in found.invalid.items() if key not in kept for line in lines]
    return (*found.problems, *wrong)
