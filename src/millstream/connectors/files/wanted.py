"""What the reader of a file source asks for: the rest of the files may be left unread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal, columns_of, conjuncts, may_fail
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import BOOLEAN

_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Wanted:
    """The columns that are used, in lower case, the rows that are (all without a predicate), and the column of times.

    Columns that are not used may come as NULLs. The times always come: a row without one is refused.
    """

    columns: frozenset[str]
    predicate: Expr | None = None
    time: str | None = None

    @staticmethod
    def of(columns: tuple[str, ...], time: str | None) -> Wanted:
        return Wanted(frozenset(name.lower() for name in columns), None, time)

    def uses(self, column: str) -> bool:
        return column.lower() in self.columns or (self.time is not None and column.lower() == self.time.lower())

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """Predicates each of which must hold; none if evaluating them might fail, as that is to be told."""
        return () if self.predicate is None or may_fail(self.predicate) else conjuncts(self.predicate)


@dataclass(frozen=True)
class Bounds:
    """What is known of a column's values in a part of a file: the ends (arrays of one value) and how many are NULL."""

    low: pa.Array | None
    high: pa.Array | None
    nulls: int | None
    rows: int


def contradicts(conditions: tuple[Expr, ...], values: Mapping[str, pa.Array], schema: Schema) -> bool:
    """Whether a condition on columns of which every row has the same value (arrays of one) does not hold."""
    known = Schema(tuple(field for field in schema if field.name.lower() in values))
    for condition in conditions:
        columns = columns_of(condition)
        if columns and all(name in known for name in columns) and not _holds(condition, known, values):
            return True
    return False


def excludes(conditions: tuple[Expr, ...], bounds: Mapping[str, Bounds], schema: Schema) -> bool:
    """Whether one of the conditions holds for no row whose columns lie within the bounds."""
    return any(_never(condition, bounds, schema) for condition in conditions)


def _never(condition: Expr, bounds: Mapping[str, Bounds], schema: Schema) -> bool:
    match condition:
        case Call(fn="is_null", args=(Column(name=name),)):
            return name.lower() in bounds and bounds[name.lower()].nulls == 0
        case Call(fn="not", args=(Call(fn="is_null", args=(Column(name=name),)),)):
            return name.lower() in bounds and bounds[name.lower()].nulls == bounds[name.lower()].rows
        case Call(fn="in", args=(operand, *choices)):
            return all(_never_compares("=", operand, choice, bounds, schema) for choice in choices)
        case Call(fn=fn, args=(Literal() as constant, operand)) if fn in _FLIPPED:
            return _never_compares(_FLIPPED[fn], operand, constant, bounds, schema)
        case Call(fn=fn, args=(operand, constant)) if fn in _FLIPPED:
            return _never_compares(fn, operand, constant, bounds, schema)
    return False


def _never_compares(fn: str, operand: Expr, constant: Expr, bounds: Mapping[str, Bounds], schema: Schema) -> bool:
    """Whether `operand fn constant` holds for no row; the operand is a column, or a number in another type."""
    column = operand.arg if isinstance(operand, Cast) and operand.type.is_numeric else operand
    if not isinstance(column, Column) or column.name.lower() not in bounds or not isinstance(constant, Literal):
        return False
    if column is not operand and not (column.type.is_numeric and column.type.name != "DOUBLE"):
        return False
    if constant.value != constant.value:
        return False
    within = bounds[column.name.lower()]
    if within.nulls == within.rows:
        return True
    known = Schema((schema[column.name],))

    def reaches(fn: str, end: pa.Array | None) -> bool:
        if end is None:
            return True
        return _holds(Call(BOOLEAN, fn, (operand, constant)), known, {column.name.lower(): end})

    if fn in ("<", "<="):
        return not reaches(fn, within.low)
    if fn in (">", ">="):
        # files leave NaN out of their bounds, and it is greater than every number
        return column.type.name != "DOUBLE" and not reaches(fn, within.high)
    return not (reaches("<=", within.low) and reaches(">=", within.high))


def _holds(condition: Expr, schema: Schema, values: Mapping[str, pa.Array]) -> bool:
    """Whether a condition holds for a row of these values; one that cannot be evaluated might."""
    columns: list[Any] = [values[field.name.lower()] for field in schema]
    row = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    try:
        return bool(_compiled(condition, schema)(row)[0].as_py())
    except MillstreamError:
        return True


@lru_cache(maxsize=64)
def _compiled(condition: Expr, schema: Schema) -> Callable[[pa.RecordBatch], pa.Array]:
    # Expressions come with DuckDB and SQL, which reading whole files does not need.
    from millstream.expressions.evaluator import compile_filter

    return compile_filter(condition, schema)
