"""Pool files: what an operator writes, in TOML, checked whole before anything is declared.

    [[config]]                      # a user-data part that pools refer to by its name
    name = "intro"
    user = "system"                 # the default; of several configs of a name it wins (R14)
    data_file = "intro.sh"          # or data = '''...''', or template = "jupyter" with the
                                    # options course_id, image, port, token

    [[pool]]
    id = "intro-python"             # long names work, too: serverpool_id, user_id, image_ref,
    user = "alice"                  # flavor_ref
    image = "worker-image"
    flavor = "m1.tiny"
    min_vm = 2

Files are relative to the pool file. Values are never converted: "5" is no number. In messages
tables count from 1.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from attrs import evolve, frozen

from poolsm.calendar import WEEKDAYS, parse_off_days
from poolsm.errors import PoolsmError
from poolsm.spec import (
    NAME_LIMIT_CHARS,
    SYSTEM_USER_ID,
    WARM_SERVERPOOL_ID,
    WARM_USER_ID,
    PoolSpec,
    Problem,
    check_spec,
)
from poolsm.templates import jupyter_config_data
from poolsm.userdata import UserDataParts
from poolsm_runners.environment import Environment
from poolsm_runners.operations import ConfigDeclaration, PoolDeclaration
from poolsm_runners.poolfile_userdata import check_user_data_of
from poolsm_runners.toml_fields import NOT_SHOWN, Fields, near, shown
from poolsm_runners.zones import ZoneError, load_zone

FILE_LIMIT_BYTES = 4 * 1024 * 1024
DATA_LIMIT_BYTES = 1024 * 1024
VM_LIMIT = 1_000_000
BOOT_TIMEOUT_LIMIT_S = 7 * 86_400

_ALIASES = {"serverpool_id": "id", "user_id": "user", "image_ref": "image", "flavor_ref": "flavor"}


class PoolFileError(PoolsmError):
    """Pool files that cannot be used; one line for each problem, the file first."""


@frozen
class PoolFile:
    """What one pool file declares.

    Attributes:
        path: as it was named.
        warnings: what is accepted and should be looked at.
        notes: how poolsm reads it (off-days in full).
    """

    path: Path
    pools: tuple[PoolDeclaration, ...] = ()
    configs: tuple[ConfigDeclaration, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """What its pools are recorded with."""
        return f"file {self.path}"


def read_pool_file(
    path: str | os.PathLike[str], environment: Environment | None = None
) -> PoolFile:
    """One pool file; raises PoolFileError with every problem in it."""
    return read_pool_files([path], environment)[0]


def read_pool_files(
    paths: Iterable[str | os.PathLike[str]], environment: Environment | None = None
) -> list[PoolFile]:
    """Several pool files together: a pool or config may be declared once in all of them.

    ``environment`` gives what else goes into user-data, for its size and its warnings.

    Raises:
        PoolFileError: every problem in all of the files.
    """
    environment = environment or Environment()
    readers = [_Reader(Path(path)) for path in paths]
    for reader in readers:
        reader.read()
    _refuse_twice(readers)
    configs = [config for reader in readers for config in reader.configs.values()]
    files = []
    for reader in readers:
        warnings = check_user_data_of(reader.pools, configs, environment, reader.problems)
        files.append(
            PoolFile(
                reader.path,
                tuple(reader.pools.values()),
                tuple(reader.configs.values()),
                (*reader.warnings, *warnings),
                tuple(reader.notes),
            )
        )
    lines = [*chain.from_iterable(reader.lines() for reader in readers)]
    if lines:
        raise PoolFileError("\n".join(lines))
    # the same warning (no admin key) is told once, not for every file
    seen: set[str] = set()
    for index, file in enumerate(files):
        files[index] = evolve(file, warnings=tuple(w for w in file.warnings if w not in seen))
        seen.update(file.warnings)
    return files


class _Reader:
    """One file on its way: what it declares by the name of its table, and what is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pools: dict[str, PoolDeclaration] = {}
        self.configs: dict[str, ConfigDeclaration] = {}
        self.problems: list[Problem] = []
        self.unreadable = ""
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def lines(self) -> list[str]:
        """All problems as lines for an operator."""
        if self.unreadable:
            return [f"{self.path}: {self.unreadable}"]
        return [f"{self.path}: {problem}" for problem in self.problems]

    def read(self) -> None:
        """Read and check the file by itself."""
        try:
            table = tomllib.loads(_read_text(self.path, FILE_LIMIT_BYTES))
        except tomllib.TOMLDecodeError as error:
            what, _, place = str(error).rpartition(" (at ")
            place = place.rstrip(")") or "somewhere"
            self.unreadable = f"{place}: {what or error}; correct the syntax (TOML)"
            return
        except RecursionError:
            self.unreadable = "is nested too deeply; write [[pool]] and [[config]] tables"
            return
        except _UnreadableError as error:
            self.unreadable = str(error)
            return
        for key in table:
            if key not in {"pool", "config"}:
                remedy = f"write [[pool]] and [[config]] tables; {near(key, ('pool', 'config'))}"
                value = "a table" if isinstance(table[key], dict) else shown(table[key])
                self.problems.append(Problem(key, value, "is unknown at the top level", remedy))
        for where, entry in self._tables(table, "config", "name", "name"):
            self._read_config(where, entry)
        for where, entry in self._tables(table, "pool", "id", "serverpool_id"):
            self._read_pool(where, entry)
        if not table:
            self.warnings.append(f"{self.path}: declares no pool and no config")

    def _tables(
        self, table: dict[str, object], kind: str, *names: str
    ) -> Iterable[tuple[str, dict[str, object]]]:
        entries = table.get(kind, [])
        if not isinstance(entries, list):
            message = "is one table or value, not a list of tables"
            self.problems.append(
                Problem(kind, "...", message, f"write [[{kind}]], twice bracketed")
            )
            return
        for number, entry in enumerate(entries, 1):
            where = f"{kind}[{number}]"
            if not isinstance(entry, dict):
                remedy = f"write each as a table under [[{kind}]]"
                self.problems.append(Problem(where, shown(entry), "is no table", remedy))
                continue
            name = next((entry[n] for n in names if isinstance(entry.get(n), str)), None)
            yield (f'{where} "{name}"' if name else where), entry

    def _read_config(self, where: str, table: dict[str, object]) -> None:
        fields = Fields(f"{where}.", table, self.problems)
        name = fields.text("name", needs="give the name that pools use as config_id")
        user = fields.text("user", "user_id", default=SYSTEM_USER_ID)
        for key, value in (("name", name), ("user", user)):
            if key not in fields.bad and not is_name(value):
                remedy = f"use 1 to {NAME_LIMIT_CHARS} printable characters, no outer blanks, no /"
                fields.refuse(key, shown(value), "is no name", remedy)
        data = self._data(fields, "data", "data_file", template=True)
        fields.finish()
        if not any(fields.has(key) for key in ("data", "data_file", "template")):
            remedy = "give data, data_file or template"
            fields.refuse("data", "(not set)", "the config has no data", remedy)
        if not fields.bad:
            self.configs[where] = ConfigDeclaration(user, name, data or "")

    def _read_pool(self, where: str, table: dict[str, object]) -> None:
        fields = Fields(f"{where}.", table, self.problems)
        pool_id = fields.text("id", "serverpool_id", needs="name the pool, such as 'intro-python'")
        user = fields.text("user", "user_id", needs="name whose pool it is, such as 'alice'")
        off_days = fields.texts("off_days", example='["saturday", "sunday"]', csv=True)
        warm = (pool_id, user) == (WARM_SERVERPOOL_ID, WARM_USER_ID)
        spec = PoolSpec(
            serverpool_id=pool_id,
            user_id=user,
            min_vm=fields.number("min_vm", limit=VM_LIMIT, needs="set how many VMs are kept ready"),
            max_vm=fields.number("max_vm", limit=VM_LIMIT, default=0),
            image_ref=fields.text("image", "image_ref", default=""),
            flavor_ref=fields.text("flavor", "flavor_ref", default=""),
            networks=fields.texts("networks", example='["lab-net"]'),
            key_name=fields.text("key_name", default="") or None,
            config_id=fields.text("config_id", default=""),
            packages=fields.texts("packages", example='["git", "vim"]'),
            off_days=parse_off_days(",".join(off_days)),
            time_zone=fields.text("time_zone", default=""),
            warm=fields.flag("warm", default=warm),
            warm_match=fields.text("warm_match", default="exact"),
            reuse=fields.flag("reuse"),
            respect_user_stop=fields.flag("respect_user_stop"),
            boot_timeout_s=fields.number("boot_timeout_s", limit=BOOT_TIMEOUT_LIMIT_S, default=600),
        )
        data = self._data(fields, "config_data", "config_data_file")
        fields.finish()
        _check_pool(fields, spec)
        if not fields.bad:
            self.pools[where] = PoolDeclaration(spec, data)
            self._remark(spec)

    def _remark(self, spec: PoolSpec) -> None:
        days = [day for day in WEEKDAYS if day not in spec.off_days]
        zone = f" in {spec.time_zone}" if spec.time_zone else ""
        if spec.off_days:
            off = f"pool {spec.key}: off on {', '.join(spec.off_days)}{zone}; "
            self.notes.append(off + (f"on {', '.join(days)}" if days else "never on"))
        if not days:
            self.warnings.append(f"pool {spec.key}: all seven days are off-days: it never runs")
        if spec.min_vm == 0 and spec.max_vm == 0:
            self.warnings.append(
                f"pool {spec.key}: min_vm = 0 and no max_vm: no VM is made until one is assigned"
            )

    def _data(
        self, fields: Fields, key: str, file_key: str, *, template: bool = False
    ) -> str | None:
        """The user-data part of a table in the clear, None if it has none."""
        data = fields.text(key, default="", secret=True)
        file = fields.text(file_key, default="")
        kind = fields.text("template", default="") if template else ""
        made = self._from_template(fields, kind) if template else None
        given = [name for name in (key, file_key, "template") if fields.has(name)]
        if len(given) > 1:
            message = f"stands beside {given[0]}"
            fields.refuse(given[1], NOT_SHOWN, message, "keep one of them")
            return None
        if fields.has(file_key) and file_key not in fields.bad:
            try:
                return _read_text(self.path.parent / file, DATA_LIMIT_BYTES)
            except _UnreadableError as error:
                what, _, remedy = str(error).partition("; ")
                fields.refuse(file_key, shown(file), what, f"{remedy}; it is relative to this file")
                return None
        if fields.has(key) and key not in fields.bad:
            return data
        return made

    def _from_template(self, fields: Fields, kind: str) -> str | None:
        options = {
            "course_id": fields.text("course_id", default="jupyter"),
            "image": fields.text("image", default="jupyter-nbgrader:latest"),
            "token": fields.text("token", default="", secret=True),
        }
        port = fields.number("port", limit=65_535, default=8888)
        if not fields.has("template"):
            for option in (*options, "port"):
                if fields.has(option):
                    remedy = 'set template = "jupyter", or remove it'
                    fields.refuse(option, NOT_SHOWN, "is an option of a template", remedy)
            return None
        if kind != "jupyter":
            if "template" not in fields.bad:
                remedy = near(kind, ("jupyter",))
                fields.refuse("template", shown(kind), "is no bundled template", remedy)
            return None
        if {*options, "port"} & fields.bad:
            return None
        try:
            return jupyter_config_data(**options, port=port)
        except ValueError as error:  # its text begins with the option, and shows no token
            option = str(error).split(maxsplit=1)[0]
            value, _, remedy = str(error).removeprefix(option).strip().partition(": ")
            fields.refuse(option, value, "is refused", remedy)
            return None


