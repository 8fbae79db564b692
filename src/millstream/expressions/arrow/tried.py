"""Expressions that are evaluated again on some rows: TRY(…), and Python functions inside DuckDB expressions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.arrow.node import Datum, InputRows, Node, as_array
from millstream.expressions.duckdb_batch import DuckBatch
from millstream.expressions.nodes import Call, Column, Expr, walk
from millstream.expressions.python_calls import ColumnCall, by_halves, calls_python, outermost_calls, without
from millstream.schema import Field, Schema

Compile = Callable[[Expr], Node | None]


def build_try(call: Call, compile_: Compile) -> Node | None:
    """TRY: all rows at once; where some fail, DuckDB finds out which, or for functions in Python halving does."""
    value = compile_(call.args[0])
    if value is None:
        return None
    all_rows, careful = value, _careful(call, compile_)

    def node(rows: InputRows) -> Datum:
        try:
            return all_rows(rows)
        except (DataError, pa.ArrowException):
            return careful(rows)

    return node


def _careful(call: Call, compile_: Compile) -> Node:
    from millstream.expressions.evaluator import Evaluator

    read, schema = _reader(call, compile_=compile_)
    if not calls_python(call):
        duck = DuckBatch([call])
        return lambda rows: duck(read(rows))[0]
    evaluate = Evaluator(call.args, schema)
    return lambda rows: by_halves(evaluate.first, read(rows), call.type.arrow)[0]


def build_python(call: ColumnCall, compile_: Compile) -> Node:
    """A function in Python of arguments that any engine computes."""
    args = [_computed(arg, compile_) for arg in call.args]
    return lambda rows: call.run([as_array(arg(rows), rows.num_rows) for arg in args], rows.num_rows)


def around_python(expr: Expr, compile_: Compile) -> Node:
    """What DuckDB computes of the values of functions in Python."""
    calls = dict.fromkeys(outermost_calls(expr))
    places: dict[Expr, Expr] = {call: Column(call.type, f"$python{i}") for i, call in enumerate(calls)}
    values = [build_python(call, compile_) for call in calls]
    outer = without(expr, places)
    read, _ = _reader(
        *(part for part in walk(outer) if isinstance(part, Column) and part not in places.values()), compile_=compile_
    )
    duck = DuckBatch([outer])

    def node(rows: InputRows) -> Datum:
        batch = read(rows)
        for i, value in enumerate(values):
            batch = batch.append_column(f"$python{i}", value(rows))
        return duck(batch)[0]

    return node


def _computed(expr: Expr, compile_: Compile) -> Node:
    node = compile_(expr)
    if node is not None:
        return node
    if calls_python(expr):
        return around_python(expr, compile_)
    read, _ = _reader(expr, compile_=compile_)
    duck = DuckBatch([expr])
    return lambda rows: duck(read(rows))[0]


def _reader(*exprs: Expr, compile_: Compile) -> tuple[Callable[[InputRows], pa.RecordBatch], Schema]:
    """The columns that expressions read, as a batch of their own."""
    columns = {part.name: part for expr in exprs for part in walk(expr) if isinstance(part, Column)}
    nodes = {name: compile_(part) for name, part in columns.items()}
    schema = Schema(tuple(Field(name, part.type) for name, part in columns.items()))

    def read(rows: InputRows) -> pa.RecordBatch:
        values = {name: as_array(node(rows), rows.num_rows) for name, node in nodes.items() if node is not None}
        # a batch needs a column to have rows
        return pa.RecordBatch.from_pydict(values or {"millstream_row": pa.nulls(rows.num_rows, pa.bool_())})

    return read, schema
