"""Programs: aggregates written in SQL, bound to the types of one call.

A program has local tables and four lists of statements. Expressions are those of `expressions.nodes`; what they may
refer to are columns with these names:

- `:name` a formal parameter (in EXPIRE that of the expiring tuple), `oldest.name` a column of the oldest tuple of the
  window, `sqlcode` (0 if the last statement touched a row, else 100);
- `alias.name` a column of a table that a statement ranges over; every such use of a table in a program has an alias
  of its own, so that a subquery may refer to the rows of the queries around it.

A statement sees the tables as they were when it began. Tables keep their rows in the order they were inserted.

A program that several aggregates over windows of different lengths became has several windows over the same tuples:
`inwindow` holds them all, and each shorter one is a table of those that have not left it (`window_name`), with an
EXPIRE and an oldest tuple (`oldest_of`) of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from millstream.expressions.nodes import Column, Expr, walk
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import SqlType

WINDOW = "inwindow"
"""The table that the window fills and empties; statements may read it and delete from it."""

OLDEST = "oldest."
"""what the names of the oldest tuple's columns begin with"""


def window_name(place: int) -> str:
    """The name of a window over the same tuples by its place, the longest first."""
    return WINDOW if place == 0 else f"{WINDOW} {place}"


def oldest_of(window: str) -> str:
    """What the names of the columns of a window's oldest tuple begin with; for the longest, with what all begin."""
    return OLDEST if window == WINDOW else f"{OLDEST}{window}."


@dataclass(frozen=True, slots=True)
class Range:
    """A table that a statement ranges over, under an alias that no other range of the program has."""

    alias: str
    table: str

    def __str__(self) -> str:
        return self.table if self.alias == self.table else f"{self.table} AS {self.alias}"


@dataclass(frozen=True, slots=True)
class Order:
    key: Expr
    descending: bool = False
    nulls_first: bool = False

    def __str__(self) -> str:
        return f"{self.key}{' DESC' if self.descending else ''}{' NULLS FIRST' if self.nulls_first else ''}"


@dataclass(frozen=True, slots=True)
class Rows:
    """SELECT columns FROM ranges WHERE …: one row for each combination of rows that satisfies `where`, in the order of
    the ranges, the last one running fastest; without ranges, one row.

    If `columns`, `having` or `order` contain an `AggregateValue`, or there is a `group`, it is an aggregation: one row
    per group in the order of their first rows, and exactly one row if there is no `group`.
    """

    columns: tuple[Expr, ...]
    ranges: tuple[Range, ...] = ()
    where: Expr | None = None
    group: tuple[Expr, ...] = ()
    having: Expr | None = None
    distinct: bool = False
    order: tuple[Order, ...] = ()
    limit: int | None = None

    @property
    def is_aggregation(self) -> bool:
        return bool(self.group) or any(
            isinstance(part, AggregateValue) for expr in self._outputs() for part in walk(expr)
        )

    def expressions(self) -> Iterator[Expr]:
        yield from self._outputs()
        yield from self.group
        if self.where is not None:
            yield self.where

    def _outputs(self) -> Iterator[Expr]:
        yield from self.columns
        if self.having is not None:
            yield self.having
        yield from (order.key for order in self.order)

    def __str__(self) -> str:
        parts = [f"SELECT {'DISTINCT ' if self.distinct else ''}{', '.join(map(str, self.columns))}"]
        if self.ranges:
            parts.append(f"FROM {', '.join(map(str, self.ranges))}")
        if self.where is not None:
            parts.append(f"WHERE {self.where}")
        if self.group:
            parts.append(f"GROUP BY {', '.join(map(str, self.group))}")
        if self.having is not None:
            parts.append(f"HAVING {self.having}")
        if self.order:
            parts.append(f"ORDER BY {', '.join(map(str, self.order))}")
        if self.limit is not None:
            parts.append(f"LIMIT {self.limit}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class AggregateValue(Expr):
    """The value of an aggregate over the rows of a `Rows`, as part of an expression: a built-in by name (no argument
    counts rows), or a program, whose last returned row's first column is the value. Made by `AggregateCall.value`."""

    fn: str
    args: tuple[Expr, ...]
    distinct: bool = False
    program: Program | None = None

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, args=children)

    def __repr__(self) -> str:
        # state is known by what programs are, as text, and it had this name when state was first saved
        shown = (f"{name}={getattr(self, name)!r}" for name in ("type", "fn", "args", "distinct", "program"))
        return f"Summary({', '.join(shown)})"

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.args)) or "*"
        return f"{self.fn}({'DISTINCT ' if self.distinct else ''}{inside})"


@dataclass(frozen=True, slots=True)
class Exists(Expr):
    """Whether a query has a row."""

    query: Rows

    def __str__(self) -> str:
        return f"EXISTS ({self.query})"


@dataclass(frozen=True, slots=True)
class InQuery(Expr):
    """Whether a value is among those of a query's only column, with SQL's NULLs."""

    arg: Expr
    query: Rows

    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, arg=children[0])

    def __str__(self) -> str:
        return f"({self.arg} IN ({self.query}))"


