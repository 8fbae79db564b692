"""An index on conditions of which one must hold: a lookup for each, and each pair once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.arrays import one_batch
from millstream.expressions.evaluator import compile_filter
from millstream.expressions.nodes import conjunction
from millstream.kernels.batch import Ints
from millstream.kernels.keys.words import Bools
from millstream.kernels.matching.condition import MatchCondition
from millstream.kernels.matching.index import MatchIndex
from millstream.schema import Schema


def index_of(
    condition: MatchCondition, stream: Schema, table: Schema, kept: Schema | None = None
) -> MatchIndex | AnyIndex:
    """The index that finds what a condition decides."""
    return (AnyIndex if condition.any_of else MatchIndex)(condition, stream, table, kept)


class AnyIndex:
    """The rows of a table by conditions of which one must hold, with the methods of a MatchIndex. The number of a row
    is its own in all of them."""

    def __init__(self, condition: MatchCondition, stream: Schema, table: Schema, kept: Schema | None = None) -> None:
        self._indexes = [MatchIndex(each, stream, table, kept) for each in condition.any_of]
        self._given = [
            compile_filter(conjunction(each.given), stream) if each.given else None for each in condition.any_of
        ]

    def __len__(self) -> int:
        return max(map(len, self._indexes))

    def add(self, rows: pa.RecordBatch, numbers: Ints) -> None:
        """Rows of the table, each under its number."""
        for index in self._indexes:
            index.add(rows, numbers)

    def drop(self, numbers: Ints) -> None:
        """Rows go again, by their numbers."""
        for index in self._indexes:
            index.drop(numbers)

    def matched(self, rows: pa.RecordBatch) -> Bools:
        """Which rows of the stream have a match."""
        found = np.zeros(rows.num_rows, dtype=np.bool_)
        for places, index in zip(self._places(rows), self._indexes, strict=True):
            found[places] |= index.matched(rows.take(pa.array(places)))
        return found

    def lists(self, rows: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        """How many rows of the table match each row of the stream, and these, one after the other."""
        left, right = self.match(rows)
        return np.bincount(left, minlength=rows.num_rows), right

    def match(self, rows: pa.RecordBatch, in_order: bool = False) -> tuple[Ints, pa.RecordBatch]:
        """For each match the number of the stream's row, in order, and the table's row, in order of the table."""
        found = []
        for places, index in zip(self._places(rows), self._indexes, strict=True):
            whole = len(places) == rows.num_rows
            left, numbers, right = index.numbered(rows if whole else rows.take(pa.array(places)))
            found.append((left if whole else places[left], numbers, right))
        left, numbers = (np.concatenate([each[lane] for each in found]) for lane in (0, 1))
        order = np.lexsort((numbers, left))
        left, numbers = left[order], numbers[order]
        once = np.ones(len(order), dtype=np.bool_)
        once[1:] = (left[1:] != left[:-1]) | (numbers[1:] != numbers[:-1])
        return left[once], one_batch([right for _, _, right in found]).take(pa.array(order[once]))

    def _places(self, rows: pa.RecordBatch) -> list[Ints]:
        """The rows of the stream that each condition may hold for."""
        every = np.arange(rows.num_rows)
        return [every if given is None else np.flatnonzero(np.asarray(given(rows))) for given in self._given]
