"""A call of an aggregate over rows, as GROUP BY has it."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.plan.node import listed
from millstream.plan.programs.nodes import Program
from millstream.schema import Field
from millstream.types import SqlType


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate over the rows of a group: `names` := fn([DISTINCT] args).

    `program` is its definition if it is written in SQL or Python; None for a built-in one, which has one result.
    """

    names: tuple[str, ...]
    fn: str
    args: tuple[str, ...]
    types: tuple[SqlType, ...]
    distinct: bool = False
    program: Program | None = None

    @staticmethod
    def builtin(name: str, fn: str, arg: str | None, type_: SqlType, distinct: bool = False) -> AggregateCall:
        """A built-in aggregate over a column, or over rows."""
        return AggregateCall((name,), fn, () if arg is None else (arg,), (type_,), distinct)

    @property
    def arg(self) -> str | None:
        """The argument of a built-in one; None: it counts rows."""
        return self.args[0] if self.args else None

    @property
    def type(self) -> SqlType:
        """The type of the only result."""
        (type_,) = self.types
        return type_

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of its results."""
        return tuple(map(Field, self.names, self.types))

    @property
    def counts_once(self) -> bool:
        """Whether it makes a difference that equal values count once."""
        return self.distinct and self.fn not in ("min", "max")

    @property
    def has_lanes(self) -> bool:
        """Whether an accumulator alone computes it, row by row."""
        return self.program is None and not self.counts_once

    @property
    def told(self) -> str:
        """The call alone."""
        return f"{self.fn}({'DISTINCT ' if self.distinct else ''}{listed(self.args) or '*'})"

    def __str__(self) -> str:
        return f"{listed(self.names)} := {self.told}"
