"""Kernels whose state is rows that wait for their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.contract import KernelSpec
from millstream.kernels.kept import Content, KeepsRows, Ledger
from millstream.kernels.keys import bucket_of
from millstream.kernels.runs import Runs


@dataclass
class WaitingState:
    """Rows at the times that they wait for, and how far time has come for kernels that have to remember it."""

    waiting: Runs = field(default_factory=Runs)
    upto: int = BEGIN
    ledger: Ledger = field(default_factory=Ledger)


class WaitingRows(KeepsRows):
    """A kernel of rows that wait; they begin with the columns of its input, and its keys divide them."""

    def __init__(self, spec: KernelSpec) -> None:
        self.spec = spec
        self._keys = [spec.inputs[0].index(key) for key in spec.keys or ()]

    def open(self) -> WaitingState:
        return WaitingState()

    def _content(self, state: WaitingState) -> Content:
        return {"upto": np.array([state.upto]), "rows": state.waiting.kept()}

    def _made_of(self, parts: snapshots.Saved) -> WaitingState:
        state = WaitingState(upto=int(parts.array("upto")[0]))
        if "rows" in parts:
            state.waiting.add(parts.batch("rows", BEGIN), parts.numbers("rows"))
        return state

    def split(self, state: WaitingState, parts: int) -> list[WaitingState]:
        rows = state.waiting.all()
        if rows is None:
            return [_state([], state.upto) for _ in range(parts)]
        owner = np.zeros(len(rows), dtype=np.int32)
        if self._keys:
            owner = bucket_of([rows.rows.column(key) for key in self._keys], parts)
        return [_state([rows.take(np.flatnonzero(owner == part))], state.upto) for part in range(parts)]

    def merge(self, states: Sequence[WaitingState]) -> WaitingState:
        held = [state.waiting.all() for state in states]
        return _state([rows for rows in held if rows is not None], max(state.upto for state in states))


def _state(held: Sequence[Batch], upto: int) -> WaitingState:
    state = WaitingState(upto=upto)
    for rows in held:
        state.waiting.add(rows)
    return state
