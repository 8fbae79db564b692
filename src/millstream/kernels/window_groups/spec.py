"""What grouped windows compute: for each group of each window, built-in aggregates over its rows."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from millstream.kernels.one_input import ByKeys
from millstream.kernels.registry import register
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import ORDERLESS, result_type
from millstream.plan.node import by_told
from millstream.plan.window_tables import FixedWindows
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import SqlType

if TYPE_CHECKING:
    from millstream.kernels.window_groups.kernel import WindowGroupKernel
    from millstream.kernels.window_groups.partials import PanePartials


@register
@dataclass(frozen=True)
class WindowGroupSpec(ByKeys):
    """One row for each group of each window that has rows, at the window's end: the columns `keys_out`, then the calls.

    A column of `keys_out` is the start of the window if it is among `starts`, its end if among `ends`, and a column of
    `by` otherwise. Groups of a window come in the order of their first rows.
    """

    input: Schema
    by: tuple[str, ...]
    windows: FixedWindows
    type: SqlType
    keys_out: tuple[str, ...]
    starts: tuple[str, ...]
    ends: tuple[str, ...]
    calls: tuple[AggregateCall[str], ...]

    def __post_init__(self) -> None:
        if not self.calls:
            raise ValueError("nothing to compute")
        if set(self.keys_out) != {*self.by, *self.starts, *self.ends}:
            raise ValueError("keys are columns or bounds of the window")
        for call in self.calls:
            types = [self.input[arg].type for arg in call.args]
            if not call.has_lanes or result_type(call.fn, False, *types) != call.type:
                raise ValueError(f"{call} is not of type {call.type}")
        _ = self.output

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input,)

    @cached_property
    def output(self) -> Schema:
        bounds = {*self.starts, *self.ends}
        keys = (Field(name, self.type) if name in bounds else self.input[name] for name in self.keys_out)
        return Schema((*keys, *(field for call in self.calls for field in call.fields)))

    @property
    def partials(self) -> PanePartials | None:
        """How rows are put together before they travel; None if an aggregate depends on their order."""
        from millstream.kernels.window_groups.partials import PanePartials

        return PanePartials(self) if all(call.fn in ORDERLESS for call in self.calls) else None

    def build(self) -> WindowGroupKernel:
        from millstream.kernels.window_groups.kernel import WindowGroupKernel

        return WindowGroupKernel(self)

    def describe(self) -> str:
        calls = ", ".join(call.told for call in self.calls)
        return f"{calls}{by_told(self.by)} in windows {self.windows.describe(self.type)} (compiled, by panes)"
