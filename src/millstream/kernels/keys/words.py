"""Columns as 64-bit words: equal values of a type have equal words, and words give the values back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.arrays import to_numpy
from millstream.kernels.batch import Ints
from millstream.types import SqlType, from_kernel, to_kernel

Bools = npt.NDArray[np.bool_]
NO_MASK: Bools = np.ones(1, dtype=np.bool_)
NO_MASK.flags.writeable = False


def is_wide(type_: SqlType) -> bool:
    """Whether a value needs two words."""
    return type_.name == "DECIMAL" and type_.precision > 18


def plain(column: pa.Array, type_: SqlType) -> pa.Array:
    """The column in the Arrow type of its SQL type, whatever encoding it came in."""
    return column if column.type == type_.arrow else column.cast(type_.arrow)


def validity(column: pa.Array) -> Bools | None:
    """Which rows are not NULL; None if all are."""
    if column.null_count == 0:
        return None
    mask: Bools = to_numpy(column.is_valid())
    return mask


DAY_US = 86_400_000_000


def instants(column: pa.Array, type_: SqlType) -> Ints:
    """The values of a column as times (µs, or ticks of an integer column); those of NULL mean nothing."""
    times: Ints = to_kernel(plain(column, type_), type_)
    return times * DAY_US if type_.name == "DATE" else times


_all_true: Bools = np.ones(0, dtype=np.bool_)


def all_true(rows: int) -> Bools:
    """Rows that are all there: one array serves all columns without NULLs."""
    global _all_true
    if len(_all_true) < rows:
        _all_true = np.ones(max(rows, 4096), dtype=np.bool_)
    return _all_true[:rows]


def to_words(column: pa.Array, type_: SqlType) -> tuple[Ints, ...]:
    """The words of a fixed-width column, one array per word; NULL rows have zeros."""
    column = plain(column, type_)
    if type_.name == "NULL":
        return (np.zeros(len(column), dtype=np.int64),)
    if is_wide(type_):
        lanes = np.frombuffer(column.buffers()[1], dtype=np.int64)
        lanes = lanes[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
        mask = validity(column)
        if mask is not None:
            lanes = np.where(mask[:, None], lanes, 0)
        return np.ascontiguousarray(lanes[:, 0]), np.ascontiguousarray(lanes[:, 1])
    values = to_kernel(column, type_)
    if type_.name == "DOUBLE":
        return (canonical(values).view(np.int64),)
    return (values.astype(np.int64, copy=False),)


def canonical(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same numbers with one zero and one NaN."""
    one_zero = values + 0.0
    return np.where(np.isnan(one_zero), np.nan, one_zero)


def from_words(words: Sequence[Ints], valid: Bools | None, type_: SqlType) -> pa.Array:
    """The inverse of `to_words`."""
    if type_.name == "NULL":
        return pa.nulls(len(words[0]))
    if is_wide(type_):
        lanes: npt.NDArray[Any] = np.stack(words, axis=1)
        array = pa.Array.from_buffers(type_.arrow, len(lanes), [None, pa.py_buffer(lanes.tobytes())])
        return array if valid is None else pa.compute.if_else(pa.array(valid), array, pa.scalar(None, type_.arrow))
    values: npt.NDArray[Any] = np.ascontiguousarray(words[0])
    if type_.name in ("DOUBLE", "BOOLEAN"):
        values = values.view(np.float64) if type_.name == "DOUBLE" else values.astype(np.bool_)
    return from_kernel(values, valid, type_)


def byte_parts(column: pa.Array, type_: SqlType) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The offsets and the bytes of a string or blob column."""
    column = plain(column, type_)
    _, offsets, data = column.buffers()
    if offsets is None or len(column) == 0:
        return np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    places = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return places, np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
