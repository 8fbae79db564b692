"""What summaries keep beside groups and rows: steps or trees of extremes, counted values, and the strings in them."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from millstream.kernels.accumulators import loops
from millstream.kernels.batch import Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.keys import ByteTable
from millstream.kernels.relations import stair_loops, tree_loops
from millstream.kernels.relations.back import Lanes
from millstream.kernels.relations.place_loops import FIRST_VALUE
from millstream.kernels.relations.stair_loops import STEP
from millstream.kernels.relations.summary_layout import SummaryLayout
from millstream.kernels.relations.sweeping import LANES, PLACES, Codes, SweepState
from millstream.records import dataclass

_list_steps = compile_kernel(source_of(stair_loops), "list_steps")
_list_nodes = compile_kernel(source_of(tree_loops), "list_nodes")
_refill = compile_kernel(source_of(loops), "refill")

STEPS = "steps"
_TEXTS_AT_LEAST = 1_024


@dataclass
class Extras:
    """The steps of extremes, or nodes of trees; and tables of counted values: entries of group record + 1, value,
    count."""

    tables: list[Ints]
    used: Ints
    texts: dict[str, ByteTable]
    """by argument: the strings that rows have as codes"""
    steps: Ints = field(default_factory=lambda: np.zeros(STEP * 64, dtype=np.int64))
    pool: Ints = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    kept: dict[str, int] = field(default_factory=dict)
    scratch: Lanes = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))

    def reserve(self, steps: int, values: int) -> None:
        """Make room for that many more steps, and for that many more values in each table."""
        # one more, since a tree hangs on the first node
        wanted = STEP * (int(self.pool[stair_loops.EVER]) + steps + 1)
        if wanted > len(self.steps):
            self.steps = np.append(self.steps, np.zeros(max(wanted, 2 * len(self.steps)), dtype=np.int64))
        for i, table in enumerate(self.tables):
            if 6 * (int(self.used[i]) + values) > len(table):
                self.fill(i, self.entries(i), values)

    def room(self, rows: int, width: int) -> Lanes:
        """Rows of lanes to write to, the same ones each time: fresh memory costs more than what is written to it."""
        if len(self.scratch) < rows or not self.scratch.size:
            self.scratch = np.empty((2 * rows + 1, width), dtype=np.int64)
        return self.scratch

    def entries(self, table: int) -> Lanes:
        rows = self.tables[table].reshape(-1, 3)
        used: Lanes = rows[rows[:, 0] != 0]
        return used

    def fill(self, table: int, entries: Lanes, more: int = 0) -> None:
        size = 16
        while size < 4 * (len(entries) + more):
            size *= 2
        self.tables[table] = np.zeros(3 * size, dtype=np.int64)
        self.used[table] = len(entries)
        _refill(len(entries), np.ascontiguousarray(entries), self.tables[table])

    def forget(self, layout: SummaryLayout, state: SweepState) -> None:
        """Give up strings that no row and no output has, once there may be as many of them as others."""
        for arg in layout.layout.texts:
            table = self.texts[arg.name]
            if len(table) > 2 * self.kept.get(arg.name, 0) + _TEXTS_AT_LEAST:
                parts = {
                    "ends0": state.fronts[0].ends.all()[0],
                    PLACES: state.places.held(),
                    STEPS: self.listed(layout, state),
                    LANES: state.groups.lanes[state.groups.live()],
                }
                parts |= {f"table{i}": self.entries(i) for i in range(len(self.tables))}
                used = [
                    rows[which, lane]
                    for part, rows in parts.items()
                    for which, lane in codes_in(layout, part, rows, arg.name)
                ]
                table.release(np.setdiff1d(table.live(), np.concatenate(used)))
                self.kept[arg.name] = len(table)

    def listed(self, layout: SummaryLayout, state: SweepState) -> Lanes:
        """The steps of all groups in order: slot, which extreme, end, value; or with a count in place of the end."""
        ever = int(self.pool[stair_loops.EVER])
        steps = np.empty((ever, 4), dtype=np.int64)
        held = (state.groups.lanes.reshape(-1), layout.group_width, state.groups.live(), layout.stairs, self.steps)
        if layout.has_ends:
            count = _list_steps(ever, *held, steps)
        else:
            count = _list_nodes(ever, *held, np.empty(ever, dtype=np.int64), steps)
        return steps[: int(count)]


def extras_of(layout: SummaryLayout) -> Extras:
    """Nothing yet."""
    tables = len(layout.layout.tables)
    texts = {arg.name: ByteTable(arg.type) for arg in layout.layout.texts}
    return Extras([np.zeros(3 * 16, dtype=np.int64) for _ in range(tables)], np.zeros(tables, dtype=np.int64), texts)


def codes_in(layout: SummaryLayout, part: str, rows: Lanes, arg: str) -> Codes:
    """Where codes of an argument's strings are in rows of lanes of a part."""
    own = [i for i, call in enumerate(layout.calls) if call.type.is_coded and layout.layout.arg(call).name == arg]
    if part == "ends0" and layout.records is not None:
        begin = layout.row_lanes["record"]
        for lane, (known, column) in layout.records.text_lanes.items():
            if any(own.name == arg and own.column == column for own in layout.args):
                yield rows[:, begin + known] != 0, begin + lane
    elif part == "ends0":
        yield rows[:, layout.row_lanes[arg]] >= 0, layout.row_lanes[arg]
    elif part == PLACES:
        yield from ((rows[:, lane] >= 0, lane) for lane in (FIRST_VALUE + 1 + i for i in own))
    elif part == LANES and not layout.has_ends:
        given = rows[:, layout.group_lanes["given"]] == 1
        yield from ((given & (rows[:, lane] >= 0), lane) for lane in (layout.group_lanes[f"given{i}"] for i in own))
    elif part == STEPS:
        yield from ((rows[:, 1] == i, 3) for i, extreme in enumerate(layout.extremes) if extreme.arg.name == arg)
    elif part != LANES:
        counted = layout.layout.tables[int(part.removeprefix("table"))].arg
        if counted is not None and counted.name == arg:
            yield rows[:, 1] >= 0, 1
