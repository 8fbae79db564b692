"""DISTINCT, EXCEPT and INTERSECT of relations: at each instant, what SQL makes of the rows that are valid then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.one_input import ByRow, KeepsColumns
from millstream.kernels.registry import register
from millstream.kernels.relations import bag_loops
from millstream.kernels.relations.back import Lanes, Places
from millstream.kernels.relations.bag_loops import DISTINCT, EXCEPT, FIRST, HAVE, INTERSECT, LAST, UNTIL
from millstream.kernels.relations.front import ROW_LANES, Front
from millstream.kernels.relations.groups import SweptGroups
from millstream.kernels.relations.place_loops import END, OWNER, START
from millstream.kernels.relations.signs import apart, signed, with_signs
from millstream.kernels.relations.sweeping import Sweep, SweepState
from millstream.plan.relations import Form
from millstream.records import dataclass
from millstream.schema import Schema

_source = source_of(bag_loops)
_sweep_intervals = compile_kernel(_source, "sweep_intervals")
_sweep_changes = compile_kernel(_source, "sweep_changes")
_sweep_to_intervals = compile_kernel(_source, "sweep_to_intervals")
_relink = compile_kernel(_source, "relink")

_OPS = {"distinct": DISTINCT, "except": EXCEPT, "intersect": INTERSECT}
_WIDTH = HAVE + 1
_FRESH = [BEGIN if lane in (UNTIL, bag_loops.LEFT_REACH, bag_loops.RIGHT_REACH) else 0 for lane in range(_WIDTH)]


@register
@dataclass(frozen=True)
class BagSpec(ByRow):
    """Rows by how often each is in the inputs at an instant; NULL equals NULL. With `all`, copies count: EXCEPT takes
    as many away as there are on the right, INTERSECT keeps as many as both have."""

    by_instant = True

    input: Schema
    ports: int
    op: Literal["distinct", "except", "intersect"]
    all: bool = False
    form: Form = "intervals"

    def __post_init__(self) -> None:
        if self.ports != (1 if self.op == "distinct" else 2) or (self.all and self.op == "distinct"):
            raise ValueError(f"{self.op} of {self.ports} inputs")

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.output,) * self.ports

    @property
    def output(self) -> Schema:
        return signed(self.input) if self.form == "changes" else self.input

    def build(self) -> BagKernel:
        return BagKernel(self)

    def describe(self) -> str:
        return f"{self.op}{' all' if self.all else ''} at each instant{_as_changes(self.form)}"


@register
@dataclass(frozen=True)
class ToIntervalsSpec(ByRow, KeepsColumns):
    """Changes as rows with their validity: of equal rows the one that came first goes first."""

    by_instant = True

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (signed(self.input),)

    def build(self) -> ToIntervalsKernel:
        return ToIntervalsKernel(self)

    def describe(self) -> str:
        return "changes to rows with validity"


class _RowSweep(Sweep):
    """What sweeps over rows as a whole have in common."""

    spec: BagSpec | ToIntervalsSpec
    ports: int
    _has_links = True

    def open(self) -> SweepState:
        groups = SweptGroups([field.type for field in self.spec.input], _FRESH)
        return SweepState(groups, [Front() for _ in range(self.ports)], Places())

    def _linked(self, state: SweepState, owned: Mapping[str, Lanes]) -> None:
        if self._has_places:
            self._link(state)

    def _link(self, state: SweepState) -> None:
        """Let groups know their open places, which are all there is."""
        lanes = state.groups.lanes
        lanes[:, FIRST] = lanes[:, LAST] = lanes[:, HAVE] = 0
        _relink(len(state.places), lanes, state.places.lanes, state.places.marks)

    @property
    def _has_places(self) -> bool:
        return True

    def _rows(self, state: SweepState, batches: Sequence[Batch]) -> tuple[Ints, Lanes]:
        """The times of rows, and the rows as lanes."""
        if not batches:
            return _NO_TIMES, _NO_ROWS
        lanes = np.empty((sum(map(len, batches)), ROW_LANES), dtype=np.int64)
        first = 0
        for batch in batches:
            rows, ends = (batch.rows, batch.other) if batch.other is not None else apart(batch.rows)
            own = lanes[first : first + len(batch)]
            own[:, 0] = state.groups.slots(rows.columns, len(batch))
            own[:, 1] = ends
            first += len(batch)
        state.groups.touch(lanes[:, 0])
        return np.concatenate([batch.time for batch in batches]), lanes

    def _released(self, state: SweepState) -> Batch:
        """The output that may leave."""
        progress = state.progress
        if progress == FOREVER:
            state.places.close_all(FOREVER)
        done = state.places.columns()
        rows = self._columns(state, done[OWNER])
        zeros = np.zeros(len(done[START]), dtype=np.int64)
        batch = Batch(rows, done[START], zeros, state.places.upto(progress), done[END])
        state.groups.forget(state.places.first)
        return batch

    def _columns(self, state: SweepState, slots: Ints) -> pa.RecordBatch:
        columns = state.groups.columns(slots)
        return pa.RecordBatch.from_arrays(columns, schema=self.spec.input.arrow)


_NO_TIMES = np.empty(0, dtype=np.int64)
_NO_ROWS = np.empty((0, ROW_LANES), dtype=np.int64)


class BagKernel(_RowSweep):
    """Runs a BagSpec."""

    def __init__(self, spec: BagSpec) -> None:
        self.spec: BagSpec = spec
        self.ports = spec.ports

    @property
    def _has_places(self) -> bool:
        return self.spec.form == "intervals"

    def step(self, state: SweepState, batch: Batch) -> Batch:
        state.fronts[batch.port].add(batch)
        progress = state.progress
        events: list[Ints | Lanes] = []
        count = 0
        for front in state.fronts:
            time, rows = self._rows(state, front.ready(progress))
            events += [time, rows]
            count += len(time)
            if self.spec.form == "intervals":
                front.ends.add(rows[:, 1], rows)
                ends, gone = front.ends.take(progress)
                state.groups.touch(gone[:, 0])
                events += [ends, gone]
                count += len(ends)
        if self.spec.ports == 1:
            events += [_NO_TIMES, _NO_ROWS] * (2 if self.spec.form == "intervals" else 1)
        how = (_OPS[self.spec.op], self.spec.all)
        touched = np.empty(count, dtype=np.int64)
        if self.spec.form == "changes":
            return self._changes(state, how, events, touched)
        if count:
            state.places.reserve(count)
            lanes, marks = state.places.lanes, state.places.marks
            _sweep_intervals(count, *how, *map(as_input, events), state.groups.lanes, touched, lanes, marks)
        return self._released(state)

    def _changes(
        self, state: SweepState, how: tuple[int, bool], events: list[Ints | Lanes], touched: Ints
    ) -> Batch:  # fmt: skip
        out = np.empty((len(touched), 3), dtype=np.int64)
        count = 0
        if len(touched):
            count = int(_sweep_changes(len(touched), *how, *map(as_input, events), state.groups.lanes, touched, out))
        rows = self._columns(state, np.ascontiguousarray(out[:count, 0]))
        made = with_signs(rows, out[:count, 1], self.spec.output)
        time = np.ascontiguousarray(out[:count, 2])
        state.groups.forget(0)
        return Batch(made, time, np.zeros(count, dtype=np.int64), state.progress)


class ToIntervalsKernel(_RowSweep):
    """Runs a ToIntervalsSpec."""

    def __init__(self, spec: ToIntervalsSpec) -> None:
        self.spec: ToIntervalsSpec = spec
        self.ports = 1

    def step(self, state: SweepState, batch: Batch) -> Batch:
        state.fronts[0].add(batch)
        ready = state.fronts[0].ready(state.progress)
        if ready:
            time, rows = self._rows(state, ready)
            state.places.reserve(len(time))
            touched = np.empty(len(time), dtype=np.int64)
            lanes, marks = state.places.lanes, state.places.marks
            _sweep_to_intervals(len(time), as_input(time), as_input(rows), state.groups.lanes, touched, lanes, marks)
        return self._released(state)


def _as_changes(form: Form) -> str:
    return " (as changes)" if form == "changes" else ""
