"""Runs automata: events in order of their ends, all that end at one instant as one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream import limits
from millstream.errors import DataError
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.events import loops
from millstream.kernels.events.asking import Answers, Asking
from millstream.kernels.events.forgetting import forget_codes
from millstream.kernels.events.instances import Instances
from millstream.kernels.events.layout import AutomatonLayout
from millstream.kernels.events.saving import exported, loaded
from millstream.kernels.events.source import AutomatonSource
from millstream.kernels.events.spec import AutomatonSpec
from millstream.kernels.jit import as_input, compile_kernel
from millstream.kernels.keys.words import validity
from millstream.kernels.patterns.coding import decode, encode, is_odd
from millstream.kernels.saving.content import Content
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.runs import in_order
from millstream.types import SqlType

_PORT_BITS = 59
Columns = list[npt.NDArray[Any]]


class AutomatonKernel:
    """Runs an AutomatonSpec."""

    def __init__(self, spec: AutomatonSpec) -> None:
        self.spec = spec
        self.layout = AutomatonLayout(spec)
        self._source = AutomatonSource(self.layout)
        self._run = compile_kernel(self._source.source, "run")
        asked = self._source.expressions.asked
        self._asking = Asking(asked) if asked else None
        self._look = compile_kernel(self._source.source, "look")
        self._bounds = np.array([-1 if bound is None else bound for bound in spec.bounds], dtype=np.int64)

    def open(self) -> Instances:
        return Instances(self.layout.code_words, self.layout.width, len(self.spec.inputs))

    def step(self, state: Instances, batch: Batch) -> Batch:
        port = batch.port
        # Rows come in order, so the last one tells how far its input is even if the promise lags behind.
        state.upto[port] = max(state.upto[port], batch.upto, int(batch.time[-1]) if len(batch) else BEGIN)
        upto = min(state.upto)
        events = self._events(state, batch)
        out = self._found(state, events, upto) if any(map(len, events)) else None
        state.commit(upto)
        state.sweep(self._bounds, upto)
        forget_codes(self.layout, state)
        return Batch.empty(self.spec.output.arrow, upto) if out is None else out

    def export(self, state: Instances) -> Content:
        return exported(self.layout, state)

    def load(self, parts: Saved) -> Instances:
        return loaded(self.layout, self.open(), parts)

    def is_ahead(self, state: Instances, ports: Collection[int]) -> bool:
        """Whether events of these inputs wait that may follow first events which are still to come."""
        first = min(state.upto[port] for port in self.spec.first_ports)
        return any(state.waiting[port].latest > first for port in ports)

    # -- events ----------------------------------------------------------------------------------------------------

    def _events(self, state: Instances, batch: Batch) -> list[Batch]:
        """The events of each stream that no event can come before any more: those of earlier streams come first."""
        if len(state.upto) == 1:
            return [batch]
        state.waiting[batch.port].add(batch)
        found = []
        for port, waiting in enumerate(state.waiting):
            limit = min(min(state.upto[:port], default=FOREVER + 1) - 1, min(state.upto[port + 1 :], default=FOREVER))
            pieces = waiting.release(limit) if limit >= BEGIN else []
            empty = Batch.empty(self.spec.inputs[port].arrow, BEGIN, port)
            found.append(in_order(pieces) if pieces else empty)
        return found

    def _found(self, state: Instances, events: list[Batch], upto: int) -> Batch:
        """Take events in, and give out what automata found."""
        ports, places, starts, ends, seq = _together(events)
        columns = [array for port, batch in enumerate(events) for array in self._columns(state, port, batch)]
        taken = (upto, ports, places, starts, ends, *columns)
        constants = self._constants(state)
        state.hold(state.codes.size)
        out = np.zeros((max(64, len(ends) // 8), self.layout.output_width), dtype=np.int64)
        state.meta[loops.OUT] = 0
        at, stop = 0, len(ends)
        run = self._run.form(stop)
        answers = None if self._asking is None else Answers(self._asking, state.codes)
        try:
            while at < stop:
                given = (
                    *taken,
                    state.rows, state.rows.view(np.float64), state.halves, state.code_words, state.numbers,
                    state.lists, state.meta, state.marked,
                    out, out.view(np.float64), *constants,
                )  # fmt: skip
                at = run(at, stop, *given, *(answers.arrays if answers else ()))
                if at == stop:
                    break
                if answers is not None and answers.are_wanted:
                    answers.give(self._look.form(0), given, at, stop)
                    # answers may be new texts
                    constants = self._constants(state)
                    continue
                out = _make_room(state, out)
        except OverflowError as error:
            raise DataError("a number is too large", detail=str(error)) from error
        return self._results(state, events, out[: int(state.meta[loops.OUT])], (places, ends, seq), upto)

    def _constants(self, state: Instances) -> tuple[Any, ...]:
        arrays: tuple[Any, ...] = self._source.expressions.constants.arrays(state.codes.of_texts)
        if self.layout.compares_texts:
            arrays = (*arrays, *map(as_input, state.codes.texts.arrays))
        return arrays

    def _columns(self, state: Instances, port: int, batch: Batch) -> Columns:
        arrays: Columns = []
        schema = self.spec.inputs[port]
        for name in self.layout.looked_at[port]:
            type_ = schema[name].type
            table = state.codes.table(type_) if is_odd(type_) else None
            values, ok = encode(batch.rows.column(schema.index(name)), type_, state.codes.texts, table)
            arrays += [as_input(values), as_input(ok)]
        for name in self.layout.coded[port]:
            column = batch.rows.column(schema.index(name))
            codes = state.codes.table(schema[name].type).encode([column]).astype(np.int64)
            mask = validity(column)
            arrays.append(as_input(codes if mask is None else np.where(mask, codes, -1)))
        return arrays

    # -- results ---------------------------------------------------------------------------------------------------

    def _results(
        self, state: Instances, events: list[Batch], out: Ints, of: tuple[Ints, Ints, Ints], upto: int
    ) -> Batch:
        places, ends, seq = of
        event = out[:, 0]
        reals = out.view(np.float64)
        rows: pa.Array | None = None
        columns = []
        for place, column in enumerate(self.layout.outputs):
            if column.event is not None:
                port = self.layout.ends[0].port
                rows = pa.array(places[event] if len(events) > 1 else event) if rows is None else rows
                given = events[port].rows
                columns.append(given.column(self.spec.inputs[port].index(column.event)).take(rows))
                continue
            assert column.word is not None
            word, bit = self.layout.output_null(place)
            ok = (out[:, word] >> bit) & 1 == 0
            values = as_values(out, reals, column.word, column.field.type)
            table = state.codes.table(column.field.type) if is_odd(column.field.type) else None
            columns.append(decode(values, ok, column.field.type, state.codes.texts, table))
        made = pa.RecordBatch.from_arrays(columns, schema=self.spec.output.arrow)
        return Batch(made, ends[event], seq[event], upto, out[:, 1].copy())


def _make_room(state: Instances, out: Ints) -> Ints:
    """Room for what may come of the event at which a loop stopped."""
    limits.check_made(int(state.meta[loops.OUT]))
    state.make_room(int(state.meta[loops.NEED_ROWS]), int(state.meta[loops.NEED_MARKS]))
    wanted = int(state.meta[loops.OUT] + state.meta[loops.NEED_OUT])
    if wanted <= len(out):
        return out
    more = np.zeros((max(wanted, 2 * len(out)), out.shape[1]), dtype=np.int64)
    more[: len(out)] = out
    return more


def as_values(words: Ints, reals: npt.NDArray[np.float64], word: int, type_: SqlType) -> npt.NDArray[Any]:
    """A column of rows of words."""
    if type_.kernel == "float64":
        return np.ascontiguousarray(reals[:, word])
    values = np.ascontiguousarray(words[:, word])
    return values != 0 if type_.kernel == "bool" else values


_NONE = as_input(np.zeros(0, dtype=np.int64))


def _together(events: list[Batch]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Of all events in order of time, then of streams: their streams, places there, starts, ends and numbers."""
    if len(events) == 1:
        only = events[0]
        starts = only.time if only.other is None else only.other
        return _NONE, _NONE, as_input(starts), as_input(only.time), only.seq
    time = np.concatenate([batch.time for batch in events])
    order = np.argsort(time, kind="stable")
    ports = np.repeat(np.arange(len(events)), [len(batch) for batch in events])[order]
    places = np.concatenate([np.arange(len(batch)) for batch in events])[order]
    starts = np.concatenate([batch.time if batch.other is None else batch.other for batch in events])[order]
    seq = np.concatenate([batch.seq | (port << _PORT_BITS) for port, batch in enumerate(events)])[order]
    return as_input(ports), as_input(places), as_input(starts), as_input(time[order]), seq