def _check_pool(fields: Fields, spec: PoolSpec) -> None:
    """What :func:`check_spec` finds, under the file's own spelling of the keys."""
    unchecked = set(fields.bad)
    for problem in check_spec(spec):
        name = _ALIASES.get(problem.key, problem.key)
        if name not in unchecked:
            fields.refuse(name, problem.value, problem.message, problem.remedy)
    if spec.time_zone and "time_zone" not in unchecked:
        try:
            load_zone(spec.time_zone)
        except ZoneError:
            remedy = "use an IANA name such as Europe/Paris"
            fields.refuse("time_zone", shown(spec.time_zone), "does not exist", remedy)
    for package in spec.packages:
        try:
            UserDataParts(spec.config_id, "", "", (package,))
        except ValueError:
            remedy = "use names as the image's package manager takes them"
            fields.refuse("packages", shown(package), "is no package name", remedy)


def _refuse_twice(readers: list[_Reader]) -> None:
    """A pool and a config may stand once in all the files together."""
    seen: dict[tuple[str, ...], str] = {}
    for reader in readers:
        pools = {w: ("pool", *p.spec.key[::-1]) for w, p in reader.pools.items()}
        configs = {w: ("config", c.user_id, c.name) for w, c in reader.configs.items()}
        for where, identity in chain(pools.items(), configs.items()):
            kind, user, name = identity
            if identity in seen:
                message = f"{kind} {user}/{name} is declared already by {seen[identity]}"
                reader.problems.append(
                    Problem(where, shown(name), message, "give one of them another name or user")
                )
            else:
                seen[identity] = f"{reader.path} {where}"


class _UnreadableError(Exception):
    """A file that cannot be read: why; remedy."""


def _read_text(path: Path, limit_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise _UnreadableError(f"has more than {limit_bytes} bytes; name another file")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise _UnreadableError(f"cannot be read ({error.strerror}); correct the path") from None
    except ValueError:  # not UTF-8, or a path with a NUL
        raise _UnreadableError("is no UTF-8 text; save it as UTF-8") from None


def is_name(value: str) -> bool:
    """Whether a config or its user may be called so."""
    fits = 0 < len(value) <= NAME_LIMIT_CHARS and value == value.strip()
    return fits and value.isprintable() and "/" not in value
