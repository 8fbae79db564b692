"""What has been declared: streams, views, tables, sinks, functions and aggregates, and who depends on whom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from dataclasses import replace as replaced
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeVar

from millstream.errors import CatalogError, nearest
from millstream.expressions.python_calls import PythonCode
from millstream.plan.nodes import Node
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import TIMESTAMP, VARCHAR, SqlType

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


CURRENT_TIME = "current_time"
"""the column of the time of arrival"""

ERRORS_SCHEMA = Schema.of(error=VARCHAR, row=VARCHAR, origin=VARCHAR)
"""The columns of ERRORS(s): why a row was refused, its text, and where it came from."""


@dataclass(frozen=True)
class Retention:
    """How much of a stream's past is kept (KEEP): all of it, so many rows or bytes, or a length of time."""

    unit: Literal["all", "rows", "bytes", "time"]
    amount: int = 0
    key: str = ""
    """the storage key: the column by which the rows of a file are sorted; without one they are in order of time"""

    def __post_init__(self) -> None:
        if self.unit != "all" and self.amount <= 0:
            raise ValueError("what is kept is positive")


@dataclass(frozen=True)
class FromHistory:
    """What a query asks for that also sees rows that came before it: from an instant on, or all that are kept."""

    since: int | None = None


@dataclass(frozen=True)
class StreamDef:
    """A declared stream. `slack` (µs, or a number as its time is) is how much out of order its rows may be; `source`
    is None if rows are pushed."""

    name: str
    schema: Schema
    clock: Clock
    time_column: str | None = None
    slack: int = 0
    source: Options | None = None
    since: str | None = None
    """the column that tells when events start, which end at `time_column`; None: they are points in time"""
    until: str | None = None
    """the column that tells when rows cease to be valid, which are from `time_column` on; None: they are events"""
    key: tuple[str, ...] = ()
    """columns in which no two of its rows are equal: declared, not checked"""
    undeclared: tuple[str, ...] = ()
    """columns whose type was left out: text that queries read as what they use it for"""
    keep: Retention | None = None
    """how much of its past is kept for queries that come later; None: nothing"""
    table: str | None = None
    """the stored table whose changes its rows are; None: rows are pushed or read"""
    plan: Node | None = None
    """the query whose rows it passes on; None: rows are pushed, or read from its source"""

    @property
    def given(self) -> Schema:
        """The columns that come with a row: all but the one that the engine stamps itself."""
        if self.clock is not Clock.INTERNAL:
            return self.schema
        return Schema(tuple(field for field in self.schema if field.name != self.time_column))

    @property
    def slack_text(self) -> str:
        """The slack as it is told: a number where the stream is ordered by one, otherwise a length of time."""
        return str(self.slack if self.is_by_number else timedelta(microseconds=self.slack))

    @property
    def is_by_number(self) -> bool:
        """Whether its times are plain numbers."""
        return self.time_column is not None and self.schema[self.time_column].type.is_integer

    def side(self, side: str) -> Schema:
        return ERRORS_SCHEMA if side == "errors" else self.schema

    def pushed(self) -> StreamDef:
        """Itself, if rows and times come from outside; an error if a query gives them."""
        if self.plan is not None:
            raise CatalogError(
                f"stream {self.name} gets its rows from a query", hint="push to the streams that it is derived from"
            )
        return self


@dataclass(frozen=True)
class DerivedDef:
    """A named query, usable wherever a stream is: its name stands for its plan."""

    name: str
    plan: Node
    clock: Clock
    statement: str = field(default="", compare=False)
    """the text that defined it, from which it can be bound again; empty if it cannot"""

    @property
    def schema(self) -> Schema:
        return self.plan.schema


@dataclass(frozen=True)
class ViewDef:
    """A named relation that is kept, so that what it holds at this moment can be asked for; in continuous queries its
    name stands for its plan."""

    name: str
    plan: Node
    names: tuple[str, ...]
    sql: str = field(default="", compare=False)
    """the query that it is, as text"""
    statement: str = field(default="", compare=False)
    """the text that defined it, as that of a derived stream"""

    @property
    def schema(self) -> Schema:
        return self.plan.schema


