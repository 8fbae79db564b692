"""Edge values as batches, and evaluation that goes on after errors."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from millstream.errors import BindError, DataError
from millstream.expressions.functions import resolve
from millstream.expressions.nodes import Column, Expr
from millstream.schema import Field, Schema
from millstream.types import SqlType
from tests.support.expressions import array_of, is_exact, same
from tests.support.operations import EDGES, Constant, Param

MOST_ROWS = 1500


def rows_of(types: list[SqlType]) -> pa.RecordBatch:
    """All combinations of edge values, or a fair sample of them."""
    combinations = list(itertools.product(*(EDGES[type_.name] for type_ in types)))
    if len(combinations) > MOST_ROWS:
        combinations = random.Random(7).sample(combinations, MOST_ROWS)
    arrays = [array_of([row[i] for row in combinations], type_) for i, type_ in enumerate(types)]
    return pa.record_batch(arrays, names=[f"x{i}" for i in range(len(types))])


def outcomes(evaluate: Any, rows: pa.RecordBatch, type_: SqlType) -> tuple[pa.Array, list[bool]]:
    """Values row by row, and which rows are errors (NULL among the values)."""
    try:
        (values,) = evaluate(rows)
        return values, [False] * rows.num_rows
    except DataError:
        if rows.num_rows == 1:
            return pa.nulls(1, type_.arrow), [True]
    half = rows.num_rows // 2
    parts = [outcomes(evaluate, part, type_) for part in (rows.slice(0, half), rows.slice(half))]
    return pa.concat_arrays([values for values, _ in parts]), parts[0][1] + parts[1][1]


def schema_of(types: list[SqlType]) -> Schema:
    return Schema(tuple(Field(f"x{i}", type_) for i, type_ in enumerate(types)))


def calls(fn: str, params: tuple[Param, ...], column: Callable[[SqlType, int], Column]) -> Iterator[Expr]:
    """Calls of a function with columns, and with every combination of constants it must have."""
    choices = []
    for param in params:
        number = sum(len(choice) == 1 and isinstance(choice[0], Column) for choice in choices)
        choices.append(param.samples if isinstance(param, Constant) else [column(param, number)])
    for args in itertools.product(*choices):
        try:
            yield resolve(fn, args)
        except BindError:
            assert len(args) > 1, f"{fn} refuses all it is tried on"


def differences(expr: Expr, rows: pa.RecordBatch, ours: Any, theirs: Any) -> list[str]:
    """Rows of which two evaluations give different values, or of which one alone is an error."""
    bad = []
    for i in range(rows.num_rows):
        if ours[1][i] != theirs[1][i] or not same(ours[0].slice(i, 1), theirs[0].slice(i, 1), is_exact(expr)):
            given = [str(column[i]) for column in rows.columns]
            results = ["error" if errors[i] else str(values[i]) for values, errors in (ours, theirs)]
            bad.append(f"of {given}: {results[0]} and {results[1]}")
    return bad
