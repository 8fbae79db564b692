"""Arrays, structs and maps as bytes: equal values have equal bytes, so they are compared, grouped and held as these.

A value is written column by column, as a column of one row: whether it is there, its number or its length, and behind
that what it holds, again as columns. So both ways are a few steps over all rows, whatever the rows hold.

Values are ordered by other bytes (`order_of`), which are compared as DuckDB compares values: element by element, field
by field, an array before a longer one that begins with it, and NULL behind everything.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import from_numpy, to_numpy
from millstream.expressions.python_calls import ColumnCall
from millstream.records import dataclass
from millstream.types import BLOB, STRUCT, SqlType, from_kernel, to_kernel

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class NestedCall(ColumnCall):
    """The bytes of a nested value (`code`), the value of bytes (`value`), or bytes to order it by (`order`)."""

    how: Literal["code", "value", "order"] = "code"

    def run(self, columns: list[pa.Array], rows: int) -> pa.Array:
        if self.how == "value":
            return decode(columns[0], self.type)
        return (encode if self.how == "code" else ordered)(columns[0], self.args[0].type)


def encode(array: pa.Array, type_: SqlType) -> pa.Array:
    """The values as bytes; NULL is NULL."""
    there = array.drop_null() if array.null_count else array
    rows = len(there)
    lengths, written = _joined(rows, list(_pieces(there, type_, np.ones(rows, dtype=np.int64))))
    return _spread(_binary(np.concatenate([[0], np.cumsum(lengths)]), written), array)


def ordered(array: pa.Array, type_: SqlType) -> pa.Array:
    """Bytes in the order of the values; NULL is NULL."""
    there = array.drop_null() if array.null_count else array
    lengths, data = _in_order(there, type_)
    return _spread(_binary(np.concatenate([[0], np.cumsum(lengths)]), data), array)


def sort_bytes(columns: list[tuple[pa.Array, SqlType, bool, bool]]) -> pa.Array:
    """Of each row the bytes in the order of several columns; each may go downwards, and have NULLs first."""
    rows = len(columns[0][0])
    pieces: list[tuple[Ints, Bytes]] = []
    for array, type_, down, nulls_first in columns:
        (marks, valued), (lengths, data) = _apart(array, type_)
        pieces += [
            (marks, np.where(valued, 1, 0 if nulls_first else 2).astype(np.uint8)),
            (lengths, ~data if down else data),
        ]
    lengths, written = _joined(rows, pieces)
    return _binary(np.concatenate([[0], np.cumsum(lengths)]), written)


def _binary(starts: npt.NDArray[Any], data: Bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(starts.astype(np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers).cast(pa.binary())


def _in_order(array: pa.Array, type_: SqlType) -> tuple[Ints, Bytes]:
    """The bytes of values that are all there: their lengths, and the bytes one behind the other. No value's bytes are
    the beginning of another's."""
    rows = len(array)
    if type_.is_struct:
        return _joined(rows, [_marked(child, part) for child, part in zip(array.flatten(), type_.parts, strict=True)])
    if type_.is_nested:
        if type_.is_map:
            array = array.cast(pa.list_(pa.struct([(name, part.arrow) for name, part in type_.fields])))
        lengths, data = _marked(pc.list_flatten(array), _element(type_))
        counts = np.asarray(to_numpy(pc.list_value_length(array)), dtype=np.int64)
        end = np.ones(rows, dtype=np.int64), np.zeros(rows, dtype=np.uint8)
        return _joined(rows, [(_sums(lengths, counts), data), end])
    if type_.is_coded:
        plain = array.cast(pa.large_binary())
        offsets = np.frombuffer(plain.buffers()[1], dtype=np.int64)[plain.offset : plain.offset + rows + 1]
        data = np.frombuffer(plain.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
        # 0 ends it, so 0 inside of it is followed by another byte than at the end
        times = 1 + (data == 0)
        inside = np.repeat(data, times)
        inside[(np.cumsum(times) - 1)[data == 0]] = 0xFF
        end = np.full(rows, 2, dtype=np.int64), np.zeros(2 * rows, dtype=np.uint8)
        return _joined(rows, [(_sums(times, np.diff(offsets)), inside), end])
    if type_.name == "NULL":
        return np.zeros(rows, dtype=np.int64), np.empty(0, dtype=np.uint8)
    if not rows:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
    words = _numbers(array, type_, np.ones(rows, dtype=np.bool_))
    if words.dtype == np.float64:
        bits = words.view(np.int64)
        words = np.where(bits < 0, ~bits ^ np.int64(-(2**63)), bits)
    high, *low = words.reshape(rows, -1).T[::-1]
    lanes = [high.astype(np.int64).view(np.uint64) ^ np.uint64(2**63), *(lane.view(np.uint64) for lane in low)]
    data = np.stack(lanes, axis=1).astype(">u8").reshape(-1).view(np.uint8)
    return np.full(rows, 8 * len(lanes), dtype=np.int64), data


def _marked(array: pa.Array, type_: SqlType) -> tuple[Ints, Bytes]:
    """The bytes of values inside others, which may be NULL: that comes last."""
    (marks, valid), values = _apart(array, type_)
    return _joined(len(array), [(marks, np.where(valid, 1, 2).astype(np.uint8)), values])


def _apart(array: pa.Array, type_: SqlType) -> tuple[tuple[Ints, npt.NDArray[np.bool_]], tuple[Ints, Bytes]]:
    """A byte for each value and whether it is there; the bytes of those that are."""
    valid = to_numpy(array.is_valid()).astype(bool)
    lengths, data = _in_order(array.drop_null() if array.null_count else array, type_)
    every = np.zeros(len(array), dtype=np.int64)
    every[valid] = lengths
    return (np.ones(len(array), dtype=np.int64), valid), (every, data)


def _joined(rows: int, pieces: list[tuple[Ints, Bytes]]) -> tuple[Ints, Bytes]:
    """Of each row the bytes of all pieces, one behind the other."""
    lengths = sum((lengths for lengths, _ in pieces), start=np.zeros(rows, dtype=np.int64))
    place = np.cumsum(lengths) - lengths
    written = np.empty(int(lengths.sum()), dtype=np.uint8)
    for own, data in pieces:
        written[_ragged(place, own)] = data
        place = place + own
    return lengths, written


def decode(codes: pa.Array, type_: SqlType) -> pa.Array:
    """The inverse of `encode`."""
    there = (codes.drop_null() if codes.null_count else codes).cast(pa.large_binary())
    offsets = np.frombuffer(there.buffers()[1], dtype=np.int64)[there.offset : there.offset + len(there) + 1]
    data = np.frombuffer(there.buffers()[2] or b"", dtype=np.uint8)
    values = _Reader(data, offsets[:-1].copy()).read(type_, np.ones(len(there), dtype=np.int64))
    return _spread(values, codes)


def _spread(values: pa.Array, like: pa.Array) -> pa.Array:
    """Values for the places where another array has some; elsewhere NULL."""
    if not like.null_count:
        return values
    places = np.cumsum(to_numpy(like.is_valid())) - 1
    return values.take(pa.array(places, mask=to_numpy(like.is_null())))


def _pieces(array: pa.Array, type_: SqlType, counts: Ints) -> Any:
    """The parts of a column of which each row has `counts` values: how many bytes of it a row has, and the bytes."""
    valid = to_numpy(array.is_valid())
    yield counts, valid.astype(np.uint8)
    if type_.is_struct:
        for child, part in zip(array.flatten(), type_.parts, strict=True):
            yield from _pieces(child, part, counts)
    elif type_.is_nested:
        if type_.is_map:
            array = array.cast(pa.list_(pa.struct([(name, part.arrow) for name, part in type_.fields])))
        lengths = np.asarray(to_numpy(pc.list_value_length(array).fill_null(0)), dtype=np.int32)
        yield counts * 4, lengths.view(np.uint8)
        yield from _pieces(pc.list_flatten(array), _element(type_), _sums(lengths, counts))
    elif type_.is_coded:
        plain = array.fill_null("" if type_.is_text else b"").cast(pa.large_binary())
        offsets = np.frombuffer(plain.buffers()[1], dtype=np.int64)[plain.offset : plain.offset + len(plain) + 1]
        lengths = np.diff(offsets).astype(np.int32)
        yield counts * 4, lengths.view(np.uint8)
        data = np.frombuffer(plain.buffers()[2] or b"", dtype=np.uint8)
        yield _sums(lengths, counts), data[offsets[0] : offsets[-1]] if len(plain) else data[:0]
    elif type_.name != "NULL":
        wide = _numbers(array, type_, valid)
        yield counts * (wide.dtype.itemsize * (wide.shape[1] if wide.ndim > 1 else 1)), wide.reshape(-1).view(np.uint8)


def _numbers(array: pa.Array, type_: SqlType, valid: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    if _is_wide(type_):
        end = array.offset + len(array)
        lanes = np.frombuffer(array.buffers()[1] or b"", dtype=np.int64, count=2 * end).reshape(-1, 2)
        return np.where(valid[:, None], lanes[array.offset :], 0)
    values = to_kernel(array, type_)
    if values.dtype == np.float64:
        # zero has one form, and so has NaN
        values = np.where(np.isnan(values), np.nan, values + 0.0)
    return np.ascontiguousarray(values.astype(np.int64) if values.dtype == bool else values)


def _is_wide(type_: SqlType) -> bool:
    return type_.name == "DECIMAL" and type_.precision > 18


def _element(type_: SqlType) -> SqlType:
    return type_.element or STRUCT(*type_.fields)


def _sums(lengths: npt.NDArray[Any], counts: Ints) -> Ints:
    """The sum of the lengths of each row's values."""
    totals = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    ends = np.cumsum(counts)
    return np.asarray(totals[ends] - totals[ends - counts], dtype=np.int64)


def _ragged(starts: Ints, lengths: Ints) -> Ints:
    """The places of runs that begin at `starts`, one behind the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


class _Reader:
    """Reads columns out of bytes, from a place in each row."""

    def __init__(self, data: Bytes, places: Ints) -> None:
        self._data = data
        self._places = places

    def read(self, type_: SqlType, counts: Ints) -> pa.Array:
        """`counts` values of each row."""
        valid = self._take(counts).astype(bool)
        nulls = from_numpy(~valid)
        if type_.is_struct:
            children = [self.read(part, counts) for part in type_.parts]
            return pa.StructArray.from_arrays(children, fields=list(type_.arrow), mask=nulls)
        if type_.is_nested:
            lengths = self._take(counts * 4).view(np.int32)
            values = self.read(_element(type_), _sums(lengths, counts))
            offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
            if not type_.is_map:
                return pa.ListArray.from_arrays(offsets, values, type_.arrow, mask=nulls)
            starts = pc.if_else(from_numpy(valid), offsets[:-1], pa.scalar(None, pa.int32()))
            starts = pa.concat_arrays([starts, offsets[-1:]])
            return pa.MapArray.from_arrays(starts, *values.flatten(), type=type_.arrow)
        if type_.is_coded:
            lengths = self._take(counts * 4).view(np.int32)
            data = pa.py_buffer(self._take(_sums(lengths, counts)))
            offsets = pa.py_buffer(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
            texts = pa.Array.from_buffers(type_.arrow, len(valid), [None, offsets, data])
            return texts if valid.all() else pc.if_else(from_numpy(valid), texts, pa.scalar(None, type_.arrow))
        if type_.name == "NULL":
            return pa.nulls(len(valid))
        if _is_wide(type_):
            lanes = pa.py_buffer(self._take(counts * 16))
            numbers = pa.Array.from_buffers(type_.arrow, len(valid), [None, lanes])
            return numbers if valid.all() else pc.if_else(from_numpy(valid), numbers, pa.scalar(None, type_.arrow))
        values = self._take(counts * 8).view(np.float64 if type_.kernel == "float64" else np.int64)
        return from_kernel(values.astype(bool) if type_.name == "BOOLEAN" else values, valid, type_)

    def _take(self, lengths: Ints) -> Bytes:
        taken = self._data[_ragged(self._places, lengths)]
        self._places = self._places + lengths
        return np.ascontiguousarray(taken)


def code_of(expr: Any) -> NestedCall:
    return NestedCall(BLOB, "nested_code", (expr,))


def value_of(expr: Any, type_: SqlType) -> NestedCall:
    return NestedCall(type_, "nested_value", (expr,), "value")


def order_of(expr: Any) -> Any:
    """What to order a value by: a nested one by bytes."""
    return NestedCall(BLOB, "nested_order", (expr,), "order") if expr.type.is_nested else expr