@dataclass(frozen=True)
class TableDef:
    """A stored table; what it keeps of its rows stands in `constraints`, in the table store's SQL: clauses of a column,
    or with "" for a column those of the table."""

    name: str
    schema: Schema
    constraints: tuple[tuple[str, str], ...] = ()

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of its PRIMARY KEY, as the schema spells them; none if it has no such key."""
        for column, clause in self.constraints:
            if found := re.match(r"(?:CONSTRAINT\s+\S+\s+)?PRIMARY KEY\s*(?:\((.*)\))?", clause, re.IGNORECASE):
                quoted_or_not = re.findall(r'"((?:[^"]|"")+)"|(\w+)', found[1] or "")
                named = [quoted.replace('""', '"') or plain for quoted, plain in quoted_or_not]
                return tuple(self.schema[name].name for name in ([column] if column else named))
        return ()

    def changes(self, how: str) -> StreamDef:
        """The stream of its rows that come (istream) or go (dstream), stamped when they do."""
        columns = (*self.schema, Field(CURRENT_TIME, TIMESTAMP))
        return StreamDef(f"{how.lower()}({self.name})", Schema(columns), Clock.INTERNAL, CURRENT_TIME, table=self.name)


@dataclass(frozen=True)
class SinkDef:
    name: str
    options: Options


@dataclass(frozen=True)
class FunctionDef:
    """A function: calls are replaced by its body in SQL, an expression or a query, or run its code in Python."""

    name: str
    parameters: tuple[tuple[str, SqlType], ...]
    returns: SqlType | None
    body: exp.Expr | None = field(default=None, compare=False)
    python: PythonCode | None = None
    is_table: bool = False
    """whether its body is a query: it is called in FROM"""


@dataclass(frozen=True)
class AggregateDef:
    """An aggregate written in SQL or Python, bound anew for each call; types that are not declared (None) come from
    the call.

    The base version and the window version of a name are two definitions.
    """

    name: str
    parameters: tuple[tuple[str, SqlType | None], ...]
    returns: tuple[tuple[str, SqlType | None], ...]
    body: exp.Expr | None = field(default=None, compare=False)
    """what it does, in SQL; None if `python` says it"""
    window: bool = False
    algebraic: bool = False
    sql: str = field(default="", compare=False, repr=False)
    """the text that the spans of `body` refer to"""
    python: PythonCode | None = None
    one_row: bool = False
    """of one in Python: whether it promises one row from every call"""

    @property
    def signature(self) -> str:
        """How it is called and what it returns, as in its declaration."""
        columns = f"({_listed(self.returns)})"
        if len(self.returns) == 1 and self.returns[0][0] == self.name and self.returns[0][1] is not None:
            columns = str(self.returns[0][1])
        return f"{self.name}({_listed(self.parameters)}) : {columns}"

    @property
    def version(self) -> str:
        """What kind of aggregate it is: base, window, algebraic window, Python window."""
        kind = "algebraic " if self.algebraic else "" if self.python is None else "Python "
        return f"{kind}{'window' if self.window else 'base'}"


def _listed(columns: tuple[tuple[str, SqlType | None], ...]) -> str:
    return ", ".join(name if type_ is None else f"{name} {type_}" for name, type_ in columns)


def aggregate_use(name: str) -> str:
    """What is recorded as used by a query that calls an aggregate: aggregates do not share names with streams."""
    return f"aggregate {name.lower()}"


Entry = StreamDef | DerivedDef | ViewDef | TableDef | SinkDef | FunctionDef | AggregateDef
E = TypeVar("E", bound=Entry)


def word_for(kind: type) -> str:
    """What an entry of that kind is called in messages."""
    words = {ViewDef: "view", TableDef: "table", SinkDef: "sink", FunctionDef: "function", AggregateDef: "aggregate"}
    return words.get(kind, "stream")


class Catalog:
    """Names (case-insensitive) to definitions; functions and aggregates have a name space of their own.

    `depends` records for each derived stream, view, aggregate or query the names it was built from, so that DROP can
    refuse.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._functions: dict[str, FunctionDef] = {}
        self._aggregates: dict[tuple[str, bool], AggregateDef] = {}
        self._from_library: dict[str, tuple[AggregateDef, ...]] = {}
        self._depends: dict[str, frozenset[str]] = {}
        self._errors: dict[str, Node | None] = {}
        """what the running queries leave out, by their names"""
        self.zone = "UTC"
        """the time zone of statements"""

    def add(
        self, entry: Entry, *, replace: bool = False, uses: frozenset[str] = frozenset(), in_use: bool = False
    ) -> None:
        """Declare something; the name must be free unless `replace`, and nobody may use it unless `in_use`."""
        key = entry.name.lower()
        known = self.like(entry)
        other = self._homonym(entry)
        if other is not None:
            raise CatalogError(
                f"{word_for(type(other))} {other.name} already exists",
                hint="functions and aggregates are called in the same way, so their names must differ",
            )
        if known is not None and not replace:
            raise CatalogError(
                f"{_title(replaced(known, name=entry.name))} already exists",
                hint="use CREATE OR REPLACE, IF NOT EXISTS, or DROP it first",
            )
        if isinstance(entry, AggregateDef):
            # another version of an aggregate could change what a query that uses the name means
            if not in_use:
                self._check_unused(aggregate_use(key))
            self._aggregates[key, entry.window] = entry
            self.hold(_title(entry), uses)
            return
        if isinstance(entry, FunctionDef):
            self._functions[key] = entry
            return
        if known is not None and not in_use:
            self._check_unused(key)
        self._entries[key] = entry
        self.hold(entry.name, uses)

    def redefine(self, entry: Entry) -> None:
        """Put a definition in the place of the one that has its name, for whoever uses it."""
        self._entries[entry.name.lower()] = entry

    def find(self, name: str) -> Entry | None:
        found = self._entries.get(name.lower())
        return self._changes(name) if found is None else found

    def _changes(self, name: str) -> StreamDef | None:
        """The stream of a table's changes that has such a name; nobody declares it."""
        how, _, table = name.lower().removesuffix(")").partition("(")
        known = self._entries.get(table) if how in ("istream", "dstream") else None
        return known.changes(how) if isinstance(known, TableDef) else None

    def function(self, name: str) -> FunctionDef | None:
        return self._functions.get(name.lower())

    def aggregate(self, name: str, window: bool) -> AggregateDef | None:
        """The base or the window version of an aggregate written in SQL."""
        key = name.lower()
        versions = [self._aggregates.get((key, each)) for each in (False, True)]
        if any(versions) or key in self._functions:
            return versions[window]
        return next((entry for entry in self._from_library.get(key, ()) if entry.window == window), None)

    def add_from_library(self, name: str, versions: tuple[AggregateDef, ...]) -> None:
        """Note what an aggregate is that comes with the engine: it is there until somebody defines one of its name."""
        self._from_library[name.lower()] = versions

    def is_callable(self, name: str) -> bool:
        """Whether a name is that of a function or an aggregate, of the library if it was used before."""
        return name.lower() in self._functions or name.lower() in self._from_library or self.has(name, (AggregateDef,))

    def has(self, name: str, kinds: tuple[type[Entry], ...]) -> bool:
        """Whether something has that name where definitions of such a kind are kept."""
        if AggregateDef in kinds:
            return any((name.lower(), window) in self._aggregates for window in (False, True))
        return name.lower() in (self._functions if FunctionDef in kinds else self._entries)

    def like(self, entry: Entry) -> Entry | None:
        """What `entry` would replace: the definition that has its name, and for an aggregate its version."""
        match entry:
            case AggregateDef():
                return self._aggregates.get((entry.name.lower(), entry.window))
            case FunctionDef():
                return self.function(entry.name)
        return self.find(entry.name)

    def get(self, name: str, kind: type[E]) -> E:
        """The entry of that name and kind; otherwise an error that suggests close names."""
        entry = self.function(name) if kind is FunctionDef else self.find(name)
        if entry is None:
            raise CatalogError(f"no {word_for(kind)} {name}", hint=self.suggest(name))
        if not isinstance(entry, kind):
            raise CatalogError(f"{entry.name} is a {word_for(type(entry))}, not a {word_for(kind)}")
        return entry

    def drop(self, name: str, kinds: tuple[type[Entry], ...]) -> None:
        """Forget a definition that nothing depends on; of an aggregate, both versions."""
        if AggregateDef in kinds:
            self._drop_aggregate(name)
            return
        space: Mapping[str, Entry] = self._functions if FunctionDef in kinds else self._entries
        entry = space.get(name.lower())
        if entry is None or not isinstance(entry, kinds):
            what = word_for(kinds[0])
            if entry is not None:
                raise CatalogError(f"{entry.name} is a {word_for(type(entry))}, not a {what}")
            raise CatalogError(f"no {what} {name}", hint=self.suggest(name))
        if isinstance(entry, FunctionDef):
            del self._functions[name.lower()]
            return
        self._check_unused(name.lower())
        del self._entries[name.lower()]
        self.release(name)

    def aggregate_names(self) -> list[str]:
        """The aggregates that were defined here, once for each version."""
        return [entry.name for entry in self._aggregates.values()]

    def _drop_aggregate(self, name: str) -> None:
        versions = [entry for entry in self._aggregates.values() if entry.name.lower() == name.lower()]
        if not versions:
            raise CatalogError(f"no aggregate {name}", hint=_suggest(name, self.aggregate_names()))
        self._check_unused(aggregate_use(name))
        for entry in versions:
            del self._aggregates[entry.name.lower(), entry.window]
            self.release(_title(entry))

    def note_errors(self, query: str, rows: Node | None) -> None:
        """Note what ERRORS(query) reads: None if the query has no rejected rows."""
        self._errors[query.lower()] = rows

    def is_query(self, name: str) -> bool:
        """Whether a query of that name runs."""
        return name.lower() in self._errors

    def errors_of(self, query: str) -> Node | None:
        """What ERRORS(query) reads."""
        return self._errors.get(query.lower())

    def hold(self, user: str, uses: frozenset[str]) -> None:
        """Note that `user` (a derived stream, a view or a running query) needs `uses`."""
        self._depends[user.lower()] = frozenset(name.lower() for name in uses)

    def release(self, user: str) -> None:
        self._depends.pop(user.lower(), None)
        self._errors.pop(user.lower(), None)

    def users_of(self, name: str) -> list[str]:
        return sorted(user for user, uses in self._depends.items() if name.lower() in uses)

    def entries(self) -> Iterator[Entry]:
        """All definitions, in order of declaration, functions and aggregates last, those of the library that were used
        included."""
        yield from (*self._entries.values(), *self._functions.values(), *self._aggregates.values())
        hidden = {name for name, _ in self._aggregates}
        yield from (each for key, versions in self._from_library.items() if key not in hidden for each in versions)

    def suggest(self, name: str) -> str | None:
        """A hint that names what the user may have meant."""
        return _suggest(name, [entry.name for entry in self._entries.values()])

    def _homonym(self, entry: Entry) -> Entry | None:
        """The function that has an aggregate's name, or the other way round."""
        match entry:
            case AggregateDef():
                return self.function(entry.name)
            case FunctionDef():
                key = entry.name.lower()
                return self._aggregates.get((key, False)) or self._aggregates.get((key, True))
        return None

    def _check_unused(self, name: str) -> None:
        # the window version of an aggregate may call the base version of the same name
        users = [user for user in self.users_of(name) if user.removeprefix("window ") != name]
        if users:
            raise CatalogError(f"{name} is used by {', '.join(users)}", hint="stop or drop those first")


def _title(entry: Entry) -> str:
    word = word_for(type(entry))
    return f"{'window ' if isinstance(entry, AggregateDef) and entry.window else ''}{word} {entry.name}"


def _suggest(name: str, names: list[str]) -> str | None:
    if close := nearest(name, names):
        return f"did you mean {close[0]}?"
    known = {other.lower(): other for other in names}
    return "known: " + ", ".join(known.values()) if 0 < len(known) <= 8 else None
