"""Rows of relations as they are delivered: their last two columns bound their validity."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.arrays import from_numpy, to_numpy
from millstream.kernels.batch import FOREVER, Ints


def valid_at(batches: list[pa.RecordBatch], schema: pa.Schema, at: int) -> pa.Table:
    """The rows that are valid at an instant, without their bounds."""
    chosen = [_valid(rows, at) for rows in batches if rows.num_rows]
    table = pa.Table.from_batches(chosen, schema=schema)
    return table.select(list(range(table.num_columns - 2)))


def _valid(rows: pa.RecordBatch, at: int) -> pa.RecordBatch:
    return rows.take(from_numpy(np.flatnonzero((starts_of(rows) <= at) & (ends_of(rows) > at))))


def starts_of(rows: pa.RecordBatch) -> Ints:
    """When each row starts to be valid."""
    return _micros(rows.column(rows.num_columns - 2))


def ends_of(rows: pa.RecordBatch) -> Ints:
    """When each row stops being valid."""
    return _micros(rows.column(rows.num_columns - 1))


def _micros(column: pa.Array) -> Ints:
    """Times as numbers; an open end is after all of them."""
    plain = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column.cast(pa.int64())
    times = to_numpy(plain)
    return np.where(to_numpy(plain.is_valid()), times, FOREVER) if plain.null_count else times
