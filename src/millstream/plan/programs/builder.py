"""Programs written in Python: a builder that gives every use of a table an alias and every value its column's type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from millstream.expressions.functions import cast, resolve
from millstream.expressions.nodes import Column, Expr, Literal, conjunction
from millstream.plan.programs.nodes import (
    OLDEST,
    SQLCODE,
    WINDOW,
    Insert,
    LocalTable,
    Program,
    Range,
    Rows,
    Statement,
    Update,
    parameter,
)
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import DOUBLE, INTEGER, VARCHAR

Value = Expr | int | float | str


def expr(value: Value) -> Expr:
    """An expression, from a constant too."""
    if isinstance(value, Expr):
        return value
    return Literal(INTEGER if isinstance(value, int) else DOUBLE if isinstance(value, float) else VARCHAR, value)


def call(fn: str, *args: Value) -> Expr:
    """A function applied to expressions or constants, typed as the binder does it."""
    return resolve(fn, tuple(map(expr, args)))


def every(*predicates: Expr) -> Expr:
    return conjunction(predicates)


@dataclass(frozen=True)
class Use:
    """A table in one place of a program: its range, and its columns by name."""

    range: Range
    schema: Schema

    def __getitem__(self, name: str) -> Column:
        return Column(self.schema[name].type, f"{self.range.alias}.{name}")


class Builder:
    """Makes the statements of a program: gives every use of a table an alias and every value the column's type."""

    def __init__(self, name: str, parameters: Schema, result: Schema, window: Schema | None = None,
                 **tables: Schema) -> None:  # fmt: skip
        self.name, self.parameters, self.result = name, parameters, result
        self.tables = tuple(LocalTable(table, schema) for table, schema in tables.items())
        self.window = None if window is None else LocalTable(WINDOW, window)
        self._number = count(2)
        self._used: set[str] = set()

    def use(self, table: str) -> Use:
        alias = f"{table}#{next(self._number)}" if table in self._used else table
        self._used.add(table)
        return Use(Range(alias, table), self.schema(table))

    def schema(self, table: str | None) -> Schema:
        """The columns of a table, or of the result if `table` is None."""
        if table is None:
            return self.result
        if self.window is not None and table == WINDOW:
            return self.window.schema
        return next(local.schema for local in self.tables if local.name == table)

    def param(self, name: str) -> Column:
        return parameter(self.parameters[name].type, name)

    def oldest(self, name: str) -> Column:
        assert self.window is not None
        return Column(self.window.schema[name].type, OLDEST + name)

    @property
    def sqlcode(self) -> Column:
        return Column(INTEGER, SQLCODE)

    def values(self, table: str | None, *row: Value, where: Expr | None = None) -> Insert:
        """INSERT INTO table VALUES (row) WHERE …; into RETURN if `table` is None."""
        return Insert(table, (Rows(self._fit(table, row), where=where),))

    def select(self, table: str | None, *columns: Value, of: Sequence[Use], where: Expr | None = None) -> Insert:
        """INSERT INTO table SELECT columns FROM the uses WHERE …"""
        return Insert(table, (Rows(self._fit(table, columns), tuple(use.range for use in of), where),))

    def update(self, use: Use, where: Expr | None = None, **values: Value) -> Update:
        assigned = ((name, cast(expr(value), use.schema[name].type)) for name, value in values.items())
        return Update(use.range, tuple(assigned), where)

    def program(
        self,
        initialize: Sequence[Statement],
        iterate: Sequence[Statement],
        expire: Sequence[Statement] = (),
        terminate: Sequence[Statement] = (),
        algebraic: bool = False,
    ) -> Program:
        return Program(self.name, self.parameters, self.result, self.tables, self.window, tuple(initialize),
                       tuple(iterate), tuple(expire), tuple(terminate), algebraic)  # fmt: skip

    def _fit(self, table: str | None, row: Sequence[Value]) -> tuple[Expr, ...]:
        return tuple(cast(expr(value), field.type) for value, field in zip(row, self.schema(table), strict=True))
