"""The constants of many queries, as users give them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import DataError
from millstream.types import SqlType

Rows = Any
"""constants: dicts, an Arrow table or a DataFrame"""

_SAMPLES: dict[str, Any] = {
    "BOOLEAN": True, "DOUBLE": 1.0, "VARCHAR": "a", "DECIMAL": Decimal(1), "BLOB": b"a", "DATE": dt.date(2000, 1, 1),
    "TIME": dt.time(1), "TIMESTAMP": dt.datetime(2000, 1, 1), "INTERVAL": dt.timedelta(seconds=1),
    "TIMESTAMPTZ": dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
}  # fmt: skip
"""constants of each type with which a plan can be tried; for others, 1"""


def sample_of(type_: SqlType) -> Any:
    """A constant with which a plan can be tried."""
    return _SAMPLES.get(type_.name, 1)


def put(array: Any, places: Any, values: Any) -> Any:
    """An array with values at some places, longer if need be."""
    size = int(places.max()) + 1
    if size > len(array):
        array = np.concatenate([array, np.zeros(size + size // 8 - len(array), dtype=array.dtype)])
    array[places] = values
    return array


def as_table(rows: Rows) -> pa.Table:
    """Constants as an Arrow table."""
    match rows:
        case pa.Table():
            return rows
        case pa.RecordBatch():
            return pa.Table.from_batches([rows])
        case _ if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
    try:
        return pa.Table.from_pylist(list(rows))
    except (pa.ArrowInvalid, TypeError, AttributeError) as error:
        raise DataError(f"constants are dicts, an Arrow table or a DataFrame: {error}") from None
