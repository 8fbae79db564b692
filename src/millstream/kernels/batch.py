"""A batch: rows of a stream with their times, and how far time has come."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.arrays import from_numpy, one_batch
from millstream.records import dataclass

Ints = npt.NDArray[np.int64]

BEGIN = -(2**63)
"""Before every instant: the progress of an input that has delivered nothing."""

FOREVER = 2**63 - 1
"""After every instant: the progress of an input that has ended."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows in order of `time`, ties in order of `seq`, and the promise that no later row has a time below `upto`.

    `time` orders the batch: the end of an event, the start of a relation's row. `other` is the other end of its
    interval, None for point events. `seq` numbers arrivals: hosts use it to restore the order of ties after an
    exchange; kernels pass it on. A heartbeat is a batch without rows.
    """

    rows: pa.RecordBatch
    time: Ints
    seq: Ints
    upto: int
    other: Ints | None = None
    port: int = 0

    def __post_init__(self) -> None:
        if not (self.rows.num_rows == len(self.time) == len(self.seq)):
            raise ValueError(f"{self.rows.num_rows} rows with {len(self.time)} times and {len(self.seq)} numbers")

    def __len__(self) -> int:
        return len(self.time)

    def slice(self, start: int, stop: int) -> Batch:
        """Rows `start` to `stop`, sharing memory."""
        other = None if self.other is None else self.other[start:stop]
        rows = self.rows.slice(start, stop - start)
        return Batch(rows, self.time[start:stop], self.seq[start:stop], self.upto, other, self.port)

    def take(self, indices: npt.NDArray[Any]) -> Batch:
        """The rows at `indices`, in that order."""
        other = None if self.other is None else self.other[indices]
        rows = self.rows.take(from_numpy(indices))
        return Batch(rows, self.time[indices], self.seq[indices], self.upto, other, self.port)

    def with_rows(self, rows: pa.RecordBatch) -> Batch:
        """The same times with other columns."""
        return Batch(rows, self.time, self.seq, self.upto, self.other, self.port)

    def with_upto(self, upto: int) -> Batch:
        return self if upto == self.upto else Batch(self.rows, self.time, self.seq, upto, self.other, self.port)

    def on_port(self, port: int) -> Batch:
        return self if port == self.port else Batch(self.rows, self.time, self.seq, self.upto, self.other, port)

    @staticmethod
    def empty(schema: pa.Schema, upto: int, port: int = 0) -> Batch:
        """A heartbeat."""
        none = np.empty(0, dtype=np.int64)
        rows = pa.RecordBatch.from_arrays([_no_values(type_) for type_ in schema.types], schema=schema)
        return Batch(rows, none, none, upto, None, port)


@lru_cache(1_024)
def _no_values(type_: pa.DataType) -> pa.Array:
    return pa.nulls(0, type_)


def concat(batches: list[Batch], upto: int) -> Batch:
    """The rows of `batches` one after the other; they must already be in order and have the same columns."""
    if len(batches) == 1:
        return batches[0].with_upto(upto)
    rows = one_batch([batch.rows for batch in batches])
    spans = any(batch.other is not None for batch in batches)
    other = np.concatenate([b.time if b.other is None else b.other for b in batches]) if spans else None
    return Batch(
        rows,
        np.concatenate([batch.time for batch in batches]),
        np.concatenate([batch.seq for batch in batches]),
        upto,
        other,
        batches[0].port,
    )
