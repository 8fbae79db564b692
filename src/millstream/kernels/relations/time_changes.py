"""Time windows as changes: a row comes at once and goes when time has passed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, FOREVER, Batch, Ints
from millstream.kernels.keys import bucket_of
from millstream.kernels.one_piece import OnePiece
from millstream.kernels.registry import register
from millstream.kernels.relations.signs import signed, with_signs
from millstream.kernels.relations.stages import window_bounds, window_upto
from millstream.kernels.runs import Runs, in_order
from millstream.plan.relations import RangeWindow
from millstream.schema import Schema


@register
@dataclass(frozen=True)
class RangeChangesSpec:
    """Events as the changes of a relation: +1 when a time window takes a row up, -1 when it lets it go.

    Any columns may be `by`, to divide the rows that wait for their end as the next operator divides its own.
    """

    input: Schema
    window: RangeWindow
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

    def build(self) -> RangeChangesKernel:
        return RangeChangesKernel(self)

    def describe(self) -> str:
        return f"window {self.window} as changes"


@dataclass
class RangeChangesState:
    """The rows in the window, at their ends."""

    waiting: Runs = field(default_factory=Runs)
    changed: bool = True


class RangeChangesKernel(OnePiece):
    """Runs a RangeChangesSpec."""

    def __init__(self, spec: RangeChangesSpec) -> None:
        self.spec = spec

    def open(self) -> RangeChangesState:
        return RangeChangesState(changed=False)

    def step(self, state: RangeChangesState, batch: Batch) -> Batch:
        upto = window_upto(batch.upto, self.spec.window)
        limit = upto - 1 if upto > BEGIN else BEGIN
        came: list[Batch] = []
        if len(batch):
            start, end = window_bounds(batch.time, self.spec.window)
            limit = max(limit, int(start[-1]))
            came, ends = self._come(batch, start, end)
            state.waiting.add(ends)
            state.changed = True
        # Whatever comes later goes after `limit`, so all that goes until then is known.
        gone = state.waiting.release(min(limit, FOREVER - 1))
        if not gone and not came:
            return Batch.empty(self.spec.output.arrow, upto)
        state.changed = True
        return in_order([*(self._signed(piece, -1) for piece in gone), *came]).with_upto(upto)

    def _come(self, batch: Batch, start: Ints, end: Ints) -> tuple[list[Batch], Batch]:
        """The rows as they come, and those that will go, at their ends."""
        held = replace(batch, seq=np.zeros(len(batch), dtype=np.int64), other=None)
        shown = end > start
        if not shown.all():
            kept = np.flatnonzero(shown)
            held, start, end = held.take(kept), start[kept], end[kept]
        came = [self._signed(replace(held, time=start), 1)] if len(held) else []
        goes = held.slice(0, 0) if self.spec.window.size is None else replace(held, time=end)
        return came, goes

    def _signed(self, batch: Batch, sign: int) -> Batch:
        return batch.with_rows(with_signs(batch.rows, np.full(len(batch), sign), self.spec.output))

    # -- saving ----------------------------------------------------------------------------------------------------

    def snapshot(self, state: RangeChangesState) -> bytes:
        rows = state.waiting.all()
        return snapshots.save(self.spec, {} if rows is None else {"rows": rows})

    def restore(self, saved: bytes) -> RangeChangesState:
        parts = snapshots.load(self.spec, saved)
        return self._state([parts.batch("rows", BEGIN)] if "rows" in parts else [])

    def split(self, state: RangeChangesState, parts: int) -> list[RangeChangesState]:
        rows = state.waiting.all()
        if rows is None:
            return [self._state([]) for _ in range(parts)]
        owner = np.zeros(len(rows), dtype=np.int32)
        if self.spec.by:
            owner = bucket_of([rows.rows.column(self.spec.input.index(name)) for name in self.spec.by], parts)
        return [self._state([rows.take(np.flatnonzero(owner == part))]) for part in range(parts)]

    def merge(self, states: Sequence[RangeChangesState]) -> RangeChangesState:
        held = [state.waiting.all() for state in states]
        return self._state([rows for rows in held if rows is not None])

    def _state(self, held: list[Batch]) -> RangeChangesState:
        state = RangeChangesState()
        for rows in held:
            state.waiting.add(rows)
        return state
