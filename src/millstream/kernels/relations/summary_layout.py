"""Where the loop that summarizes groups keeps what."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from millstream.kernels.accumulators import Place, Sums
from millstream.kernels.accumulators.columns import ArgumentColumn
from millstream.kernels.accumulators.records import RecordLayout
from millstream.kernels.batch import Ints
from millstream.kernels.over.layout import Held, OverLayout
from millstream.kernels.over.spec import Frame, OverSpec
from millstream.kernels.relations.front import ROW_LANES
from millstream.kernels.relations.groups import GROUP_LANES
from millstream.kernels.relations.place_loops import FIRST_VALUE
from millstream.kernels.relations.summary import SummarySpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.windows import Between
from millstream.records import dataclass
from millstream.types import BIGINT


@dataclass(frozen=True)
class Ranked:
    """The values of an argument in a group, ranked so that the extreme is at hand when any of them goes: where they
    begin, and where they end."""

    arg: ArgumentColumn
    fn: str

    @property
    def name(self) -> str:
        return f"{self.arg.name}_{self.fn}"

    lanes = ("first", "last")


class SummaryLayout:
    """Where a loop keeps what: OVER's parts of state, for frames that rows enter and leave one by one."""

    def __init__(self, spec: SummarySpec) -> None:
        self.spec = spec
        # A frame that begins with the first row and that rows enter later than they come: nothing is kept in rings.
        frame = Frame("rows", Between(None, 1))
        self.calls = tuple(
            replace(call, names=(f"$c{i}",), distinct=call.counts_once, framed=frame)
            for i, call in enumerate(spec.calls)
        )
        rows = AggregateCall.over("$rows", "count", None, frame, False, BIGINT)
        self.layout = OverLayout(OverSpec(spec.input, spec.by, self.calls or (rows,)))

    @property
    def args(self) -> tuple[ArgumentColumn, ...]:
        return self.layout.args

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """What accumulators hold of each group."""
        held = (part for part in self.layout.parts if isinstance(part, Held))
        return tuple(part for part in held if isinstance(part.state, Sums) and part.arg is not None)

    @cached_property
    def extremes(self) -> tuple[Ranked, ...]:
        calls = (Ranked(self.layout.arg(call), call.fn) for call in self.calls if call.fn in ("min", "max"))
        return tuple(dict.fromkeys(map(self.keeper, calls)))

    def keeper(self, part: Ranked) -> Ranked:
        """The extreme that has the values of another: among changes, the least and the greatest share a tree."""
        if self.has_ends:
            return part
        fns = (call.fn for call in self.calls if call.fn in ("min", "max") and self.layout.arg(call) == part.arg)
        return Ranked(part.arg, next(fns))

    @property
    def has_ends(self) -> bool:
        """Whether a row that comes says when it will go."""
        return self.spec.form == "intervals"

    @cached_property
    def stairs(self) -> Ints:
        """The lanes where a group has the first step of each extreme, that of the last one in the next; or the root of
        its tree."""
        return np.array([self.group_lanes[f"{part.name}_first"] for part in self.extremes], dtype=np.int64)

    @cached_property
    def text_extremes(self) -> tuple[ArgumentColumn, ...]:
        """The arguments whose strings are compared."""
        used = {part.arg.name for part in self.extremes if part.arg.kind == "text"}
        return tuple(arg for arg in self.args if arg.name in used)

    @cached_property
    def group_lanes(self) -> dict[str, int]:
        """The lanes of a group behind those of every one."""
        if self.has_ends:
            names = ["reach", "held"]
        else:
            names = ["given", "given_nulls", *(f"given{i}" for i in range(len(self.calls)))]
        names += [f"{held.name}_{lane}" for held in self.held for lane in held.lanes]
        names += [f"{part.name}_{lane}" for part in self.extremes for lane in part.lanes]
        return {name: GROUP_LANES + i for i, name in enumerate(names)}

    @property
    def group_width(self) -> int:
        return GROUP_LANES + len(self.group_lanes)

    @cached_property
    def records(self) -> RecordLayout | None:
        """What is kept of rows that may stand for several; None if each is kept with its arguments."""
        return RecordLayout(self.spec.input, self.spec.calls) if self.spec.put_together else None

    def recorded(self, arg: ArgumentColumn, state: str) -> Place:
        """Where the record of the row in cell c has a state of an argument."""
        assert self.records is not None
        return self.records.parts[(arg.column,)].place(state, "cells", "fcells", "c + CELL_RECORD")

    @cached_property
    def row_lanes(self) -> dict[str, int]:
        """The lanes of a row's arguments; or of how many rows it stands for, and where their record begins."""
        if self.records is not None:
            return {"rows": ROW_LANES, "record": ROW_LANES + 1}
        names = ["flags"] if any(arg.flagged for arg in self.args) else []
        names += [arg.name for arg in self.args if arg.valued]
        return {name: ROW_LANES + i for i, name in enumerate(names)}

    @property
    def row_width(self) -> int:
        return ROW_LANES + (len(self.row_lanes) if self.records is None else 1 + self.records.width)

    @property
    def place_width(self) -> int:
        return FIRST_VALUE + 1 + len(self.calls)
