"""LATENESS: rows on time and rows that are late by at most some length, as one ordered stream that is delayed by it."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.one_input import KeepsColumns, Unkeyed
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, Ledger
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.runs import Runs, in_order
from millstream.plan.lengths import length_told
from millstream.records import dataclass
from millstream.schema import Schema


@register
@dataclass(frozen=True)
class LatenessSpec(Unkeyed, KeepsColumns):
    """Input 0 has rows at their times, input 1 late ones at the times that had been reached when they came; the column
    `time` has the times of both. A late row is taken if it is at most `length` below what had been reached."""

    column: str
    length: int

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input, self.input)

    def build(self) -> LatenessKernel:
        return LatenessKernel(self)

    def describe(self) -> str:
        return f"with rows that are late by up to {length_told(self.length)}"


@dataclass
class LatenessState:
    """The rows that wait, and how far each input has come."""

    waiting: Runs = field(default_factory=Runs)
    upto: Ints = field(default_factory=lambda: np.full(2, BEGIN))
    ledger: Ledger = field(default_factory=Ledger)


class LatenessKernel:
    """Runs a LatenessSpec."""

    def __init__(self, spec: LatenessSpec) -> None:
        self.spec = spec
        self._time = spec.input.index(spec.column)

    def open(self) -> LatenessState:
        return LatenessState()

    def step(self, state: LatenessState, batch: Batch) -> Batch:
        state.upto[batch.port] = max(int(state.upto[batch.port]), batch.upto)
        length = self.spec.length
        if batch.port and len(batch):
            own = _micros(batch.rows.column(self._time))
            batch = replace(batch, time=own).take(
                np.flatnonzero(own >= np.maximum(batch.time, BEGIN + length) - length)
            )
        state.waiting.add(replace(batch, port=0, upto=BEGIN))
        upto = int(state.upto.min())
        if upto < FOREVER:
            upto = max(upto, BEGIN + length) - length
        pieces = state.waiting.release(upto - 1)
        if not pieces:
            return Batch.empty(self.spec.output.arrow, upto)
        given = in_order(pieces)
        return given.take(np.lexsort((given.seq, given.time))).with_upto(upto)

    def export(self, state: LatenessState) -> Content:
        return {"upto": state.upto, "waiting": state.waiting.kept()}

    def load(self, parts: Saved) -> LatenessState:
        state = LatenessState(upto=parts.array("upto").copy())
        if "waiting" in parts:
            state.waiting.add(parts.batch("waiting", BEGIN), parts.numbers("waiting"))
        return state


def _micros(column: pa.Array) -> Ints:
    """The times of a column, as kernels know them."""
    if not pa.types.is_integer(column.type):
        column = column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).view(pa.int64())
    times: Ints = np.asarray(column.cast(pa.int64()))
    return times
