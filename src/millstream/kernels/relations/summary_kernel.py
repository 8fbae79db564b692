"""The kernel that summarizes groups with one compiled loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.accumulators.columns import argument_arrays, result_column
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.contract import PARTIALS
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import ByteTable
from millstream.kernels.keys.words import all_true
from millstream.kernels.relations import stair_loops, tree_loops
from millstream.kernels.relations.back import Lanes, Places, columns_of
from millstream.kernels.relations.front import END, SLOT, Front
from millstream.kernels.relations.groups import SweptGroups
from millstream.kernels.relations.place_loops import END as PLACE_END
from millstream.kernels.relations.place_loops import FIRST_VALUE, OPEN, OWNER, START
from millstream.kernels.relations.signs import apart, with_signs
from millstream.kernels.relations.summary import SummarySpec
from millstream.kernels.relations.summary_extras import STEPS, Extras, codes_in, extras_of
from millstream.kernels.relations.summary_layout import SummaryLayout
from millstream.kernels.relations.summary_source import OVERFLOW, ROOM, generate
from millstream.kernels.relations.sweeping import Codes, Sweep, SweepState
from millstream.types import DOUBLE

_load_steps = compile_kernel(source_of(stair_loops), "load_steps")
_load_nodes = compile_kernel(source_of(tree_loops), "load_nodes")

_NO_TIMES = as_input(np.empty(0, dtype=np.int64))


class SummaryKernel(Sweep):
    """Runs a SummarySpec whose calls have loops."""

    def __init__(self, spec: SummarySpec) -> None:
        self.spec = spec
        self.layout = SummaryLayout(spec)
        self.source = generate(self.layout)
        self._step = compile_kernel(self.source, "step")
        self._keys = [spec.input.index(key) for key in spec.by]
        self._partials = spec.partials
        self._args = [spec.input.index(arg.column) for arg in self.layout.args]
        lanes = self.layout.group_lanes
        self._fresh = [0] * self.layout.group_width
        if spec.form == "intervals":
            self._fresh[lanes["reach"]] = BEGIN

    def open(self) -> SweepState:
        groups = SweptGroups([self.spec.input[key].type for key in self.spec.by], self._fresh)
        places = Places(self.layout.place_width - FIRST_VALUE)
        return SweepState(groups, [Front(self.layout.row_width)], places, extras_of(self.layout))

    def step(self, state: SweepState, batch: Batch) -> Batch:
        front = state.fronts[0]
        partials = self._partials
        if partials is not None and batch.port != PARTIALS and len(batch):
            # rows may wait for their instant beside partials
            waits = front.waiting is not None or int(batch.time[-1]) >= max(front.upto, batch.upto)
            batch = partials.each(batch) if waits else batch
        front.add(batch)
        ready = front.ready(front.upto)
        time = np.concatenate([batch.time for batch in ready]) if ready else _NO_TIMES
        rows = np.empty((len(time), self.layout.row_width), dtype=np.int64)
        first = 0
        for batch in ready:
            self._fill(state, batch, rows[first : first + len(batch)])
            first += len(batch)
        state.groups.touch(rows[:, SLOT])
        if self.spec.form == "changes":
            return self._changes(state, time, rows)
        front.ends.add(rows[:, END], rows)
        ends, gone = front.ends.take(front.upto)
        state.groups.touch(gone[:, SLOT])
        count = len(time) + len(ends)
        if count:
            state.places.reserve(count)
            self._run(state, (time, rows, ends, gone), count, state.places.lanes, state.places.marks)
        if front.upto == FOREVER:
            state.places.close_all(FOREVER)
        done = state.places.columns()
        zeros = np.zeros(len(done[START]), dtype=np.int64)
        upto = state.places.upto(front.upto)
        out = Batch(self._results(state, done), done[START], zeros, upto, done[PLACE_END])
        state.groups.forget(state.places.first)
        state.extras.forget(self.layout, state)
        return out

    def _changes(self, state: SweepState, time: Ints, rows: Lanes) -> Batch:
        lanes = state.extras.room(2 * len(time), self.layout.place_width)
        marks = np.zeros(2, dtype=np.int64)
        if len(time):
            self._run(state, (time, rows), len(time), lanes, marks)
        done = columns_of(lanes[: int(marks[0])])
        made = with_signs(self._results(state, done), done[PLACE_END], self.spec.output)
        state.groups.forget(0)
        state.extras.forget(self.layout, state)
        return Batch(made, done[START], np.zeros(len(done[START]), dtype=np.int64), state.progress)

    def _fill(self, state: SweepState, batch: Batch, lanes: Lanes) -> None:
        """Write the rows as lanes."""
        rows, ends = (batch.rows, batch.other) if batch.other is not None else apart(batch.rows)
        partials = self._partials
        together = partials is not None and partials.are_in(rows)
        keys = range(len(self._keys)) if together else self._keys
        lanes[:, 0] = state.groups.slots([rows.column(index) for index in keys], len(batch))
        lanes[:, 1] = ends
        if partials is not None:
            texts = {arg.column: state.extras.texts[arg.name] for arg in self.layout.layout.texts}
            records = partials.records_of(rows, texts) if together else partials.records_of_rows(rows, texts)
            lanes[:, self.layout.row_lanes["rows"]] = partials.rows_of(rows) if together else 1
            lanes[:, self.layout.row_lanes["record"] :] = records
            return
        flags = self.layout.row_lanes.get("flags")
        if flags is not None:
            lanes[:, flags] = 0
        for arg, index in zip(self.layout.args, self._args, strict=True):
            arrays = argument_arrays(arg, rows.column(index), state.extras.texts)
            if arg.valued:
                lanes[:, self.layout.row_lanes[arg.name]] = arrays[0].view(np.int64)
            if arg.flagged and flags is not None:
                lanes[:, flags] |= arrays[-1].astype(np.int64) << self.layout.layout.flag_bit(arg)

    def _run(
        self, state: SweepState, events: Sequence[Ints | Lanes], count: int, places: Lanes, marks: Ints
    ) -> None:  # fmt: skip
        extras: Extras = state.extras
        extras.reserve(count * len(self.layout.stairs), 0)
        slots, lanes = state.groups.lanes.reshape(-1), places.reshape(-1)
        touched = np.empty(count, dtype=np.int64)
        step = self._step.form(count)
        done = np.zeros(3, dtype=np.int64)
        while True:
            inputs: list[Ints] = []
            for i in range(0, len(events), 2):
                first = int(done[i // 2])
                flat = as_input(events[i + 1][first:].reshape(-1))
                inputs += [as_input(events[i][first:]), flat, flat.view(np.float64)]
            more: list[Ints] = []
            if len(self.layout.stairs):
                more += [extras.steps, extras.steps.view(np.float64), extras.pool]
            for arg in self.layout.text_extremes:
                table = extras.texts[arg.name]
                more += [as_input(table.start_of), as_input(table.length_of), as_input(table.arena)]
            if extras.tables:
                more += [extras.used, *extras.tables]
            before = done.copy()
            answer = step(
                *inputs, slots, slots.view(np.float64), touched, lanes, lanes.view(np.float64), marks, done, *more
            )
            done[:2] += before[:2]
            if answer != ROOM:
                break
            extras.reserve(0, int(done[2]))
        if answer >= OVERFLOW:
            call = self.spec.calls[answer - OVERFLOW]
            raise DataError(f"sum overflows {call.types[0]}", detail=str(call), hint="cast its argument to DOUBLE")

    def _results(self, state: SweepState, done: Lanes) -> pa.RecordBatch:
        """The rows of groups from the lanes of places."""
        columns = state.groups.columns(done[OWNER])
        nulls = done[FIRST_VALUE]
        none = all_true(len(nulls))
        has_nulls = bool(nulls.any())
        for i, call in enumerate(self.layout.calls):
            values = done[FIRST_VALUE + 1 + i]
            valid = (nulls >> i) & 1 == 0 if has_nulls else none
            if call.type == DOUBLE:
                values = values.view(np.float64)
            texts = state.extras.texts[self.layout.layout.arg(call).name] if call.type.is_coded else None
            columns.append(result_column(call.type, values, valid, texts))
        return pa.RecordBatch.from_arrays(columns, schema=self.spec.made.arrow)

    # -- saving ----------------------------------------------------------------------------------------------------

    def _owned(self, state: SweepState) -> Mapping[str, Lanes]:
        extras: Extras = state.extras
        owned = {}
        for i in range(len(extras.tables)):
            entries = owned[f"table{i}"] = extras.entries(i)
            entries[:, 0] = (entries[:, 0] - 1) // self.layout.group_width
        return {**owned, STEPS: extras.listed(self.layout, state)}

    def _texts(self, state: SweepState) -> Mapping[str, ByteTable]:
        texts: dict[str, ByteTable] = state.extras.texts
        return texts

    def _codes(self, part: str, rows: Lanes, arg: str) -> Codes:
        return codes_in(self.layout, part, rows, arg)

    def _linked(self, state: SweepState, owned: Mapping[str, Lanes]) -> None:
        lanes = state.groups.lanes
        extras: Extras = state.extras
        for i in range(len(extras.tables)):
            entries = owned[f"table{i}"].copy()
            entries[:, 0] = entries[:, 0] * self.layout.group_width + 1
            extras.fill(i, entries)
        for lane in self.layout.stairs:
            lanes[:, lane : lane + 2] = 0
        steps = np.ascontiguousarray(owned[STEPS])
        extras.reserve(len(steps), 0)
        load = _load_steps if self.layout.has_ends else _load_nodes
        load(
            len(steps), lanes.reshape(-1), self.layout.group_width, self.layout.stairs, steps, extras.steps, extras.pool
        )
        if self.spec.form == "intervals":
            held = self.layout.group_lanes["held"]
            lanes[:, held] = 0
            places = state.places.held()
            open_ = np.flatnonzero(places[:, PLACE_END] == OPEN)
            lanes[places[open_, OWNER], held] = state.places.first + open_ + 1
