"""Rows with validity as changes: each comes at its start and goes at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.keys import bucket_of
from millstream.kernels.one_piece import OnePiece
from millstream.kernels.registry import register
from millstream.kernels.relations.signs import signed, with_signs
from millstream.kernels.runs import Runs, in_order
from millstream.schema import Schema


@register
@dataclass(frozen=True)
class ToChangesSpec:
    """Rows with validity as changes. Any columns may be `by`, to divide the rows that wait for their end as the next
    operator divides its own."""

    input: Schema
    by: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input,)

    @property
    def output(self) -> Schema:
        return signed(self.input)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.by

    def build(self) -> ToChangesKernel:
        return ToChangesKernel(self)

    def describe(self) -> str:
        return "rows with validity to changes"


@dataclass
class ToChangesState:
    """The rows that have not ended, at their ends, and how far time has come."""

    waiting: Runs = field(default_factory=Runs)
    upto: int = BEGIN
    changed: bool = True


class ToChangesKernel(OnePiece):
    """Runs a ToChangesSpec."""

    def __init__(self, spec: ToChangesSpec) -> None:
        self.spec = spec

    def open(self) -> ToChangesState:
        return ToChangesState(changed=False)

    def step(self, state: ToChangesState, batch: Batch) -> Batch:
        state.changed = True
        state.upto = max(state.upto, batch.upto, int(batch.time[-1]) if len(batch) else BEGIN)
        came = []
        if len(batch):
            assert batch.other is not None
            plain = replace(batch, other=None, seq=np.zeros(len(batch), dtype=np.int64))
            came.append(self._signed(plain, 1))
            going = replace(plain, time=batch.other)
            ends = np.flatnonzero(batch.other < FOREVER)
            state.waiting.add(going if len(ends) == len(batch) else going.take(ends))
        # Whatever comes later begins at `upto` or after it, and ends later still.
        gone = [self._signed(piece, -1) for piece in state.waiting.release(min(state.upto, FOREVER - 1))]
        if not gone and not came:
            return Batch.empty(self.spec.output.arrow, state.upto)
        return replace(in_order([*gone, *came]), upto=state.upto, port=0)

    def _signed(self, batch: Batch, sign: int) -> Batch:
        return batch.with_rows(with_signs(batch.rows, np.full(len(batch), sign), self.spec.output))

    # -- saving ----------------------------------------------------------------------------------------------------

    def snapshot(self, state: ToChangesState) -> bytes:
        rows = state.waiting.all()
        return snapshots.save(self.spec, {"upto": np.array([state.upto])} | ({} if rows is None else {"rows": rows}))

    def restore(self, saved: bytes) -> ToChangesState:
        parts = snapshots.load(self.spec, saved)
        rows = [parts.batch("rows", BEGIN)] if "rows" in parts else []
        return _state(rows, int(parts.array("upto")[0]))

    def split(self, state: ToChangesState, parts: int) -> list[ToChangesState]:
        rows = state.waiting.all()
        if rows is None:
            return [_state([], state.upto) for _ in range(parts)]
        owner = np.zeros(len(rows), dtype=np.int32)
        if self.spec.by:
            owner = bucket_of([rows.rows.column(self.spec.input.index(name)) for name in self.spec.by], parts)
        return [_state([rows.take(np.flatnonzero(owner == part))], state.upto) for part in range(parts)]

    def merge(self, states: Sequence[ToChangesState]) -> ToChangesState:
        held = [state.waiting.all() for state in states]
        return _state([rows for rows in held if rows is not None], max(state.upto for state in states))


def _state(held: Sequence[Batch], upto: int) -> ToChangesState:
    state = ToChangesState(upto=upto)
    for rows in held:
        state.waiting.add(rows)
    return state
