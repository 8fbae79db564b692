"""Rows with validity as changes: each comes at its start and goes at its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.contract import KernelSpec
from millstream.kernels.one_input import ByKeys, OneInput
from millstream.kernels.registry import register
from millstream.kernels.relations.signs import signed, with_signs
from millstream.kernels.relations.waiting import WaitingRows, WaitingState
from millstream.kernels.streams.runs import in_order
from millstream.records import dataclass
from millstream.schema import Schema


@dataclass(frozen=True)
class MakesChanges(OneInput):
    """Gives out changes of the rows that it takes."""

    @property
    def output(self) -> Schema:
        return signed(self.input)


class ChangesKernel(WaitingRows):
    """A kernel that gives rows out twice, +1 as they come and -1 as they go; in between they wait for their ends."""

    def __init__(self, spec: KernelSpec) -> None:
        super().__init__(spec)
        self._changes = spec.output

    def signed(self, batch: Batch, sign: int) -> Batch:
        """The rows as changes that all have this sign."""
        return batch.with_rows(with_signs(batch.rows, np.full(len(batch), sign), self._changes))


@register
@dataclass(frozen=True)
class ToChangesSpec(ByKeys, MakesChanges):
    """Rows with validity as changes. Any columns may be `by`, to divide the rows that wait for their end as the next
    operator divides its own."""

    by_instant = True

    by: tuple[str, ...] = ()

    def build(self) -> ToChangesKernel:
        return ToChangesKernel(self)

    def describe(self) -> str:
        return "rows with validity to changes"


class ToChangesKernel(ChangesKernel):
    """Runs a ToChangesSpec."""

    def step(self, state: WaitingState, batch: Batch) -> Batch:
        state.upto = max(state.upto, batch.upto, int(batch.time[-1]) if len(batch) else BEGIN)
        came = []
        if len(batch):
            assert batch.other is not None
            plain = replace(batch, other=None, seq=np.zeros(len(batch), dtype=np.int64))
            came.append(self.signed(plain, 1))
            going = replace(plain, time=batch.other)
            ends = np.flatnonzero(batch.other < FOREVER)
            state.waiting.add(going if len(ends) == len(batch) else going.take(ends))
        # Whatever comes later begins at `upto` or after it, and ends later still.
        gone = [self.signed(piece, -1) for piece in state.waiting.release(min(state.upto, FOREVER - 1))]
        if not gone and not came:
            return Batch.empty(self._changes.arrow, state.upto)
        return replace(in_order([*gone, *came]), upto=state.upto, port=0)
