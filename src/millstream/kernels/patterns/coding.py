"""Between Arrow columns and the arrays that searches look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.keys import ByteTable, KeyTable
from millstream.kernels.keys.words import all_true, from_words, plain, validity
from millstream.types import DOUBLE, SqlType, from_kernel, to_kernel

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


def is_odd(type_: SqlType) -> bool:
    """Whether values have no form of their own in kernels: then their number in a table of values stands for them."""
    return type_.name == "BLOB" or (type_.name == "DECIMAL" and type_.precision > 18)


def encode(column: pa.Array, type_: SqlType, texts: ByteTable, table: KeyTable | None) -> tuple[Array, Bools]:
    """The values of a column, and which are not NULL."""
    mask = validity(column)
    ok = all_true(len(column)) if mask is None else mask
    if type_.name == "NULL":
        return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.bool_)
    if table is not None:
        return table.encode([column]).astype(np.int64), ok
    if type_.is_coded:
        return texts.slots(column, add=True).astype(np.int64), ok
    return to_kernel(plain(column, type_), type_), ok


def decode(values: Array, ok: Bools, type_: SqlType, texts: ByteTable, table: KeyTable | None) -> pa.Array:
    """The inverse of `encode`."""
    if type_.name == "NULL":
        return pa.nulls(len(values), type_.arrow)
    valid = None if ok.all() else ok
    if table is not None:
        column = table.keys(np.where(ok, values, 0)).column(0) if len(table) else pa.nulls(len(values), type_.arrow)
        return column if valid is None else pa.compute.if_else(pa.array(ok), column, pa.scalar(None, column.type))
    if type_.is_coded:
        return texts.values(values if valid is None else np.where(ok, values, -1))
    if type_ == DOUBLE or type_.name == "BOOLEAN":
        return from_kernel(values, valid, type_)
    return from_words([values.astype(np.int64, copy=False)], valid, type_)