@dataclass(frozen=True, slots=True)
class ScalarQuery(Expr):
    """The only column of a query's only row; NULL if it has none, an error if it has several."""

    query: Rows

    def __str__(self) -> str:
        return f"({self.query})"


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO `table` the rows of a query, or into RETURN if `table` is None; `source` has its columns."""

    table: str | None
    sources: tuple[Rows, ...]
    """their rows one after the other; VALUES is one source without ranges for each row"""

    def __str__(self) -> str:
        return f"INSERT INTO {self.table or 'RETURN'} {' UNION ALL '.join(map(str, self.sources))}"


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE a table; its columns are named by `range.alias`."""

    range: Range
    assignments: tuple[tuple[str, Expr], ...]
    where: Expr | None = None

    def __str__(self) -> str:
        sets = ", ".join(f"{name} = {expr}" for name, expr in self.assignments)
        return f"UPDATE {self.range} SET {sets}{'' if self.where is None else f' WHERE {self.where}'}"


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM a table; its columns are named by `range.alias`. With `others`, from the window without the tuple
    that is worked on."""

    range: Range
    where: Expr | None = None
    others: bool = False

    def __str__(self) -> str:
        return f"DELETE FROM {self.range}{'' if self.where is None else f' WHERE {self.where}'}"


Statement = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class LocalTable:
    name: str
    schema: Schema

    def __str__(self) -> str:
        return f"{self.name}({self.schema})"


@dataclass(frozen=True)
class Program:
    """An aggregate's definition for arguments of certain types. Values assigned to a column have its type."""

    name: str
    parameters: Schema
    result: Schema
    tables: tuple[LocalTable, ...]
    window: LocalTable | None
    """the window's table; its columns have the types of the parameters. None if the body names none"""
    initialize: tuple[Statement, ...]
    iterate: tuple[Statement, ...]
    expire: tuple[Statement, ...] = ()
    terminate: tuple[Statement, ...] = ()
    algebraic: bool = False
    shorter: tuple[tuple[Statement, ...], ...] = ()
    """EXPIRE of each shorter window over the same tuples"""

    @property
    def is_itself(self) -> bool:
        """Whether it stands for a call of the program around it by itself."""
        return not (self.initialize or self.iterate or self.terminate)

    @property
    def windows(self) -> tuple[LocalTable, ...]:
        """The tables of its windows, the longest first."""
        if self.window is None:
            return ()
        schema = self.window.schema
        return (self.window, *(LocalTable(window_name(i), schema) for i in range(1, len(self.shorter) + 1)))

    @property
    def expiries(self) -> tuple[tuple[Statement, ...], ...]:
        """EXPIRE of each window, the longest first."""
        return (self.expire, *self.shorter)

    @property
    def is_blocking(self) -> bool:
        """Whether its result comes only at the end."""
        return bool(self.terminate)

    @property
    def statements(self) -> tuple[Statement, ...]:
        expiries = (statement for state in self.expiries for statement in state)
        return (*self.initialize, *self.iterate, *expiries, *self.terminate)

    def table(self, name: str) -> LocalTable:
        return next(table for table in (*self.tables, *self.windows) if table.name == name)

    def __str__(self) -> str:
        lines = [f"{self.name}({self.parameters}) : ({self.result})"]
        lines += [f"  table {table}" for table in (*self.tables, *([self.window] if self.window else []))]
        for name in ("initialize", "iterate", "expire", "terminate"):
            lines += [f"  {name}: {statement}" for statement in getattr(self, name)]
        for table, state in zip(self.windows[1:], self.shorter, strict=True):
            lines += [f"  expire of {table.name}: {statement}" for statement in state]
        return "\n".join(lines)


def queries_of(expr: Expr) -> Iterator[Rows]:
    """The subqueries of an expression, without those inside them."""
    for part in walk(expr):
        if isinstance(part, Exists | InQuery | ScalarQuery):
            yield part.query


def sources_of(statement: Statement) -> tuple[Rows, ...]:
    return statement.sources if isinstance(statement, Insert) else ()


def expressions_of(statement: Statement) -> Iterator[Expr]:
    """Every expression of a statement, those of its subqueries included, but for the parts of each."""
    match statement:
        case Insert():
            own = [expr for source in statement.sources for expr in source.expressions()]
        case Update():
            own = [expr for _, expr in statement.assignments]
            own += [] if statement.where is None else [statement.where]
        case Delete():
            own = [] if statement.where is None else [statement.where]
    yield from _with_subqueries(own)


def _with_subqueries(expressions: list[Expr]) -> Iterator[Expr]:
    for expr in expressions:
        yield expr
        for query in queries_of(expr):
            yield from _with_subqueries(list(query.expressions()))


def aliases_of(expr: Expr) -> set[str]:
    """The tables, by alias, whose rows an expression depends on, those around it for a subquery."""
    names = [part.name for part in walk(expr) if isinstance(part, Column)]
    found = {name.partition(".")[0] for name in names if "." in name and name[0] != ":"}
    for query in queries_of(expr):
        inner = {alias for part in query.expressions() for alias in aliases_of(part)}
        found |= inner - {range_.alias for range_ in query.ranges}
    return found - {OLDEST.rstrip(".")}


def column_names(expressions: Iterable[Expr]) -> list[str]:
    """The columns that expressions name, those in their subqueries included."""
    names = []
    for expr in expressions:
        names += [part.name for part in walk(expr) if isinstance(part, Column)]
        for query in queries_of(expr):
            names += column_names(query.expressions())
    return names


def parameter(type_: SqlType, name: str) -> Column:
    return Column(type_, f":{name}")


SQLCODE = "sqlcode"
