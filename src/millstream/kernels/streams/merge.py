"""Several ordered streams as one: UNION ALL."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.one_input import KeepsColumns, Unkeyed
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, Ledger
from millstream.kernels.saving.snapshots import Saved
from millstream.kernels.streams.runs import Runs, in_order
from millstream.plan.nodes import MOST_INPUTS
from millstream.records import dataclass
from millstream.schema import Schema

_PORT_BITS = 59


@register
@dataclass(frozen=True)
class MergeSpec(Unkeyed, KeepsColumns):
    """The rows of `ports` ordered inputs in order of time, then of port, then of their own order; a row leaves once no
    input can bring one that comes before it."""

    by_instant = True

    ports: int

    def __post_init__(self) -> None:
        if not 1 <= self.ports <= MOST_INPUTS:
            raise ValueError(f"{self.ports} inputs to merge: 1 to {MOST_INPUTS} are possible")

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input,) * self.ports

    def build(self) -> MergeKernel:
        return MergeKernel(self)

    def describe(self) -> str:
        return f"merge {self.ports} inputs in order of time"


@dataclass
class MergeState:
    waiting: list[Runs]
    upto: list[int]
    ledger: Ledger = field(default_factory=Ledger)


class MergeKernel:
    """Runs a MergeSpec."""

    def __init__(self, spec: MergeSpec) -> None:
        self.spec = spec

    def open(self) -> MergeState:
        return MergeState([Runs() for _ in range(self.spec.ports)], [BEGIN] * self.spec.ports)

    def step(self, state: MergeState, batch: Batch) -> Batch:
        port = batch.port
        # Rows come in order, so the last one tells how far its input is even if the promise lags behind.
        state.upto[port] = max(state.upto[port], batch.upto, int(batch.time[-1]) if len(batch) else BEGIN)
        state.waiting[port].add(self._tagged(batch))
        pieces = [
            piece
            for number, waiting in enumerate(state.waiting)
            for piece in self._leaving(waiting, state.upto, number)
        ]
        upto = min(state.upto)
        if not pieces:
            return Batch.empty(self.spec.input.arrow, upto)
        return replace(in_order(pieces), upto=upto, port=0)

    def export(self, state: MergeState) -> Content:
        return {
            "upto": np.array(state.upto),
            **{f"waiting{port}": waiting.kept() for port, waiting in enumerate(state.waiting)},
        }

    def load(self, parts: Saved) -> MergeState:
        state = self.open()
        state.upto = [int(value) for value in parts.array("upto")]
        for port, waiting in enumerate(state.waiting):
            if (name := f"waiting{port}") in parts:
                waiting.add(parts.batch(name, BEGIN, port), parts.numbers(name))
        return state

    def _tagged(self, batch: Batch) -> Batch:
        """The rows with their port in the number, so that ties stay in the order of ports after an exchange."""
        rows = batch.rows
        if rows.schema != self.spec.input.arrow:
            rows = pa.RecordBatch.from_arrays(rows.columns, schema=self.spec.input.arrow)
        return replace(batch, rows=rows, seq=batch.seq | (batch.port << _PORT_BITS) if batch.port else batch.seq)

    def _leaving(self, waiting: Runs, upto: list[int], port: int) -> list[Batch]:
        """The rows of a port that may leave: earlier ports must be past their time, later ones at it."""
        limit = min(min(upto[:port], default=FOREVER + 1) - 1, min(upto[port + 1 :], default=FOREVER))
        return waiting.release(limit) if limit >= BEGIN else []
