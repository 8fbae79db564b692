"""Rows as they arrive: their times are read from the declared column, and rows without one are rejected."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.catalog import StreamDef
from millstream.connectors.contract import Rejected
from millstream.kernels.batch import Ints
from millstream.kernels.keys.words import instants


def times_of(rows: pa.RecordBatch, stream: StreamDef) -> Ints:
    """The order times (int64 µs, or ticks of an integer column) of rows none of which lacks one."""
    assert stream.time_column is not None
    index = stream.schema.index(stream.time_column)
    return instants(rows.column(index), stream.schema[stream.time_column].type)


def refuse_untimed(rows: pa.RecordBatch, stream: StreamDef) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
    """The rows that have a time, and the others with the reason."""
    assert stream.time_column is not None
    column = rows.column(stream.schema.index(stream.time_column))
    if not column.null_count:
        return rows, ()
    missing = column.is_null().to_numpy(zero_copy_only=False)
    refused = rows.take(pa.array(np.flatnonzero(missing)))
    kept = rows.take(pa.array(np.flatnonzero(~missing)))
    reason = f"{stream.time_column} is NULL, and orders the stream"
    return kept, tuple(Rejected(reason, str(row), stream.name) for row in refused.to_pylist())
