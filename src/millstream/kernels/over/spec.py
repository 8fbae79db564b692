"""What an OVER operator computes: calls over frames, and their columns."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.kernels.one_input import OneInput
from millstream.kernels.registry import register
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import HALVES, KNOWN, NAMES, OVER_NAMES, RANKS, result_type
from millstream.plan.node import by_told
from millstream.plan.windows import Between, Frame, Unit
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import BIGINT, BOOLEAN

__all__ = ["AheadSpec", "Between", "Frame", "OverSpec"]

if TYPE_CHECKING:
    from millstream.kernels.over.ahead import AheadKernel
    from millstream.kernels.over.kernel import OverKernel

REAL = "real"
"""a column that is NULL in rows which only stand for that time has come so far"""


@dataclass(frozen=True)
class _Calls(OneInput):
    """Calls over the rows of each partition; every input row gives one output row."""

    keys: tuple[str, ...]
    calls: tuple[AggregateCall[str], ...]
    ends: str | None = None
    """a key column that is the time of the rows, so that a partition is complete once time has passed it"""

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
            if (call.number is not None) != (call.fn == "nth_value"):
                raise ValueError("nth_value alone has a number")
            for arg in call.args:
                if arg not in self.input:
                    raise ValueError(f"no argument column {arg}")
            expected = result_type(call.fn, call.distinct, *(self.input[arg].type for arg in call.args))
            if expected != call.type:
                raise ValueError(f"{call} is {expected}, not {call.type}")
        _ = self.output

    @cached_property
    def output(self) -> Schema:
        return Schema((*self.input.fields, *(Field(call.name, call.type) for call in self.calls)))

    def describe(self) -> str:
        return f"over{by_told(self.keys)}: {'; '.join(map(str, self.calls))}"


@register
@dataclass(frozen=True)
class OverSpec(_Calls):
    """Aggregates over the rows before each row of its partition."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for call in self.calls:
            if call.frame.end < 0:
                raise ValueError(f"{call} needs later rows")
            if call.fn in RANKS and call.frame != Frame("rows", None):
                raise ValueError(f"{call.fn} counts from the first row")
            if call.fn == "lag" and (call.frame.unit != "rows" or call.frame.start is None or call.frame.end):
                raise ValueError("lag reaches back a number of rows")

    @property
    def waits(self) -> bool:
        """Whether a row's result needs its later peers, so that it is final only when time has passed it."""
        return any(call.frame.has_peers for call in self.calls)

    def build(self) -> OverKernel:
        from millstream.kernels.over.kernel import OverKernel

        return OverKernel(self)


@register
@dataclass(frozen=True)
class AheadSpec(_Calls):
    """Aggregates over frames of one unit that reach beyond each row of its partition; rows come in order of time, each
    once the rows that it needs have come or none can come any more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({call.frame.unit for call in self.calls}) != 1 or self.reach <= 0:
            raise ValueError("frames of one unit that reach ahead")
        for call in self.calls:
            if call.fn not in NAMES | HALVES | KNOWN | {"nth_value"}:
                raise ValueError(f"{call.fn} does not reach ahead")
            if self.unit == "range" and call.fn in ("first_value", "last_value", "nth_value"):
                raise ValueError(f"{call.fn} of a range that reaches ahead")
            if self.unit in ("groups", "earlier"):
                raise ValueError(f"{self.unit} does not reach ahead")
            if self.unit == "later" and call.frame.start != -1:
                raise ValueError("later rows begin with the next one")
        _ = self.behind

    @property
    def unit(self) -> Unit:
        return self.calls[0].frame.unit

    @property
    def reach(self) -> int:
        """How far ahead the farthest frame ends; later rows are seen from the row behind it."""
        return max((-call.frame.end for call in self.calls), default=0) + (self.unit == "later")

    @cached_property
    def args(self) -> tuple[str, ...]:
        """The argument columns."""
        return tuple(dict.fromkeys(arg for call in self.calls for arg in call.args))

    @cached_property
    def lasts(self) -> tuple[str, ...]:
        """The arguments of last_value: rows that stand for none repeat the last value, since it is still the last."""
        return tuple(dict.fromkeys(arg for call in self.calls if call.fn == "last_value" for arg in call.args))

    @cached_property
    def behind(self) -> OverSpec:
        """The same as seen from the place that the farthest frame ends at; after the calls, the number of rows in the
        frames of last_value."""
        fields = [Field(f"key{i}", self.input[key].type) for i, key in enumerate(self.keys)]
        fields += [Field(f"arg{i}", self.input[arg].type) for i, arg in enumerate(self.args)]
        fields += [Field(f"last{i}", self.input[arg].type) for i, arg in enumerate(self.lasts)]
        calls = [self._seen(call, f"call{i}") for i, call in enumerate(self.calls)]
        for i, call in enumerate(self.calls):
            if call.fn == "last_value":
                calls.append(AggregateCall.over(f"rows{i}", "count", REAL, self._frame(call.frame), False, BIGINT))
        keys = tuple(f"key{i}" for i in range(len(self.keys)))
        ends = None
        if self.ends is not None and self.unit != "range":
            ends = keys[self.keys.index(self.ends)]
        return OverSpec(Schema((*fields, Field(REAL, BOOLEAN))), keys, tuple(calls), ends)

    def _seen(self, call: AggregateCall[str], name: str) -> AggregateCall[str]:
        args = tuple(f"arg{self.args.index(arg)}" for arg in call.args) or (REAL,)
        if call.fn == "last_value":
            args = tuple(f"last{self.lasts.index(arg)}" for arg in call.args)
        return replace(call, names=(name,), args=args, framed=self._frame(call.frame))

    def _frame(self, frame: Frame) -> Frame:
        start = None if frame.start is None else frame.start + self.reach
        end = frame.end + self.reach
        return Frame(frame.unit, Between(start, end) if end else start)

    def build(self) -> AheadKernel:
        from millstream.kernels.over.ahead import AheadKernel

        return AheadKernel(self)
