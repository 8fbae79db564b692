"""What an OVER operator computes: frames, calls and their columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from millstream.kernels.aggregates import NAMES, result_type
from millstream.kernels.registry import register
from millstream.schema import Field, Schema
from millstream.types import SqlType

if TYPE_CHECKING:
    from millstream.kernels.over.kernel import OverKernel


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows that an aggregate sees: `preceding` rows before the current one, or those of the last `preceding`
    microseconds with the current row's peers; None is all that came before."""

    unit: Literal["rows", "range"]
    preceding: int | None

    def __post_init__(self) -> None:
        if self.unit not in ("rows", "range"):
            raise ValueError(f"a frame is in rows or range, not {self.unit!r}")
        if self.preceding is not None and not 0 <= self.preceding < 2**62:
            raise ValueError(f"a frame cannot begin {self.preceding} before the current row")

    def __str__(self) -> str:
        if self.preceding is None:
            return f"{self.unit} unbounded preceding"
        return f"{self.unit} {self.preceding}{' µs' if self.unit == 'range' else ''} preceding"


@dataclass(frozen=True, slots=True)
class OverCall:
    """One aggregate: `fn(arg) OVER (… frame)` as column `name`; without argument it counts rows."""

    name: str
    fn: str
    arg: str | None
    frame: Frame
    distinct: bool
    type: SqlType

    def __str__(self) -> str:
        inside = "*" if self.arg is None else f"{'distinct ' if self.distinct else ''}{self.arg}"
        return f"{self.fn}({inside}) {self.frame} as {self.name}"


@register
@dataclass(frozen=True)
class OverSpec:
    """Aggregates over the rows before each row of its partition; every input row gives one output row."""

    input: Schema
    keys: tuple[str, ...]
    calls: tuple[OverCall, ...]

    def __post_init__(self) -> None:
        if not self.calls:
            raise ValueError("nothing to compute")
        for key in self.keys:
            if key not in self.input:
                raise ValueError(f"no key column {key}")
        for call in self.calls:
            if call.fn not in NAMES:
                raise ValueError(f"no aggregate {call.fn}")
            if call.arg is not None and call.arg not in self.input:
                raise ValueError(f"no argument column {call.arg}")
            expected = result_type(call.fn, call.distinct, self.type_of(call))
            if expected != call.type:
                raise ValueError(f"{call} is {expected}, not {call.type}")
        _ = self.output

    def type_of(self, call: OverCall) -> SqlType | None:
        """The type of a call's argument."""
        return None if call.arg is None else self.input[call.arg].type

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input,)

    @cached_property
    def output(self) -> Schema:
        return Schema((*self.input.fields, *(Field(call.name, call.type) for call in self.calls)))

    @property
    def waits(self) -> bool:
        """Whether a row's result needs its later peers, so that it is final only when time has passed it."""
        return any(call.frame.unit == "range" for call in self.calls)

    def build(self) -> OverKernel:
        from millstream.kernels.over.kernel import OverKernel

        return OverKernel(self)

    def describe(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"over{by}: {'; '.join(map(str, self.calls))}"
