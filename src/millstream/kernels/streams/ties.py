"""ORDER BY time and more: rows of one instant wait for each other, and go on in order."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.kernels.batch import BEGIN, Batch, Ints
from millstream.kernels.keys import KeyTable
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.registry import register
from millstream.kernels.saving.content import Content, Ledger
from millstream.kernels.saving.kept import KeptBatches
from millstream.kernels.saving.snapshots import Saved
from millstream.plan.node import by_told
from millstream.plan.ties import SortKey
from millstream.records import dataclass


@register
@dataclass(frozen=True)
class TieOrderSpec(KeepsColumns):
    """The rows of each partition that have equal times, in the order of `by`, once time has passed them.

    They share out their numbers of arrival anew, so that this order is what every host restores.
    """

    within: tuple[str, ...]
    by: tuple[SortKey, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.within

    def build(self) -> TieOrderKernel:
        return TieOrderKernel(self)

    def describe(self) -> str:
        return f"ties{by_told(self.within)} in order of {', '.join(map(str, self.by))}"


@dataclass
class TieOrderState:
    """The rows of instants that time has not passed, as they came."""

    held: KeptBatches = field(default_factory=KeptBatches)
    ledger: Ledger = field(default_factory=Ledger)


class TieOrderKernel:
    """Runs a TieOrderSpec."""

    def __init__(self, spec: TieOrderSpec) -> None:
        self.spec = spec
        self._keys = [spec.input.index(name) for name in spec.within]
        self._types = [spec.input[name].type for name in spec.within]
        self._by = [(spec.input.index(key.column), key) for key in spec.by]

    def open(self) -> TieOrderState:
        return TieOrderState()

    def step(self, state: TieOrderState, batch: Batch) -> Batch:
        state.held.add(batch.with_upto(BEGIN))
        if state.held.first >= batch.upto:
            return Batch.empty(self.spec.output.arrow, batch.upto)
        rows = state.held.all()
        assert rows is not None
        passed = int(np.searchsorted(rows.time, batch.upto, side="left"))
        state.held.drop(passed)
        return self._sorted(rows.slice(0, passed)).with_upto(batch.upto)

    def _sorted(self, rows: Batch) -> Batch:
        if not (np.diff(rows.time) == 0).any():
            return rows
        slot = self._slots(rows)
        ranks = [_ranks(rows.rows.column(index), key) for index, key in reversed(self._by)]
        order = np.lexsort((rows.seq, *ranks, slot, rows.time))
        seq = np.empty(len(rows), dtype=np.int64)
        # the partition's numbers, lowest first, go to its rows in their new order
        seq[order] = rows.seq[np.lexsort((rows.seq, slot, rows.time))]
        numbered = replace(rows, seq=seq)
        return numbered.take(np.lexsort((seq, rows.time)))

    def _slots(self, rows: Batch) -> Ints:
        if not self._keys:
            return np.zeros(len(rows), dtype=np.int64)
        found = KeyTable(self._types).encode([rows.rows.column(index) for index in self._keys])
        return np.asarray(found, dtype=np.int64)

    # -- saving ----------------------------------------------------------------------------------------------------

    def export(self, state: TieOrderState) -> Content:
        return {"held": state.held.kept()}

    def load(self, parts: Saved) -> TieOrderState:
        state = TieOrderState()
        if "held" in parts:
            state.held.add(parts.batch("held", BEGIN), parts.numbers("held"))
        return state


def _ranks(column: pa.Array, key: SortKey) -> Ints:
    """Numbers that sort as the values of a column are to be sorted."""
    # upwards, NaN behind all numbers, and NULL behind that
    ranks = np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy(), dtype=np.int64)
    if key.down:
        ranks = -ranks
    if column.null_count:
        ends = ranks.min() - 1 if key.nulls_first else ranks.max() + 1
        ranks = np.where(column.is_null().to_numpy(zero_copy_only=False), ends, ranks)
    return ranks
