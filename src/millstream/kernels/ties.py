"""ORDER BY time and more: rows of one instant wait for each other, and go on in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.kernels import snapshots
from millstream.kernels.batch import BEGIN, Batch, Ints, concat
from millstream.kernels.kept import Content, KeepsRows, KeptBatches, Ledger
from millstream.kernels.keys import KeyTable, bucket_of
from millstream.kernels.one_input import KeepsColumns
from millstream.kernels.registry import register
from millstream.plan.ties import SortKey


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
        within = f" by {', '.join(self.within)}" if self.within else ""
        return f"ties{within} in order of {', '.join(map(str, self.by))}"


@dataclass
class TieOrderState:
    """The rows of instants that time has not passed, as they came."""

    held: KeptBatches = field(default_factory=KeptBatches)
    ledger: Ledger = field(default_factory=Ledger)


class TieOrderKernel(KeepsRows):
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

    def _content(self, state: TieOrderState) -> Content:
        return {"held": state.held.kept()}

    def _made_of(self, parts: snapshots.Saved) -> TieOrderState:
        return _holding(parts.batch("held", BEGIN) if "held" in parts else None, parts.numbers("held"))

    def split(self, state: TieOrderState, parts: int) -> list[TieOrderState]:
        rows = state.held.all()
        if rows is None or not self._keys:
            return [_holding(rows if part == 0 else None) for part in range(parts)]
        owner = bucket_of([rows.rows.column(index) for index in self._keys], parts)
        return [_holding(rows.take(np.flatnonzero(owner == part))) for part in range(parts)]

    def merge(self, states: Sequence[TieOrderState]) -> TieOrderState:
        held = [batch for state in states if (batch := state.held.all()) is not None]
        if not held:
            return TieOrderState()
        rows = concat(held, BEGIN)
        return _holding(rows.take(np.lexsort((rows.seq, rows.time))))


def _holding(rows: Batch | None, numbers: Ints | None = None) -> TieOrderState:
    state = TieOrderState()
    if rows is not None:
        state.held.add(rows, numbers)
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
