"""Scalar functions written in Python: they take Arrow arrays, a value for each row, and return one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.nodes import Call, Expr, walk
from millstream.records import dataclass


@dataclass(frozen=True, slots=True)
class PythonCode:
    """A class or a function; what it is told by is its text, so that it is the same in another process."""

    name: str
    digest: str
    made: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"Python {self.made.__name__}"


@dataclass(frozen=True, slots=True)
class ColumnCall(Call):
    """What no engine knows by name, so it runs where Python does, over columns."""

    def run(self, columns: list[pa.Array], rows: int) -> pa.Array:
        """The values for rows, from those of the arguments."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PythonCall(ColumnCall):
    """A call of a function that a user has written."""

    code: PythonCode = field(kw_only=True)

    def __str__(self) -> str:
        return f"{self.code.name}({', '.join(map(str, self.args))})"

    def run(self, columns: list[pa.Array], rows: int) -> pa.Array:
        """The values for rows, from those of the arguments."""
        try:
            made = self.code.made(*columns)
            array = made if isinstance(made, pa.Array | pa.ChunkedArray) else pa.array(made, self.type.arrow)
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            array = array.cast(self.type.arrow)
        except Exception as error:
            raise DataError(f"function {self.code.name} failed", detail=f"{type(error).__name__}: {error}") from error
        if len(array) != rows:
            raise DataError(f"function {self.code.name} returned {len(array)} values for {rows} rows")
        return array


def calls_python(expr: Expr) -> bool:
    """Whether some part of an expression is written in Python."""
    return any(isinstance(part, ColumnCall) for part in walk(expr))


def outermost_calls(expr: Expr) -> list[ColumnCall]:
    """The calls that are not arguments of others."""
    if isinstance(expr, ColumnCall):
        return [expr]
    return [call for child in expr.children() for call in outermost_calls(child)]


def without(expr: Expr, calls: dict[Expr, Expr]) -> Expr:
    """The expression with calls replaced by what stands for them."""
    if expr in calls:
        return calls[expr]
    children = expr.children()
    changed = tuple(without(child, calls) for child in children)
    return expr if changed == children else expr.with_children(changed)


def by_halves(compute: Callable[[Any], pa.Array], rows: Any, type_: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The values of rows, NULL where computing fails, and the positions of those: rows that fail are found by
    halving."""
    try:
        return compute(rows), []
    except DataError:
        if rows.num_rows == 1:
            return pa.nulls(1, type_), [0]
    middle = rows.num_rows // 2
    first, failed = by_halves(compute, rows.slice(0, middle), type_)
    second, others = by_halves(compute, rows.slice(middle), type_)
    return pa.concat_arrays([first, second]), [*failed, *(middle + place for place in others)]
