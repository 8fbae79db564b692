"""Argument columns: the arrays that loops see of them, the source that reads these, and columns of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.expressions.nested_codes import decode, encode
from millstream.kernels.accumulators.loops import NULL_FLOAT, NULL_INT
from millstream.kernels.accumulators.places import Argument, is_code
from millstream.kernels.jit import as_input
from millstream.kernels.keys import ByteTable
from millstream.kernels.keys.words import all_true, byte_parts, from_words, plain, to_words, validity
from millstream.records import dataclass
from millstream.types import BLOB, DOUBLE, SqlType, from_kernel, to_kernel

Array = npt.NDArray[Any]

_FULL_RANGE = ("BIGINT", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL")
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class ArgumentColumn(Argument):
    """An argument column. NULL travels as a value that cannot occur; where all values can, as a flag beside it. Where
    rows are only counted, values do not travel."""

    column: str
    valued: bool

    @property
    def flagged(self) -> bool:
        return not self.valued or self.type.name in _FULL_RANGE

    @property
    def null_is_nan(self) -> bool:
        return self.is_float and not self.flagged

    @property
    def arrays(self) -> list[str]:
        """The names of the arrays that carry it."""
        names = []
        if self.valued:
            names.append(self.name)
            if self.kind == "float":
                names.append(f"{self.name}_bits")
            if self.kind == "text":
                names += self.texts.split(", ")
        if self.flagged:
            names.append(f"{self.name}_ok")
        return names

    def load(self, row: str) -> Iterator[str]:
        """Lines that read a row of its arrays: the value as `{name}_v`, and whether there is one as `{name}_in`."""
        if self.valued:
            yield f"{self.name}_v = {self.name}[{row}]"
        if self.flagged:
            yield f"{self.name}_in = {self.name}_ok[{row}]"
        elif self.kind == "float":
            yield f"{self.name}_in = {self.name}_bits[{row}] != NULL_FLOAT"
        else:
            yield f"{self.name}_in = {self.name}_v {'>= 0' if self.kind == 'text' else '!= NULL_INT'}"


def code_table(type_: SqlType) -> ByteTable:
    """A table for the codes of values of a type."""
    return ByteTable(type_ if type_.is_coded else BLOB)


def _to_bytes(column: pa.Array, type_: SqlType) -> pa.Array:
    """Values that loops see as codes, as what these are codes of: bytes that are in order where the values are."""
    if type_.is_coded:
        return column
    if type_.is_nested:
        return encode(plain(column, type_), type_)
    low, high = to_words(column, type_)
    words = np.stack([high.view(np.uint64) ^ _SIGN, low.view(np.uint64)], axis=1).astype(">u8")
    offsets = np.arange(0, 16 * len(column) + 1, 16, dtype=np.int32)
    valid = pa.array(validity(column)).buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(
        pa.binary(), len(column), [valid, pa.py_buffer(offsets), pa.py_buffer(words.tobytes())]
    )


def _from_bytes(column: pa.Array, type_: SqlType) -> pa.Array:
    """The inverse."""
    if type_.is_coded:
        return column
    if type_.is_nested:
        return decode(column, type_)
    mask = validity(column)
    filled = column if mask is None else column.fill_null(bytes(16))
    words = np.frombuffer(byte_parts(filled, BLOB)[1], dtype=">u8").astype(np.uint64).reshape(-1, 2)
    return from_words([words[:, 1].view(np.int64), (words[:, 0] ^ _SIGN).view(np.int64)], mask, type_)


def argument_arrays(arg: ArgumentColumn, column: pa.Array, texts: Mapping[str, ByteTable]) -> list[Array]:
    """The arrays of an argument, in the order of their names."""
    mask = validity(column)
    arrays: list[Array] = []
    if arg.kind == "text" and arg.valued:
        table = texts[arg.name]
        codes = table.slots(_to_bytes(column, arg.type), add=True).astype(np.int64)
        if mask is not None:
            codes[~mask] = -1
        arrays += [codes, *table.arrays]
    elif arg.valued:
        values = _filled(arg, plain(column, arg.type), mask)
        arrays.append(values)
        if arg.kind == "float":
            arrays.append(values.view(np.int64))
    if arg.flagged:
        arrays.append(all_true(len(column)) if mask is None else mask)
    return [as_input(array) for array in arrays]


def _filled(arg: ArgumentColumn, column: pa.Array, mask: npt.NDArray[np.bool_] | None) -> Array:
    """The values with the argument's NULL mark where there is none."""
    if arg.type.name == "NULL":
        return np.full(len(column), NULL_INT, dtype=np.int64)
    if arg.type == DOUBLE:
        if mask is None:
            return to_kernel(column, arg.type)
        floats: Array = np.array(column.to_numpy(zero_copy_only=False))
        floats.view(np.int64)[~mask] = NULL_FLOAT
        return floats
    values = to_kernel(column, arg.type).astype(np.int64, copy=False)
    if mask is None or arg.flagged:
        return values
    return np.where(mask, values, NULL_INT)


def result_arrays(type_: SqlType, rows: int, nullable: bool = True) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Where results of a type and their validity are written."""
    return np.empty(rows, dtype=np.float64 if type_ == DOUBLE else np.int64), np.empty(rows * nullable, dtype=np.bool_)


def result_column(type_: SqlType, values: Array, valid: Array, texts: ByteTable | None) -> pa.Array:
    """Results as an Arrow column; `texts` tells the strings of codes."""
    ok = None if valid.all() else valid
    if is_code(type_):
        assert texts is not None
        return _from_bytes(texts.values(values if ok is None else np.where(ok, values, -1)), type_)
    if type_ == DOUBLE:
        return from_kernel(values, ok, type_)
    return from_words([values], ok, type_)
