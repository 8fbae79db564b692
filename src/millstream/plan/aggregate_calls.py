"""A call of an aggregate over rows: those of a frame, of a group, of a match, or those that a FOLD took."""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, TypeVar

from millstream.expressions.nodes import Expr, Literal, told
from millstream.plan.arrangements import Arrangement
from millstream.plan.programs.nodes import AggregateValue, Program
from millstream.plan.windows import Frame
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, SqlType

Arg = TypeVar("Arg", bound=str | Expr)
Other = TypeVar("Other", bound=str | Expr)


@dataclass(frozen=True, slots=True)
class MatchRows:
    """The rows of a match that have one of these labels (None: all), up to the row at hand or, if `final`, of the whole
    match."""

    variables: tuple[str, ...] | None = None
    final: bool = False


@dataclass(frozen=True)
class AggregateCall(Generic[Arg]):
    """An aggregate over rows: `names` := fn([DISTINCT] args) [over which rows].

    Arguments are names of columns where kernels compute them, and expressions before that, in matches and in FOLD.
    `program` is its definition if it is written in SQL or Python; None for a built-in one, which has one result.
    """

    names: tuple[str, ...]
    fn: str
    args: tuple[Arg, ...]
    types: tuple[SqlType, ...]
    distinct: bool = False
    program: Program | None = None
    framed: Frame | MatchRows | None = None
    """the rows of OVER, or some of a match; None: those of a group, or of a FOLD"""
    arrangement: Arrangement | None = None
    """it gives back the rows of its group, arranged"""
    number: int | None = None
    """which row of its frame nth_value gives, from 1"""

    @staticmethod
    def builtin(name: str, fn: str, arg: Other | None, type_: SqlType, distinct: bool = False) -> AggregateCall[Other]:
        """A built-in aggregate over an argument, or over rows."""
        return AggregateCall((name,), fn, () if arg is None else (arg,), (type_,), distinct)

    @staticmethod
    def of_rows() -> AggregateCall[Expr]:
        """The number of rows."""
        return AggregateCall(("count",), "count", (), (BIGINT,))

    @staticmethod
    def of_program(program: Program, args: tuple[Expr, ...]) -> AggregateCall[Expr]:
        """A program, for arguments of the types of its parameters."""
        result: Schema = program.result
        return AggregateCall(result.names, program.name, args, tuple(f.type for f in result), program=program)

    @staticmethod
    def over(
        name: str, fn: str, arg: str | None, frame: Frame, distinct: bool, type_: SqlType, number: int | None = None
    ) -> AggregateCall[str]:
        """A built-in aggregate, or a function of windows alone, over a frame."""
        return replace(AggregateCall.builtin(name, fn, arg, type_, distinct), framed=frame, number=number)

    @staticmethod
    def matched(
        name: str, fn: str, args: tuple[Expr, ...], type_: SqlType, variables: tuple[str, ...] | None = None,
        final: bool = False, distinct: bool = False, program: Program | None = None,
    ) -> AggregateCall[Expr]:  # fmt: skip
        """An aggregate over rows of a match. Its arguments are computed at each row, from columns of the input, the
        row's label and the number of the match."""
        return AggregateCall((name,), fn, args, (type_,), distinct, program, MatchRows(variables, final))

    def with_arguments(self, args: tuple[Other, ...], names: tuple[str, ...]) -> AggregateCall[Other]:
        """The same of other arguments, under other names."""
        return AggregateCall(
            names, self.fn, args, self.types, self.distinct, self.program, self.framed, number=self.number
        )

    @property
    def value(self: AggregateCall[Expr]) -> AggregateValue:
        """The call as a part of an expression, in a statement of a program: of several results, the first."""
        return AggregateValue(self.types[0], self.fn, self.args, self.distinct, self.program)

    @property
    def name(self) -> str:
        """The name of the only result."""
        (name,) = self.names
        return name

    @property
    def frame(self) -> Frame:
        """The frame of a call of OVER."""
        assert isinstance(self.framed, Frame)
        return self.framed

    @property
    def variables(self) -> tuple[str, ...] | None:
        """The labels of the rows of a match; None: any."""
        return self._matched.variables

    @property
    def final(self) -> bool:
        """Whether it goes by the whole match, not by the rows up to the one at hand."""
        return self._matched.final

    @property
    def _matched(self) -> MatchRows:
        assert isinstance(self.framed, MatchRows)
        return self.framed

    @property
    def saved_form(self) -> tuple[str, tuple[str, ...]]:
        """What state says of it: calls over frames, groups and matches were classes of their own when it was first
        saved."""
        match self.framed:
            case Frame():
                arguments = "arg" if len(self.args) < 2 else "args"
                number = () if self.number is None else ("number",)
                return "WindowCall", ("name", "fn", arguments, "frame", "distinct", "type", *number)
            case MatchRows():
                return "Summary", ("name", "fn", "args", "type", "variables", "final", "distinct", "program")
        also = () if self.arrangement is None else ("arrangement",)
        return "AggregateCall", ("names", "fn", "args", "types", "distinct", "program", *also)

    @property
    def arg(self) -> Arg | None:
        """The first argument of a built-in one, most often the only one; None: it counts rows."""
        return self.args[0] if self.args else None

    @property
    def type(self) -> SqlType:
        """The type of the only result."""
        (type_,) = self.types
        return type_

    @property
    def of_nothing(self) -> Expr:
        """What a built-in one is before the first row."""
        return Literal(self.type, 0 if self.fn == "count" else None)

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
        return self.program is None and not self.counts_once and self.arrangement is None

    @property
    def told(self) -> str:
        """The call alone."""
        distinct = "DISTINCT " if self.distinct else ""
        if isinstance(self.framed, MatchRows):
            who = "" if self.variables is None else f"{'|'.join(self.variables)}: "
            inside = ", ".join(map(str, self.args)) or "*"
            return f"{'FINAL ' if self.final else ''}{self.fn}({who}{distinct}{inside})"
        inside = ", ".join(told(arg) if isinstance(arg, Expr) else arg for arg in self.args) or "*"
        return f"{self.fn}({distinct}{inside}{'' if self.number is None else f', {self.number}'})"

    def __str__(self) -> str:
        rows = f" {self.framed}" if isinstance(self.framed, Frame) else ""
        return f"{', '.join(self.names)} := {self.told}{rows}"
