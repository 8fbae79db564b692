"""GROUP BY over relations: at each instant, aggregates over the rows of each group that are valid then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.kernels.contract import Kernel
from millstream.kernels.one_input import ByKeys
from millstream.kernels.programs.spec import Failing
from millstream.kernels.registry import register
from millstream.kernels.relations.signs import signed
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import HALVES, ORDERLESS, SPREADS
from millstream.plan.node import by_told
from millstream.plan.relations import Form
from millstream.records import dataclass
from millstream.schema import Field, Schema
from millstream.types import VARCHAR

if TYPE_CHECKING:
    from millstream.kernels.relations.summary_partials import SummaryPartials

ERROR, ROW = "$error", "$row"

_COMPILED = HALVES | SPREADS | {"count", "sum", "avg", "min", "max"}


@register
@dataclass(frozen=True)
class SummarySpec(ByKeys):
    """At each instant one row for each group that has rows then: the keys, and aggregates over its rows. A group's row
    ends when what it says changes, or when all rows that it began with have ended."""

    by_instant = True

    input: Schema
    by: tuple[str, ...]
    calls: tuple[AggregateCall[str], ...]
    form: Form = "intervals"
    failing: Failing = field(default="stop", metadata={"later": True})
    put_together: bool = field(default=False, metadata={"later": True})
    """whether what is kept of a row are records, which may stand for several rows that begin and end together"""

    def __post_init__(self) -> None:
        if self.put_together and not self.merges:
            raise ValueError("rows cannot be put together")
        for name in (*self.by, *(arg for call in self.calls for arg in call.args)):
            if name not in self.input:
                raise ValueError(f"no column {name}")
        _ = self.output

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (signed(self.input) if self.form == "changes" else self.input,)

    @cached_property
    def made(self) -> Schema:
        """The columns of the output but for the sign of changes."""
        results: tuple[Field, ...] = tuple(field for call in self.calls for field in call.fields)
        if self.failing == "report":
            results = (Field(ERROR, VARCHAR), Field(ROW, VARCHAR))
        return Schema((*(self.input[key] for key in self.by), *results))

    @cached_property
    def output(self) -> Schema:
        return signed(self.made) if self.form == "changes" else self.made

    def renamed(self, input: Schema, name: Callable[[str], str]) -> SummarySpec:
        """The same over columns with other names."""
        calls = tuple(replace(call, args=tuple(map(name, call.args))) for call in self.calls)
        return replace(self, input=input, by=tuple(map(name, self.by)), calls=calls)

    @property
    def is_compiled(self) -> bool:
        """Whether one loop computes all calls; otherwise programs run over the rows of each group that changed."""
        return len(self.calls) < 60 and all(map(self._compiles, self.calls))

    def _compiles(self, call: AggregateCall[str]) -> bool:
        if call.program is not None or call.fn not in _COMPILED or len(call.args) > 1:
            return False
        if not call.args or (call.fn == "count" and not call.distinct):
            return True
        type_ = self.input[call.args[0]].type
        return type_.name != "DECIMAL" or type_.precision <= 18

    @property
    def merges(self) -> bool:
        """Whether rows that begin and end together may be put together before they come."""
        if self.form == "changes" or self.failing != "stop" or not self.is_compiled:
            return False
        # a call that names a column in other letters would have lanes of its own
        return all(
            call.has_lanes and call.fn in ORDERLESS and all(self.input[arg].name == arg for arg in call.args)
            for call in self.calls
        )

    @property
    def partials(self) -> SummaryPartials | None:
        """How rows are put together before they travel; None if they are not."""
        from millstream.kernels.relations.summary_partials import SummaryPartials

        return SummaryPartials(self) if self.put_together else None

    def build(self) -> Kernel:
        if self.is_compiled:
            from millstream.kernels.relations.summary_kernel import SummaryKernel

            return SummaryKernel(self)
        from millstream.kernels.relations.summary_rows import RowSummaryKernel

        return RowSummaryKernel(self)

    def describe(self) -> str:
        if self.failing == "report":
            return f"Failed rows of: {replace(self, failing='skip').describe()}"
        how = "compiled" if self.is_compiled else "group by group"
        form = ", as changes" if self.form == "changes" else ""
        return f"summarize{by_told(self.by)}: {'; '.join(map(str, self.calls))} ({how}{form})"
