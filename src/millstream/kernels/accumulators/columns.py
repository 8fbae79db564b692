"""Argument columns: the arrays that loops see of them, the source that reads these, and columns of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.accumulators.loops import NULL_FLOAT, NULL_INT
from millstream.kernels.accumulators.places import Argument
from millstream.kernels.jit import as_input
from millstream.kernels.keys import ByteTable
from millstream.kernels.keys.words import all_true, from_words, plain, validity
from millstream.records import dataclass
from millstream.types import DOUBLE, SqlType, from_kernel, to_kernel

Array = npt.NDArray[Any]

_FULL_RANGE = ("BIGINT", "TIMESTAMP", "TIMESTAMPTZ", "INTERVAL")


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


def argument_arrays(arg: ArgumentColumn, column: pa.Array, texts: Mapping[str, ByteTable]) -> list[Array]:
    """The arrays of an argument, in the order of their names."""
    mask = validity(column)
    arrays: list[Array] = []
    if arg.kind == "text" and arg.valued:
        table = texts[arg.name]
        codes = table.slots(column, add=True).astype(np.int64)
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
    if type_.is_coded:
        assert texts is not None
        return texts.values(values if ok is None else np.where(ok, values, -1))
    if type_ == DOUBLE:
        return from_kernel(values, ok, type_)
    return from_words([values], ok, type_)
