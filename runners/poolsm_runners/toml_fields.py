"""Reading one TOML table strictly: every problem is collected, nothing is guessed or converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from difflib import get_close_matches

from poolsm.spec import Problem

VALUE_LIMIT_CHARS = 60
NOT_SET = "(not set)"
NOT_SHOWN = "(not shown)"


def shown(value: object) -> str:
    """A value as an error shows it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= VALUE_LIMIT_CHARS else f"{text[:VALUE_LIMIT_CHARS]}..."


def near(word: str, known: Sequence[str]) -> str:
    """``did you mean X?``, or all that there is to choose from."""
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


class Fields:
    """The keys of one table, each asked for once by its names (the first is the preferred one).

    Attributes:
        where: how problems name the table, with a dot at its end (``pool[2] "intro".``).
        bad: preferred names of the keys that have a problem already.
    """

    def __init__(self, where: str, table: Mapping[str, object], problems: list[Problem]) -> None:
        self.where = where
        self.bad: set[str] = set()
        self._table = table
        self._problems = problems
        self._known: list[str] = []
        self._spelled: dict[str, str] = {}

    def spelled(self, name: str) -> str:
        """How the file spells a key that was asked for by its preferred name."""
        return self._spelled.get(name, name)

    def refuse(self, name: str, value: str, message: str, remedy: str) -> None:
        """Note what is wrong with a key."""
        self.bad.add(name)
        key = f"{self.where}{self.spelled(name)}"
        self._problems.append(Problem(key, value, message, remedy))

    def has(self, name: str) -> bool:
        """Whether the file sets a key that was asked for."""
        return name in self._spelled

    def text(
        self, *names: str, default: str | None = None, needs: str = "", secret: bool = False
    ) -> str:
        """A string. Without a default it is required, and ``needs`` says what to write."""
        value = self._take(names)
        if value is None:
            if default is None:
                self.refuse(names[0], NOT_SET, "is required", needs or "set it")
            return default or ""
        if isinstance(value, str):
            return value
        self._mistyped(names[0], value, "a text", "write it in quotes", secret=secret)
        return ""

    def number(
        self, name: str, *, limit: int, default: int | None = None, needs: str = "set it"
    ) -> int:
        """A whole number up to ``limit``. A number in quotes is refused, never converted."""
        value = self._take((name,))
        if value is None:
            if default is None:
                self.refuse(name, NOT_SET, "is required", needs)
            return default or 0
        if isinstance(value, bool) or not isinstance(value, int):
            remedy = "write a whole number, without quotes"
            self._mistyped(name, value, "a whole number", remedy)
            return default or 0
        if value > limit:
            self.refuse(name, shown(value), f"is above {limit}", f"give {limit} or less")
            return default or 0
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """One of true and false."""
        value = self._take((name,))
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        self._mistyped(name, value, "true or false", "write true or false, without quotes")
        return default

    def texts(self, name: str, *, example: str, csv: bool = False) -> tuple[str, ...]:
        """A list of strings; with ``csv`` also one string with commas."""
        value = self._take((name,))
        if value is None:
            return ()
        if csv and isinstance(value, str):
            return tuple(word.strip() for word in value.split(",") if word.strip())
        if not isinstance(value, list):
            self._mistyped(name, value, "a list of texts", f"write it as {example}")
            return ()
        for number, item in enumerate(value, 1):
            if not isinstance(item, str):
                message = f"entry {number} is {_kind(item)}, not a text"
                self.refuse(name, shown(item), message, f"write it as {example}")
                return ()
        return tuple(value)

    def finish(self) -> None:
        """Refuse every key that nobody asked for."""
        for key in self._table:
            if key not in self._known:
                value = self._table[key]
                text = NOT_SHOWN if isinstance(value, str) and len(value) > 20 else shown(value)
                self.refuse(key, text, "is no key that is known here", near(key, self._known))

    def _take(self, names: Sequence[str]) -> object | None:
        self._known += names
        found = [name for name in names if name in self._table]
        if not found:
            return None
        self._spelled[names[0]] = found[0]
        if len(found) > 1:
            message = f"says the same as {found[0]!r}"
            self._spelled[names[0]] = found[1]
            self.refuse(names[0], shown(self._table[found[1]]), message, "keep one of the two")
        return self._table[found[0]]

    def _mistyped(
        self, name: str, value: object, wanted: str, remedy: str, *, secret: bool = False
    ) -> None:
        text = NOT_SHOWN if secret else shown(value)
        self.refuse(name, text, f"is {_kind(value)}, not {wanted}", remedy)


def _kind(value: object) -> str:
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (str, "a text"),
        (bool, "true or false"),
        (int, "a whole number"),
        (float, "a number with a decimal point"),
        (list, "a list"),
        (dict, "a table"),
        ((datetime, date, time), "a date or time"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "something else")
