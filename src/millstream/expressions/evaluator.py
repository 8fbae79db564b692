"""Expressions compiled for batches: Arrow where every part of one has a counterpart there, DuckDB for the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from millstream.arrays import to_numpy
from millstream.expressions.arrow.compiler import compile_node
from millstream.expressions.arrow.node import Node, as_array, chosen, data_error
from millstream.expressions.duckdb_batch import DuckBatch
from millstream.expressions.functions import can_fail
from millstream.expressions.nodes import Call, Expr
from millstream.expressions.python_calls import by_halves, calls_python
from millstream.schema import Schema
from millstream.types import BOOLEAN

Bools = np.ndarray[tuple[int, int], np.dtype[np.bool_]]

Filter = Callable[[pa.RecordBatch], pa.Array]
"""From rows to a mask: true where the predicate holds, false where it does not or is NULL."""


class Evaluator:
    """Compiled expressions; called with rows, gives an array of `expr.type.arrow` for each expression.

    Rows must have the columns of the schema it was compiled for. Safe to call from several threads.
    """

    def __init__(self, exprs: Sequence[Expr], schema: Schema) -> None:
        self.exprs = tuple(exprs)
        nodes = [compile_node(expr, schema) for expr in self.exprs]
        self._arrow: list[tuple[int, Node, Expr]] = []
        self._slow: list[int] = []
        for i, (node, expr) in enumerate(zip(nodes, self.exprs, strict=True)):
            if node is None:
                self._slow.append(i)
            else:
                self._arrow.append((i, node, expr))
        self._nothing = [pa.nulls(0, expr.type.arrow) for expr in self.exprs]
        self._duck = DuckBatch([self.exprs[i] for i in self._slow]) if self._slow else None

    @property
    def paths(self) -> tuple[str, ...]:
        """How each expression is evaluated: 'arrow' or 'duckdb'."""
        return tuple("duckdb" if i in self._slow else "arrow" for i in range(len(self.exprs)))

    def first(self, rows: pa.RecordBatch) -> pa.Array:
        """The values of the first expression."""
        return self(rows)[0]

    def __call__(self, rows: pa.RecordBatch) -> list[pa.Array]:
        count = rows.num_rows
        if count == 0:
            # Heartbeats come often, and constants that fail must not fail for no row.
            return list(self._nothing)
        results: list[pa.Array] = [None] * len(self.exprs)
        for i, node, expr in self._arrow:
            try:
                results[i] = as_array(node(rows), count)
            except pa.ArrowException as error:
                raise data_error(expr, error) from None
        if self._duck is not None:
            for i, array in zip(self._slow, self._duck(rows), strict=True):
                results[i] = array
        return results


def failing_rows(exprs: Sequence[Expr], rows: pa.RecordBatch, schema: Schema) -> Bools:
    """Which expressions fail on which rows: a line for each expression."""
    failing = np.zeros((len(exprs), rows.num_rows), bool)
    doubtful = [i for i, expr in enumerate(exprs) if can_fail(expr) and not calls_python(expr)]
    answers = DuckBatch([Call(BOOLEAN, "$failed", (exprs[i],)) for i in doubtful])(rows) if doubtful else []
    for i, answer in zip(doubtful, answers, strict=True):
        failing[i] = to_numpy(answer)
    for i, expr in enumerate(exprs):
        if calls_python(expr):
            evaluate = Evaluator((expr,), schema)
            failing[i, by_halves(evaluate.first, rows, expr.type.arrow)[1]] = True
    return failing


def compile_arrow(exprs: Sequence[Expr], schema: Schema) -> Evaluator:
    """Compile expressions over batches of a schema."""
    return Evaluator(exprs, schema)


def compile_filter(predicate: Expr, schema: Schema) -> Filter:
    """Compile a predicate over batches of a schema to a mask without NULLs."""
    evaluate = Evaluator((predicate,), schema)

    def mask(rows: pa.RecordBatch) -> pa.Array:
        return chosen(evaluate(rows)[0], rows.num_rows)

    return mask
