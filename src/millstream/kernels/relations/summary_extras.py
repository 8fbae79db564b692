"""What summaries keep beside groups and rows: steps or trees of extremes, counted values, and the strings in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from millstream.kernels.accumulators import loops
from millstream.kernels.batch import Ints
from millstream.kernels.jit import compile_kernel, source_of
from millstream.kernels.kept import SlotNumbers
from millstream.kernels.keys import ByteTable
from millstream.kernels.relations import stair_loops, tree_loops
from millstream.kernels.relations.back import Lanes
from millstream.kernels.relations.place_loops import FIRST_VALUE
from millstream.kernels.relations.stair_loops import STEP
from millstream.kernels.relations.summary_layout import SummaryLayout
from millstream.kernels.relations.sweeping import PLACES, Portable, SweepState

_list_steps = compile_kernel(source_of(stair_loops), "list_steps")
_list_nodes = compile_kernel(source_of(tree_loops), "list_nodes")
_refill = compile_kernel(source_of(loops), "refill")

STEPS = "steps"
_LANES = "lanes"
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
    numbers: dict[str, SlotNumbers] = field(default_factory=lambda: defaultdict(SlotNumbers))
    """by argument: the numbers of its strings"""
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
                rows = {
                    "ends0": state.fronts[0].ends.all()[0],
                    PLACES: state.places.held(),
                    STEPS: self.listed(layout, state),
                    _LANES: state.groups.lanes[state.groups.live()],
                }
                rows |= {f"table{i}": self.entries(i) for i in range(len(self.tables))}
                used = [lanes[chosen, lane] for lanes, chosen, lane in _codes(layout, rows, arg.name)]
                gone = np.setdiff1d(table.live(), np.concatenate(used))
                table.release(gone)
                self.numbers[arg.name].renew(gone)
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


def with_texts(layout: SummaryLayout, portable: Portable, texts: Mapping[str, ByteTable]) -> Portable:
    """A state as the kernel has it: with its own strings, from 0 on, for the codes of these tables."""
    for name, table in texts.items():
        live = table.live()
        number = np.zeros(max(1, table.size), dtype=np.int64)
        number[live] = np.arange(len(live))
        portable.texts[name] = table.values(live.astype(np.int64))
        recode(layout, portable, name, number)
    return portable


def to_codes(layout: SummaryLayout, portable: Portable, texts: Mapping[str, ByteTable]) -> Portable:
    """The inverse: with codes of these tables, which get to know the strings."""
    for name, table in texts.items():
        recode(layout, portable, name, table.slots(portable.texts[name], add=True).astype(np.int64))
    return portable


class Codes(Protocol):
    """What stands for codes of strings."""

    def __getitem__(self, codes: Ints, /) -> Ints: ...


def recode(layout: SummaryLayout, portable: Portable, name: str, codes: Codes) -> None:
    """Have other codes for an argument's strings."""
    portable.owned = {owned: rows.copy() for owned, rows in portable.owned.items()}
    portable.lanes = portable.lanes.copy()
    for rows, chosen, lane in _codes(layout, {**portable.owned, _LANES: portable.lanes}, name):
        rows[chosen, lane] = codes[rows[chosen, lane]]


def _codes(layout: SummaryLayout, owned: Mapping[str, Lanes], name: str) -> Iterator[tuple[Lanes, Ints, int]]:
    """Where codes of an argument's strings are: rows of lanes, which of them, and the lane."""
    places = [("ends0", layout.row_lanes[name])]
    places += [(f"table{i}", 1) for i, part in enumerate(layout.layout.tables) if part.arg and part.arg.name == name]
    for i, call in enumerate(layout.calls):
        if call.type.is_coded and layout.layout.arg(call).name == name:
            places.append((PLACES, FIRST_VALUE + 1 + i))
            if not layout.has_ends:
                given, value = (layout.group_lanes[lane] for lane in ("given", f"given{i}"))
                lanes = owned[_LANES]
                yield lanes, np.flatnonzero((lanes[:, given] == 1) & (lanes[:, value] >= 0)), value
    for part, lane in places:
        yield owned[part], np.flatnonzero(owned[part][:, lane] >= 0), lane
    for i, extreme in enumerate(layout.extremes):
        if extreme.arg.name == name:
            yield owned[STEPS], np.flatnonzero(owned[STEPS][:, 1] == i), 3
