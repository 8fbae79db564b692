"""Aggregates written in Python, as parts of a program: the state is an object, and its methods return rows.

A program keeps the object in a table of one row: INITIALIZE inserts an `Instance`, and every state calls a `Method` of
it. A function over whole columns is an aggregate over the rows of a table (`Vectorised`).
"""

from __future__ import annotations

from dataclasses import field, replace

from millstream.expressions.nodes import Expr, walk
from millstream.expressions.python_calls import PythonCode
from millstream.plan.programs.nodes import AggregateValue, Program, expressions_of
from millstream.records import dataclass
from millstream.schema import Schema

OBJECT = "$python"
"""The table that holds a group's object, in its only column."""


@dataclass(frozen=True, slots=True)
class Instance(Expr):
    """A new object of a class."""

    code: PythonCode

    def __str__(self) -> str:
        return f"{self.code}()"


@dataclass(frozen=True, slots=True)
class Method(Expr):
    """A column of what a method of an object returns.

    A query whose columns are all those of one method has the rows that it returned, whatever their number. Without
    `result` the method returns nothing: it changes the object that its value is assigned to.
    """

    code: PythonCode
    state: str
    target: Expr
    args: tuple[Expr, ...]
    result: Schema | None = None
    column: int = 0
    one_row: bool = False

    def children(self) -> tuple[Expr, ...]:
        return (self.target, *self.args)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, target=children[0], args=children[1:])

    def __str__(self) -> str:
        column = "" if self.result is None or len(self.result) == 1 else f".{self.result.names[self.column]}"
        return f"{self.code}.{self.state}({', '.join(map(str, self.args))}){column}"


@dataclass(frozen=True, slots=True)
class Vectorised(AggregateValue):
    """A function of columns, which are its arguments for all rows."""

    code: PythonCode = field(kw_only=True)


def code_in(program: Program) -> PythonCode | None:
    """The Python that a program calls, if it calls any."""
    for statement in program.statements:
        for part in (part for expr in expressions_of(statement) for part in walk(expr)):
            if isinstance(part, Instance | Method | Vectorised):
                return part.code
            if (
                isinstance(part, AggregateValue)
                and part.program is not None
                and (code := code_in(part.program)) is not None
            ):
                return code
    return None
