"""Aggregates over the rows before each row: the OVER kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.accumulators.columns import Array, argument_arrays, result_arrays, result_column
from millstream.kernels.accumulators.places import is_code
from millstream.kernels.batch import Batch, concat
from millstream.kernels.jit import as_input, compile_kernel, run_all, source_of, threads
from millstream.kernels.keys import ByteTable, Slots
from millstream.kernels.over import loops
from millstream.kernels.over.codegen import (
    ADDED,
    CELLS_NEEDED,
    DONE,
    FIRST,
    LAST,
    OVERFLOW,
    TABLE_NEEDED,
    WANTED,
    generate,
)
from millstream.kernels.over.layout import OverLayout
from millstream.kernels.over.saving import exported, loaded
from millstream.kernels.over.spec import OverSpec
from millstream.kernels.over.state import OverState, Shard, new_state
from millstream.kernels.over.sweep import sweep
from millstream.kernels.own_lengths import own_lengths
from millstream.kernels.saving.content import Content
from millstream.kernels.saving.snapshots import Saved
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import RANKS

_deal = compile_kernel(source_of(loops), "deal")
_PARALLEL_ROWS = 8_192
_NEVER_NULL = RANKS | {"count"}


class OverKernel:
    """Runs an OverSpec; the loop over rows is generated for its frames and calls."""

    def __init__(self, spec: OverSpec) -> None:
        self.spec = spec
        self.layout = OverLayout(spec)
        self.source = generate(self.layout)
        self._step = compile_kernel(self.source, "step")
        frames = [named.frame for named in self.layout.frames]
        widths = [frame.start or 0 for frame in frames] + [frame.end for frame in frames]
        self._widths = as_input(np.array([*widths, *self.layout.numbers], dtype=np.int64))
        self._own = [frame.own for frame in frames if frame.own is not None]
        self._shape = as_input(np.array(self.layout.shape))
        self._keys = [spec.input.index(key) for key in spec.keys]
        self._args = [spec.input.index(arg.column) for arg in self.layout.args]

    def open(self) -> OverState:
        return new_state(self.layout, threads())

    def step(self, state: OverState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        if self.spec.waits:
            batch = self._ready(state, batch)
        columns = self._results(state, batch)
        sweep(self.layout, state)
        return batch.with_rows(
            pa.RecordBatch.from_arrays([*batch.rows.columns, *columns], schema=self.spec.output.arrow)
        )

    def export(self, state: OverState) -> Content:
        return exported(self.layout, state)

    def load(self, parts: Saved) -> OverState:
        return loaded(self.layout, parts, threads())

    def _ready(self, state: OverState, batch: Batch) -> Batch:
        """The rows whose peers have all come; the others wait."""
        pending = state.pending
        if pending is not None:
            batch = concat([pending, batch], batch.upto) if len(batch) else replace(pending, upto=batch.upto)
        ready = int(np.searchsorted(batch.time, batch.upto))
        if ready == len(batch):
            state.pending = None
        elif ready:
            # A copy: a few rows that wait must not keep a large batch in memory.
            state.pending = batch.take(np.arange(ready, len(batch)))
        elif pending is None or len(pending) < len(batch):
            state.pending = batch
        return batch.slice(0, ready)

    def _results(self, state: OverState, batch: Batch) -> list[pa.Array]:
        rows = len(batch)
        results = [result_arrays(call.type, rows, call.fn not in _NEVER_NULL) for call in self.spec.calls]
        if rows:
            slots = self._slots(state, batch)
            inputs = [self._widths, as_input(batch.time)]
            for length in self._own:
                inputs.append(as_input(own_lengths(batch.rows, self.spec.input, length)))
                state.longest = max(state.longest, int(inputs[-1].max()))
            for arg, index in zip(self.layout.args, self._args, strict=True):
                inputs += argument_arrays(arg, batch.rows.column(index), state.texts)
            outputs = [array for pair in results for array in pair]
            self._run(state, slots, inputs, outputs)
            state.ledger.touch(slots, state.slot_count)
        return [
            result_column(call.type, values, ok, self._texts(state, call))
            for call, (values, ok) in zip(self.spec.calls, results, strict=True)
        ]

    def _texts(self, state: OverState, call: AggregateCall[str]) -> ByteTable | None:
        return state.texts[self.layout.arg(call).name] if is_code(call.type) else None

    def _slots(self, state: OverState, batch: Batch) -> Slots:
        if state.keys is None:
            state.shards[0].hold(1)
            return np.zeros(len(batch), dtype=np.int32)
        slots = state.keys.encode([batch.rows.column(index) for index in self._keys])
        for shard in state.shards:
            shard.hold(-(-state.keys.size // len(state.shards)))
        return slots

    def _run(self, state: OverState, slots: Slots, inputs: list[Array], outputs: list[Array]) -> None:
        rows = len(slots)
        step = self._step.form(rows)
        deal = _deal.form(rows)

        def run(number: int) -> int:
            shard = state.shards[number]
            own, at = shard.scratch(rows)
            count = deal(slots, len(state.shards), state.shift, number, shard.width, own, at)
            if count == 0:
                return DONE
            shard.state[FIRST], shard.state[ADDED], shard.state[LAST] = 0, 0, count
            return self._run_shard(step, shard, own, at, inputs, outputs)

        tasks = [partial(run, number) for number in range(len(state.shards))]
        answers = run_all(tasks) if rows >= _PARALLEL_ROWS else [task() for task in tasks]
        for answer in answers:
            if answer != DONE:
                call = self.spec.calls[answer - OVERFLOW]
                raise DataError(f"sum overflows {call.type}", detail=str(call), hint="cast its argument to DOUBLE")

    def _run_shard(
        self, step: Any, shard: Shard, own: Array, at: Array, inputs: list[Array], outputs: list[Array]
    ) -> int:
        while True:
            ring = (shard.cells, shard.cells.view(np.float64), shard.regions, self._shape) if self.layout.logged else ()
            answer = int(
                step(
                    own, at, shard.state, *inputs, shard.slots, shard.slots.view(np.float64), *ring,
                    *shard.tables, *outputs,
                )
            )  # fmt: skip
            if answer == CELLS_NEEDED:
                shard.more_cells(int(shard.state[WANTED]))
            elif TABLE_NEEDED <= answer < OVERFLOW:
                shard.more_table(answer - TABLE_NEEDED)
            else:
                return answer
