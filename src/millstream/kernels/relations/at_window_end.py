"""Rows of window tables that wait for the end of their window."""

from __future__ import annotations

import numpy as np

from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.registry import register
from millstream.kernels.relations.waiting import WaitingRows, WaitingState
from millstream.kernels.streams.runs import in_order
from millstream.records import dataclass
from millstream.types import to_kernel


@register
@dataclass(frozen=True)
class AtWindowEndSpec(KeepsColumns):
    """Rows of windows that end at the value of `end`, as a relation: each is valid for the last instant of its window,
    or for the one `after` it."""

    end: str
    after: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        # Rows have nothing to do with each other; those of a window leave together.
        return (self.end,)

    def build(self) -> AtWindowEndKernel:
        return AtWindowEndKernel(self)

    def describe(self) -> str:
        return f"rows {'after' if self.after else 'at'} {self.end}"


class AtWindowEndKernel(WaitingRows):
    """Runs an AtWindowEndSpec: rows wait for the instant at which they will be valid."""

    def __init__(self, spec: AtWindowEndSpec) -> None:
        super().__init__(spec)
        self.spec = spec
        self._column = spec.input.index(spec.end)

    def step(self, state: WaitingState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto)
        if len(batch):
            ends = to_kernel(batch.rows.column(self._column), self.spec.input[self.spec.end].type)
            start = ends if self.spec.after else ends - 1
            state.waiting.add(Batch(batch.rows, start, np.zeros(len(batch), dtype=np.int64), BEGIN, start + 1))
        # A row that is to come is of a window that ends after its own time.
        upto = state.upto + 1 if self.spec.after and BEGIN < state.upto < FOREVER else state.upto
        over = state.waiting.release(upto)
        return in_order(over).with_upto(upto) if over else Batch.empty(self.spec.output.arrow, upto)
