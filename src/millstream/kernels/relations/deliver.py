"""Changes as rows with their validity, each as soon as its end is known: what a query delivers when some of its rows
may stay for ever, so that none need wait for them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from millstream.kernels.batch import FOREVER, Batch, Ints
from millstream.kernels.one_input import ByRow
from millstream.kernels.registry import register
from millstream.kernels.relations.back import Places
from millstream.kernels.relations.bags import ToIntervalsKernel, ToIntervalsSpec
from millstream.kernels.relations.groups import DIED
from millstream.kernels.relations.place_loops import END, OPEN, OWNER, START
from millstream.kernels.relations.signs import signed
from millstream.kernels.relations.stages import ValidityStage
from millstream.kernels.relations.sweeping import SweepState
from millstream.kernels.relations.unroll import events
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import SqlType

_FEW = 1_024


@register
@dataclass(frozen=True)
class DeliverSpec(ByRow):
    """Changes as events at the end of each row's validity, with both ends as columns; what is valid when all input ends
    comes last, its end NULL."""

    by_instant = True

    input: Schema
    output: Schema
    type: SqlType

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (signed(self.input),)

    @cached_property
    def stage(self) -> ValidityStage:
        return ValidityStage(self.input, self.output, self.type)

    def state_signature(self) -> object:
        return self.input

    def build(self) -> DeliverKernel:
        return DeliverKernel(self)

    def describe(self) -> str:
        return "validity as columns, once it has ended"


class DeliverKernel(ToIntervalsKernel):
    """Runs a DeliverSpec: places are taken as rows begin and given up as they end, in any order."""

    def __init__(self, spec: DeliverSpec) -> None:
        super().__init__(ToIntervalsSpec(spec.input))
        self.delivery = spec

    def _released(self, state: SweepState) -> Batch:
        progress = state.progress
        held = state.places.held()
        is_open = held[:, END] == OPEN
        ended = np.flatnonzero(~is_open & (held[:, END] > held[:, START]))
        done = held[ended]
        held[ended, END] = held[ended, START]
        time = done[:, END]
        if progress == FOREVER:
            staying = held[is_open].copy()
            staying[:, END] = FOREVER
            held[is_open, END] = held[is_open, START]
            is_open[:] = False
            done = np.concatenate([done, staying])
            time = np.concatenate([time, np.full(len(staying), FOREVER - 1)])
        batch = self._batch(state, done, time, progress)
        self._compact(state, int(is_open.sum()))
        state.groups.forget(state.places.first)
        return batch

    def _batch(self, state: SweepState, done: Ints, time: Ints, upto: int) -> Batch:
        zeros = np.zeros(len(done), dtype=np.int64)
        start, end = (np.ascontiguousarray(done[:, lane]) for lane in (START, END))
        rows = self._columns(state, np.ascontiguousarray(done[:, OWNER]))
        made = self.delivery.stage.step(Batch(rows, start, zeros, upto, end))
        return events(made.rows, np.arange(len(done)), np.ascontiguousarray(time), upto)

    def _compact(self, state: SweepState, live: int) -> None:
        """Places that were given up behind an open one are taken out when they are more than those in use."""
        held = state.places.held()
        if len(held) < 2 * live + _FEW:
            return
        kept = held[held[:, END] == OPEN].copy()
        state.places = Places()
        state.places.load(kept)
        state.groups.lanes[:, DIED] = 0
        state.groups.touch(state.groups.live())
        self._link(state)
