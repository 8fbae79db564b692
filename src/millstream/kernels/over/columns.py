"""Between Arrow columns and the arrays that generated OVER loops see."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.kernels.accumulators.loops import NULL_FLOAT, NULL_INT
from millstream.kernels.aggregates import RANKS
from millstream.kernels.jit import as_input
from millstream.kernels.keys import ByteTable
from millstream.kernels.keys.words import all_true, from_words, plain, validity
from millstream.kernels.over.layout import Arg, Layout
from millstream.kernels.over.spec import OverCall
from millstream.types import DOUBLE, from_kernel, to_kernel

Array = npt.NDArray[Any]

_NEVER_NULL = RANKS | {"count"}


def argument_arrays(arg: Arg, column: pa.Array, texts: dict[str, ByteTable]) -> list[Array]:
    """The arrays of an argument, in the order of `codegen.argument_names`."""
    mask = validity(column)
    arrays: list[Array] = []
    if arg.kind == "text" and arg.valued:
        table = texts[arg.name]
        codes = table.slots(column, add=True).astype(np.int64)
        if mask is not None:
            codes[~mask] = -1
        arrays += [codes, table.start_of, table.length_of, table.arena]
    elif arg.valued:
        values = _filled(arg, plain(column, arg.type), mask)
        arrays.append(values)
        if arg.kind == "float":
            arrays.append(values.view(np.int64))
    if arg.flagged:
        arrays.append(all_true(len(column)) if mask is None else mask)
    return [as_input(array) for array in arrays]


def _filled(arg: Arg, column: pa.Array, mask: npt.NDArray[np.bool_] | None) -> Array:
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


def result_arrays(call: OverCall, rows: int) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Where a call's results and their validity are written."""
    values = np.empty(rows, dtype=np.float64 if call.type == DOUBLE else np.int64)
    return values, np.empty(0 if call.fn in _NEVER_NULL else rows, dtype=np.bool_)


def result_column(layout: Layout, call: OverCall, values: Array, ok: Array, texts: dict[str, ByteTable]) -> pa.Array:
    """A call's results as an Arrow column."""
    valid = None if call.fn in _NEVER_NULL or ok.all() else ok
    if call.type.is_coded:
        codes = values if valid is None else np.where(valid, values, -1)
        return texts[layout.arg(call).name].values(codes)
    if call.type == DOUBLE:
        return from_kernel(values, valid, call.type)
    return from_words([values], valid, call.type)
