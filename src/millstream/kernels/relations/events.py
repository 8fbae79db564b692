"""The ways out of relations: rows as they come to be valid, as they cease to be, or at every instant."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.contract import Kernel
from millstream.kernels.jit import as_input, compile_kernel, source_of
from millstream.kernels.keys import KeyTable
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.registry import register
from millstream.kernels.relations import events_loops
from millstream.kernels.relations.signs import apart, signed
from millstream.kernels.relations.stages import ends_of
from millstream.kernels.relations.unroll import UnrollKernel, events
from millstream.kernels.relations.waiting import WaitingRows, WaitingState
from millstream.kernels.streams.runs import in_order
from millstream.plan.relations import Form
from millstream.records import dataclass
from millstream.schema import Schema

_net_changes = compile_kernel(source_of(events_loops), "net_changes")


@register
@dataclass(frozen=True)
class ToEventsSpec(KeepsColumns):
    """A relation of these columns as events, each at an instant t that is over.

    istream: what the snapshot at t has more than the one before it, as bags; dstream: what it has less; rstream: the
    snapshot itself, at multiples of `granule`. So a row that begins where an equal one ends is no event. What stays to
    the end of all input does not cease; rstream tells of it until the last instant at which anything changes.
    """

    how: Literal["istream", "dstream", "rstream"]
    granule: int = 1
    form: Form = "intervals"

    def __post_init__(self) -> None:
        if self.how == "rstream" and self.form == "changes":
            raise ValueError("rstream takes intervals")
        if self.granule < 1:
            raise ValueError("a granule is positive")

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input if self.form == "intervals" else signed(self.input),)

    @property
    def keys(self) -> tuple[str, ...]:
        # Only all rows together tell the last instant at which anything changes.
        return () if self.how == "rstream" else self.input.names

    def build(self) -> Kernel:
        return UnrollKernel(self, self.granule, None) if self.how == "rstream" else ToEventsKernel(self)

    def describe(self) -> str:
        every = f" every {self.granule}" if self.how == "rstream" and self.granule > 1 else ""
        return f"{self.how}{every}{' of changes' if self.form == 'changes' else ''}"


class ToEventsKernel(WaitingRows):
    """Runs a ToEventsSpec for istream and dstream: changes wait until their instant is over, with their signs in place
    of the other end."""

    def __init__(self, spec: ToEventsSpec) -> None:
        super().__init__(spec)
        self.spec = spec
        self._types = [field.type for field in spec.input]
        self._sign = 1 if spec.how == "istream" else -1

    def step(self, state: WaitingState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        for piece in self._changes(batch):
            state.waiting.add(piece)
        over = state.waiting.release(state.upto - 1) if state.upto > BEGIN else []
        if not over:
            return Batch.empty(self.spec.output.arrow, state.upto)
        return self._net(in_order(over), state.upto)

    def _changes(self, batch: Batch) -> list[Batch]:
        """The changes that a batch tells of, those at its rows' starts and at their ends."""
        if not len(batch):
            return []
        zeros = np.zeros(len(batch), dtype=np.int64)
        if self.spec.form == "changes":
            rows, signs = apart(batch.rows)
            return [replace(batch, rows=rows, seq=zeros, other=signs)]
        ends = ends_of(batch)
        comes = replace(batch, seq=zeros, other=zeros + 1)
        goes = replace(batch, time=ends, seq=zeros, other=zeros - 1)
        return [comes, goes if not (ends == FOREVER).any() else goes.take(np.flatnonzero(ends != FOREVER))]

    def _net(self, changes: Batch, upto: int) -> Batch:
        """What remains of the changes of each instant and value, as events."""
        assert changes.other is not None
        size = len(changes)
        values, different = np.zeros(size, dtype=np.int64), 1
        if self._types:
            table = KeyTable(self._types)
            values, different = table.encode(changes.rows.columns).astype(np.int64), table.size
        net, touched, rows, copies = (np.zeros(length, dtype=np.int64) for length in (different, size, size, size))
        where = np.full(different, -1, dtype=np.int64)
        inputs = (as_input(array) for array in (values, changes.time, changes.other))
        given = int(_net_changes(size, *inputs, self._sign, net, where, touched, rows, copies))
        which = np.repeat(rows[:given], copies[:given])
        return events(changes.rows, which, changes.time[which], upto)
