"""Windows whose length each row says itself, as a constant of its query."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.kernels.batch import Ints
from millstream.plan.lengths import RowLength
from millstream.schema import Schema
from millstream.types import to_kernel


def lengths(rows: pa.RecordBatch, schema: Schema, length: RowLength | int) -> Ints | int:
    """The length of all windows, or of that of each row."""
    return length if isinstance(length, int) else own_lengths(rows, schema, length)


def own_lengths(rows: pa.RecordBatch, schema: Schema, length: RowLength) -> Ints:
    """The length of the window of each row."""
    place = schema.index(length.column)
    column = rows.column(place)
    if column.null_count:
        raise DataError(f"a window has no length: {length} is NULL")
    values: Ints = np.ascontiguousarray(to_kernel(column, schema.fields[place].type), dtype=np.int64)
    return values if length.unit == 1 else values * length.unit
