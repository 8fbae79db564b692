"""Relations as changes: rows that come and go, told apart by a last column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.schema import Field, Schema
from millstream.types import TINYINT

SIGN = Field("$sign", TINYINT)


def signed(schema: Schema) -> Schema:
    """The columns of changes to a relation of these columns."""
    return Schema((*schema.fields, SIGN))


def with_signs(rows: pa.RecordBatch, signs: npt.NDArray[Any], schema: Schema) -> pa.RecordBatch:
    """Rows as changes; `schema` is the signed one."""
    return pa.RecordBatch.from_arrays([*rows.columns, pa.array(signs.astype(np.int8))], schema=schema.arrow)


def apart(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """Changes as rows and signs."""
    last = rows.num_columns - 1
    signs = rows.column(last).to_numpy(zero_copy_only=False).astype(np.int64)
    return rows.select(list(range(last))), signs
