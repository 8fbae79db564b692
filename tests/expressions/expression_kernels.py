"""Running the kernel source of expressions row by row, as plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.expressions.kernel.helpers import HELPERS
from millstream.expressions.kernel.source import KernelExpr, to_kernel_source
from millstream.expressions.nodes import Expr
from millstream.schema import Schema
from millstream.types import from_kernel, to_kernel

ROW = """
def row({names}):
    if {null}:
        return True, {zero}
    return False, {value}
"""


def source_of(expr: Expr, schema: Schema) -> KernelExpr | None:
    return to_kernel_source(expr, {field.name: f"c{i}" for i, field in enumerate(schema)})


def row_source(kernel: KernelExpr, schema: Schema) -> str:
    """A function of the columns of one row: whether the result is NULL, and the result."""
    names = ", ".join(f"{kind}_c{i}" for i in range(len(schema)) for kind in "vn")
    zero = {"float64": "0.0", "bool": "False"}.get(kernel.type.kernel, "0")
    return ROW.format(names=names, null=kernel.null, value=kernel.value, zero=zero)


def python_function(kernel: KernelExpr, schema: Schema) -> Callable[..., tuple[bool, Any]]:
    namespace: dict[str, Any] = {"np": np, **{name: HELPERS[name] for name in kernel.helpers}}
    exec(compile(row_source(kernel, schema), "<kernel>", "exec"), namespace)
    return namespace["row"]


def columns(rows: pa.RecordBatch, schema: Schema) -> list[np.ndarray]:
    """v_0, n_0, v_1, n_1, … as kernels see them."""
    arrays = []
    for field, column in zip(schema, rows.columns, strict=True):
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        arrays += [np.zeros(len(column), np.int64) if field.type.is_coded else to_kernel(column, field.type), nulls]
    return arrays


def run(kernel: KernelExpr, rows: pa.RecordBatch, schema: Schema) -> tuple[pa.Array, list[bool]]:
    """Values, and which rows are errors (NULL among the values)."""
    function, arrays = python_function(kernel, schema), columns(rows, schema)
    values = np.zeros(rows.num_rows, kernel.type.kernel)
    nulls, errors = np.zeros(rows.num_rows, bool), [False] * rows.num_rows
    with np.errstate(all="ignore"):
        for i in range(rows.num_rows):
            try:
                nulls[i], values[i] = function(*(array[i] for array in arrays))
            except OverflowError:
                nulls[i], errors[i] = True, True
    return from_kernel(values, ~nulls, kernel.type), errors
