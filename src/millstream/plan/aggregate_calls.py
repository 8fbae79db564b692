"""A call of an aggregate over rows, as OVER and GROUP BY have it."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.node import listed
from millstream.plan.programs.nodes import Program
from millstream.plan.windows import Frame
from millstream.records import dataclass
from millstream.schema import Field
from millstream.types import SqlType


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate over the rows of a group, or over a frame of rows: `names` := fn([DISTINCT] args) [frame].

    `program` is its definition if it is written in SQL or Python; None for a built-in one, which has one result.
    """

    names: tuple[str, ...]
    fn: str
    args: tuple[str, ...]
    types: tuple[SqlType, ...]
    distinct: bool = False
    program: Program | None = None
    framed: Frame | None = None
    """the rows of OVER; None: those of a group"""

    @staticmethod
    def builtin(name: str, fn: str, arg: str | None, type_: SqlType, distinct: bool = False) -> AggregateCall:
        """A built-in aggregate over a column, or over rows."""
        return AggregateCall((name,), fn, () if arg is None else (arg,), (type_,), distinct)

    @staticmethod
    def over(name: str, fn: str, arg: str | None, frame: Frame, distinct: bool, type_: SqlType) -> AggregateCall:
        """A built-in aggregate, or a function of windows alone, over a frame."""
        return replace(AggregateCall.builtin(name, fn, arg, type_, distinct), framed=frame)

    @property
    def name(self) -> str:
        """The name of the only result."""
        (name,) = self.names
        return name

    @property
    def frame(self) -> Frame:
        """The frame of a call of OVER."""
        assert self.framed is not None
        return self.framed

    @property
    def saved_form(self) -> tuple[str, tuple[str, ...]]:
        """What state says of it: calls over frames and over groups were classes of their own when it was first
        saved."""
        if self.framed is not None:
            return "WindowCall", ("name", "fn", "arg", "frame", "distinct", "type")
        return "AggregateCall", ("names", "fn", "args", "types", "distinct", "program")

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
        return f"{listed(self.names)} := {self.told}{'' if self.framed is None else f' {self.framed}'}"
