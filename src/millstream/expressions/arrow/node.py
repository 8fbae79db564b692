"""What an expression compiles to: a function from rows to an Arrow array, or to a scalar where all rows agree."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import DataError
from millstream.expressions.nodes import Expr, Literal, told
from millstream.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR, SqlType

Datum = Any
"""An Arrow array with a value for each row, or an Arrow scalar that stands for all of them."""


class InputRows(Protocol):
    """The input of a node: a RecordBatch, or some rows of one."""

    @property
    def num_rows(self) -> int: ...

    def column(self, i: int) -> pa.Array: ...


Node = Callable[[InputRows], Datum]


def boolean(value: bool | None) -> pa.Scalar:
    """A truth value as an Arrow scalar."""
    return constant(value, BOOLEAN)[0]


def whole(value: int) -> pa.Scalar:
    """A BIGINT as an Arrow scalar."""
    return constant(value, BIGINT)[0]


def number(value: float) -> pa.Scalar:
    """A DOUBLE as an Arrow scalar."""
    return constant(value, DOUBLE)[0]


def text(value: str | None) -> pa.Scalar:
    """A VARCHAR as an Arrow scalar."""
    return constant(value, VARCHAR)[0]


class SelectedRows:
    """The rows of a batch that a mask chooses; only columns that are read are filtered."""

    def __init__(self, rows: InputRows, mask: pa.Array) -> None:
        self._rows = rows
        self._mask = mask
        self._columns: dict[int, pa.Array] = {}
        self.num_rows = int(mask.true_count)

    def column(self, i: int) -> pa.Array:
        if i not in self._columns:
            self._columns[i] = self._rows.column(i).filter(self._mask)
        return self._columns[i]


def scalar_of(literal: Literal) -> pa.Scalar:
    """A constant as an Arrow scalar of its type."""
    return constant(literal.value, literal.type)[0]


def constant(value: object, type_: SqlType) -> pa.Array:
    """A constant as an Arrow array of one, from its bytes: Arrow imports pandas to convert a Python object."""
    arrow = type_.arrow
    if value is None:
        return pa.nulls(1, arrow)
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        offsets = np.array([0, len(data)], np.int32)
        return pa.Array.from_buffers(arrow, 1, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)])
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(type_.scale, Context(prec=50)))
        return pa.Array.from_buffers(arrow, 1, [None, pa.py_buffer(unscaled.to_bytes(16, "little", signed=True))])
    storage = np.array([value], f"{'f' if type_ == DOUBLE else 'i'}{max(1, arrow.bit_width // 8)}")
    return pa.Array.from_buffers(arrow, 1, [None, pa.py_buffer(storage.tobytes())])


_FALSE = boolean(False)


def as_array(datum: Datum, length: int) -> pa.Array:
    """A datum as an array of `length`."""
    if not isinstance(datum, pa.Scalar):
        return datum
    return pa.repeat(datum, length) if datum.is_valid else pa.nulls(length, datum.type)


def chosen(mask: Datum, length: int) -> pa.Array:
    """A condition as a mask: NULL is false."""
    array = as_array(mask, length)
    return array.fill_null(_FALSE) if array.null_count else array


def on_chosen(node: Node, rows: InputRows, mask: pa.Array, type_: pa.DataType) -> pa.Array:
    """The values of a node on the rows of a mask, NULL on others, on which the node is not evaluated."""
    count = mask.true_count
    if count == rows.num_rows:
        return as_array(node(rows), count)
    if count == 0:
        return pa.nulls(rows.num_rows, type_)
    values = as_array(node(SelectedRows(rows, mask)), count)
    return pc.replace_with_mask(pa.nulls(rows.num_rows, type_), mask, values)


def guarded(eager: Node, careful: Node) -> Node:
    """A node that evaluates all its parts on all rows until that fails once, and from then on only where it must.

    Both give the same values; most conditions guard against nothing that ever happens.
    """
    failed = False

    def node(rows: InputRows) -> Datum:
        nonlocal failed
        if not failed:
            try:
                return eager(rows)
            except DataError:
                failed = True
        return careful(rows)

    return node


def failing(node: Node, expr: Expr) -> Node:
    """A node whose failure names the expression."""

    def checked(rows: InputRows) -> Datum:
        try:
            return node(rows)
        except (pa.ArrowException, MemoryError) as error:
            raise data_error(expr, error) from None

    return checked


def data_error(expr: Expr, error: BaseException) -> DataError:
    """What to tell the user when computing an expression failed."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    message = f"overflow in {told(expr)}" if reason == "overflow" else f"cannot evaluate {told(expr)}"
    detail = f"the result does not fit {expr.type}" if reason == "overflow" else reason.rstrip(".")
    return DataError(message, detail=detail)
