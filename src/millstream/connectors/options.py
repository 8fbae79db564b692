"""The options of a declaration, read with their types; what is left over or wrong is an error with a hint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta

from millstream.connectors.convert.text import parse_interval
from millstream.errors import ConnectorError, nearest
from millstream.schema import Schema

OptionValue = str | int | float | bool

WITHIN = "$within"
"""The option that a granted declaration carries: the directory that its files must lie in. SQL cannot write it."""

_OURS = ("connector", "location", WITHIN)
"""what is settled before a connector reads its options"""


def upsert_keys(options: Mapping[str, OptionValue]) -> tuple[str, ...] | None:
    """The columns by which rows of a sink replace each other; None if it takes rows as they are.

    >>> upsert_keys({"mode": "upsert", "key": 'a, "b, c"'})
    ('a', 'b, c')
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    mode = given.get("mode", "append").strip().lower()
    if mode == "append":
        return None
    if mode != "upsert":
        raise ConnectorError(f"mode = {given['mode']!r} is not valid", hint="a sink has the mode append or upsert")
    found = re.findall(r'\s*"((?:[^"]|"")+)"\s*|([^,]+)', given.get("key", ""))
    keys = tuple(quoted.replace('""', '"') or plain.strip() for quoted, plain in found if quoted or plain.strip())
    if not keys:
        raise ConnectorError("a sink of upserts needs the option key", hint="for example key = 'id'")
    return keys


def key_text(names: Iterable[str]) -> str:
    """The value of the option key that means these columns.

    >>> key_text(["a", "b, c"])
    '"a", "b, c"'
    """
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def partition_column(options: Options, schema: Schema) -> str | None:
    """The column by which a source says that its rows are divided: each value is in one of its partitions only."""
    given = options.text("partitioned_by")
    if given is None:
        return None
    if given not in schema:
        raise ConnectorError(
            f"{options.owner}: partitioned_by = {given!r} is not a column of the stream",
            hint=f"columns are {', '.join(schema.names)}",
        )
    return schema[given].name


class Options:
    """Reads options by name, case ignored, and remembers which names a connector knows."""

    def __init__(self, owner: str, options: Mapping[str, OptionValue]) -> None:
        self.owner = owner
        self._values = {name.lower(): value for name, value in options.items() if name.lower() not in _OURS}
        within = options.get(WITHIN)
        self.within = None if within is None else str(within)
        """the directory that files must lie in: that of a location"""
        self._known: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._take(name)
        return default if value is None else str(value)

    def required(self, name: str, example: str) -> str:
        value = self._take(name)
        if value is None or value == "":
            raise ConnectorError(f"{self.owner} needs the option {name}", hint=f"for example {name} = {example}")
        return str(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._take(name)
        if value is None:
            return default
        text = str(value).strip().lower()
        if text in ("true", "t", "yes", "on", "1"):
            return True
        if text in ("false", "f", "no", "off", "0"):
            return False
        raise self._wrong(name, value, "true or false")

    def integer(self, name: str, default: int | None = None, low: int = 0, high: int | None = None) -> int | None:
        value = self._take(name)
        if value is None:
            return default
        wanted = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
        try:
            number = int(str(value).replace("_", "")) if not isinstance(value, (bool, float)) else None
        except ValueError:
            number = None
        if number is None and isinstance(value, float) and value.is_integer():
            number = int(value)
        if number is None or number < low or (high is not None and number > high):
            raise self._wrong(name, value, wanted)
        return number

    def number(self, name: str, default: float) -> float:
        """A positive number."""
        value = self._take(name)
        if value is None:
            return default
        try:
            number = float(value) if not isinstance(value, bool) else 0.0
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise self._wrong(name, value, "a positive number")
        return number

    def interval(self, name: str, default: timedelta = timedelta()) -> timedelta:
        value = self._take(name)
        if value is None:
            return default
        try:
            length = parse_interval(str(value))
        except (ValueError, OverflowError):
            raise self._wrong(name, value, "a length of time such as '2 seconds'") from None
        if length < timedelta():
            raise self._wrong(name, value, "a length of time that is not negative")
        return length

    def choice(self, name: str, choices: Iterable[str], default: str | None = None) -> str | None:
        value = self._take(name)
        if value is None:
            return default
        text = str(value).strip().lower()
        known = list(choices)
        if text not in known:
            raise self._wrong(name, value, f"one of {', '.join(known)}{closest(text, known)}")
        return text

    def finish(self) -> None:
        """Complain about options that nobody asked for."""
        for name in self._values:
            if name not in self._known:
                raise ConnectorError(
                    f"{self.owner} has no option {name}",
                    hint=f"its options are {', '.join(sorted(self._known))}{closest(name, self._known)}",
                )

    def _take(self, name: str) -> OptionValue | None:
        if name not in self._known:
            self._known.append(name)
        return self._values.get(name)

    def _wrong(self, name: str, value: OptionValue, wanted: str) -> ConnectorError:
        return ConnectorError(f"{self.owner}: {name} = {value!r} is not valid", hint=f"{name} is {wanted}")


def closest(word: str, known: Iterable[str]) -> str:
    """A remark that names the known word nearest to a misspelled one, or nothing."""
    near = nearest(word, known)
    return f"; did you mean {near[0]}?" if near else ""
