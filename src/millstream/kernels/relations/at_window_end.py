"""Rows of window tables that wait for the end of their window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, FOREVER, Batch
from millstream.kernels.keys import bucket_of
from millstream.kernels.one_piece import OnePiece
from millstream.kernels.registry import register
from millstream.kernels.runs import Runs, in_order
from millstream.schema import Schema
from millstream.types import to_kernel


@register
@dataclass(frozen=True)
class AtWindowEndSpec:
    """Rows of windows that end at the value of `end`, as a relation: each is valid for the last instant of its window,
    or for the one `after` it."""

    input: Schema
    end: str
    after: bool = False

    @property
    def inputs(self) -> tuple[Schema, ...]:
        return (self.input,)

    @property
    def output(self) -> Schema:
        return self.input

    @property
    def keys(self) -> tuple[str, ...]:
        # Rows have nothing to do with each other; those of a window leave together.
        return (self.end,)

    def build(self) -> AtWindowEndKernel:
        return AtWindowEndKernel(self)

    def describe(self) -> str:
        return f"rows {'after' if self.after else 'at'} {self.end}"


@dataclass
class AtWindowEndState:
    """Rows whose window has not ended, at the instant at which they will be valid."""

    waiting: Runs = field(default_factory=Runs)
    upto: int = BEGIN
    changed: bool = True


class AtWindowEndKernel(OnePiece):
    """Runs an AtWindowEndSpec."""

    def __init__(self, spec: AtWindowEndSpec) -> None:
        self.spec = spec
        self._column = spec.input.index(spec.end)

    def open(self) -> AtWindowEndState:
        return AtWindowEndState(changed=False)

    def step(self, state: AtWindowEndState, batch: Batch) -> Batch:
        if len(batch) or batch.upto > state.upto:
            state.changed = True
        state.upto = max(state.upto, batch.upto)
        if len(batch):
            ends = to_kernel(batch.rows.column(self._column), self.spec.input[self.spec.end].type)
            start = ends if self.spec.after else ends - 1
            state.waiting.add(Batch(batch.rows, start, np.zeros(len(batch), dtype=np.int64), BEGIN, start + 1))
        # A row that is to come is of a window that ends after its own time.
        upto = state.upto + 1 if self.spec.after and BEGIN < state.upto < FOREVER else state.upto
        over = state.waiting.release(upto)
        return in_order(over).with_upto(upto) if over else Batch.empty(self.spec.output.arrow, upto)

    # -- saving ----------------------------------------------------------------------------------------------------

    def snapshot(self, state: AtWindowEndState) -> bytes:
        rows = state.waiting.all()
        return snapshots.save(self.spec, {"upto": np.array([state.upto]), **({} if rows is None else {"rows": rows})})

    def restore(self, saved: bytes) -> AtWindowEndState:
        parts = snapshots.load(self.spec, saved)
        return self._state([parts.batch("rows", BEGIN)] if "rows" in parts else [], int(parts.array("upto")[0]))

    def split(self, state: AtWindowEndState, parts: int) -> list[AtWindowEndState]:
        rows = state.waiting.all()
        if rows is None:
            return [self._state([], state.upto) for _ in range(parts)]
        owner = bucket_of([rows.rows.column(self._column)], parts)
        return [self._state([rows.take(np.flatnonzero(owner == part))], state.upto) for part in range(parts)]

    def merge(self, states: Sequence[AtWindowEndState]) -> AtWindowEndState:
        held = [state.waiting.all() for state in states]
        return self._state([rows for rows in held if rows is not None], max(state.upto for state in states))

    def _state(self, held: list[Batch], upto: int) -> AtWindowEndState:
        state = AtWindowEndState(upto=upto)
        for rows in held:
            state.waiting.add(rows)
        return state
