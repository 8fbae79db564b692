"""What an OVER operator computes: calls over frames, and their columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.kernels.aggregates import OVER_NAMES, RANKS, result_type
from millstream.kernels.one_input import OneInput
from millstream.kernels.registry import register
from millstream.plan.windows import Frame
from millstream.plan.windows import WindowCall as OverCall
from millstream.schema import Field, Schema
from millstream.types import SqlType

__all__ = ["Frame", "OverCall", "OverSpec"]

if TYPE_CHECKING:
    from millstream.kernels.over.kernel import OverKernel


@register
@dataclass(frozen=True)
class OverSpec(OneInput):
    """Aggregates over the rows before each row of its partition; every input row gives one output row."""

    keys: tuple[str, ...]
    calls: tuple[OverCall, ...]
    ends: str | None = None
    """a key column that is the time of the rows, so that a key is dead once time has passed it"""

    def __post_init__(self) -> None:
        if self.ends is not None and self.ends not in self.keys:
            raise ValueError("keys end by one of them")
        if not self.calls:
            raise ValueError("nothing to compute")
        for key in self.keys:
            if key not in self.input:
                raise ValueError(f"no key column {key}")
        for call in self.calls:
            if call.fn not in OVER_NAMES:
                raise ValueError(f"no aggregate {call.fn}")
            if call.arg is not None and call.arg not in self.input:
                raise ValueError(f"no argument column {call.arg}")
            expected = result_type(call.fn, call.distinct, self.type_of(call))
            if expected != call.type:
                raise ValueError(f"{call} is {expected}, not {call.type}")
            if call.frame.end < 0:
                raise ValueError(f"{call} needs later rows")
            if call.fn in RANKS and call.frame != Frame("rows", None):
                raise ValueError(f"{call.fn} counts from the first row")
            if call.fn == "lag" and (call.frame.unit != "rows" or call.frame.start is None or call.frame.end):
                raise ValueError("lag reaches back a number of rows")
        _ = self.output

    def type_of(self, call: OverCall) -> SqlType | None:
        """The type of a call's argument."""
        return None if call.arg is None else self.input[call.arg].type

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
