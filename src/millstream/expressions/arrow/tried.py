"""TRY(…): the value of an expression, NULL on rows where it cannot be computed."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millstream.errors import DataError
from millstream.expressions.arrow.node import Datum, InputRows, Node, as_array
from millstream.expressions.duckdb_batch import DuckBatch
from millstream.expressions.nodes import Call, Column, Expr, walk

Compile = Callable[[Expr], Node | None]


def build(call: Call, compile_: Compile) -> Node | None:
    """Arrow computes all rows at once; where some fail, DuckDB finds out which."""
    value = compile_(call.args[0])
    columns = {part.name: part for part in walk(call) if isinstance(part, Column)}
    reads = {name: reader for name, part in columns.items() if (reader := compile_(part)) is not None}
    if value is None:
        return None
    all_rows, duck = value, DuckBatch([call])

    def node(rows: InputRows) -> Datum:
        try:
            return all_rows(rows)
        except (DataError, pa.ArrowException):
            read = {name: as_array(read(rows), rows.num_rows) for name, read in reads.items()}
            # a batch needs a column to have rows
            read = read or {"millstream_row": pa.nulls(rows.num_rows, pa.bool_())}
            return duck(pa.RecordBatch.from_pydict(read))[0]

    return node
