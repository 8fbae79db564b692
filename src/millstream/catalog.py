"""What has been declared: streams, tables, sinks and functions, and who depends on whom."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import CatalogError
from millstream.plan.nodes import Node
from millstream.schema import Schema
from millstream.types import VARCHAR, SqlType

if TYPE_CHECKING:
    from sqlglot import exp

Options = Mapping[str, str | int | float | bool]


class Clock(Enum):
    """Where a stream's times come from."""

    EXTERNAL = "external"
    """a column of the row"""
    INTERNAL = "internal"
    """stamped on arrival into the column `current_time`"""
    LATENT = "latent"
    """none declared: rows are numbered as they arrive"""


ERRORS_SCHEMA = Schema.of(error=VARCHAR, row=VARCHAR, origin=VARCHAR)
"""The columns of ERRORS(s): why a row was refused, its text, and where it came from."""


@dataclass(frozen=True)
class StreamDef:
    """A declared stream. `slack` (µs) is how much out of order its rows may be; `source` is None if rows are pushed."""

    name: str
    schema: Schema
    clock: Clock
    time_column: str | None = None
    slack: int = 0
    source: Options | None = None

    @property
    def given(self) -> Schema:
        """The columns that come with a row: all but the one that the engine stamps itself."""
        if self.clock is not Clock.INTERNAL:
            return self.schema
        return Schema(tuple(field for field in self.schema if field.name != self.time_column))

    def side(self, side: str) -> Schema:
        return ERRORS_SCHEMA if side == "errors" else self.schema


@dataclass(frozen=True)
class DerivedDef:
    """A named query, usable wherever a stream is: its name stands for its plan."""

    name: str
    plan: Node
    clock: Clock

    @property
    def schema(self) -> Schema:
        return self.plan.schema


@dataclass(frozen=True)
class TableDef:
    name: str
    schema: Schema


@dataclass(frozen=True)
class SinkDef:
    name: str
    options: Options


@dataclass(frozen=True)
class FunctionDef:
    """A scalar function written in SQL: calls are replaced by its body."""

    name: str
    parameters: tuple[tuple[str, SqlType], ...]
    returns: SqlType | None
    body: exp.Expr = field(compare=False)


Entry = StreamDef | DerivedDef | TableDef | SinkDef | FunctionDef
E = TypeVar("E", bound=Entry)


def word_for(kind: type) -> str:
    """What an entry of that kind is called in messages."""
    return {TableDef: "table", SinkDef: "sink", FunctionDef: "function"}.get(kind, "stream")


class Catalog:
    """Names (case-insensitive) to definitions; functions have a name space of their own.

    `depends` records for each derived stream or query the names it was built from, so that DROP can refuse.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._functions: dict[str, FunctionDef] = {}
        self._depends: dict[str, frozenset[str]] = {}

    def add(self, entry: Entry, *, replace: bool = False, uses: frozenset[str] = frozenset()) -> None:
        """Declare something; the name must be free unless `replace`."""
        space = self._space(entry)
        key = entry.name.lower()
        if key in space:
            if not replace:
                raise CatalogError(
                    f"{word_for(type(space[key]))} {entry.name} already exists",
                    hint="use CREATE OR REPLACE, IF NOT EXISTS, or DROP it first",
                )
            self._check_unused(key)
        space[key] = entry
        self.hold(entry.name, uses)

    def find(self, name: str) -> Entry | None:
        return self._entries.get(name.lower())

    def function(self, name: str) -> FunctionDef | None:
        return self._functions.get(name.lower())

    def get(self, name: str, kind: type[E]) -> E:
        """The entry of that name and kind; otherwise an error that suggests close names."""
        space: Mapping[str, Entry] = self._functions if kind is FunctionDef else self._entries
        entry = space.get(name.lower())
        if entry is None:
            raise CatalogError(f"no {word_for(kind)} {name}", hint=self.suggest(name))
        if not isinstance(entry, kind):
            raise CatalogError(f"{entry.name} is a {word_for(type(entry))}, not a {word_for(kind)}")
        return entry

    def drop(self, name: str, kinds: tuple[type[Entry], ...]) -> None:
        """Forget a definition that nothing depends on."""
        space: dict[str, FunctionDef] | dict[str, Entry]
        space = self._functions if FunctionDef in kinds else self._entries
        entry = space.get(name.lower())
        if entry is None or not isinstance(entry, kinds):
            what = word_for(kinds[0])
            if entry is not None:
                raise CatalogError(f"{entry.name} is a {word_for(type(entry))}, not a {what}")
            raise CatalogError(f"no {what} {name}", hint=self.suggest(name))
        self._check_unused(name.lower())
        del space[name.lower()]
        self._depends.pop(name.lower(), None)

    def hold(self, user: str, uses: frozenset[str]) -> None:
        """Note that `user` (a derived stream or a running query) needs `uses`."""
        self._depends[user.lower()] = frozenset(name.lower() for name in uses)

    def release(self, user: str) -> None:
        self._depends.pop(user.lower(), None)

    def users_of(self, name: str) -> list[str]:
        return sorted(user for user, uses in self._depends.items() if name.lower() in uses)

    def entries(self) -> Iterator[Entry]:
        """All definitions, in order of declaration, functions last."""
        yield from (*self._entries.values(), *self._functions.values())

    def suggest(self, name: str) -> str | None:
        """A hint that names what the user may have meant."""
        known = {key: entry.name for key, entry in self._entries.items()}
        close = difflib.get_close_matches(name.lower(), known, n=1)
        if close:
            return f"did you mean {known[close[0]]}?"
        return "known: " + ", ".join(known.values()) if 0 < len(known) <= 8 else None

    def _space(self, entry: Entry) -> dict[str, Entry]:
        return self._functions if isinstance(entry, FunctionDef) else self._entries  # type: ignore[return-value]

    def _check_unused(self, name: str) -> None:
        users = self.users_of(name)
        if users:
            raise CatalogError(f"{name} is used by {', '.join(users)}", hint="stop or drop those first")
