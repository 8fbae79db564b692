"""Expressions evaluated by DuckDB over one batch: the way for what `pyarrow.compute` cannot do."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pyarrow as pa

from millstream import limits, sealed_duckdb
from millstream.arrays import from_numpy
from millstream.errors import DataError
from millstream.expressions.nodes import CATCHING, Call, Expr, told, walk
from millstream.expressions.sql.text import to_duckdb_sql
from millstream.types import SqlType

_local = threading.local()


class DuckBatch:
    """A set of expressions as one query over a batch."""

    def __init__(self, exprs: Sequence[Expr]) -> None:
        self.exprs = tuple(exprs)
        self._columns = [_exported(to_duckdb_sql(expr), expr.type) for expr in self.exprs]
        self._query = _select(self._columns)
        self._tries = any(isinstance(part, Call) and part.fn in CATCHING for expr in exprs for part in walk(expr))

    def __call__(self, rows: pa.RecordBatch) -> list[pa.Array]:
        if rows.num_rows == 0:
            return [pa.nulls(0, expr.type.arrow) for expr in self.exprs]
        import duckdb

        try:
            table = _run(self._query, rows, self._tries)
        except duckdb.Error as error:
            raise self._blame(rows, error) from None
        return [_imported(table.column(i), expr.type) for i, expr in enumerate(self.exprs)]

    def _blame(self, rows: pa.RecordBatch, error: Exception) -> DataError:
        """The error of the first expression that fails alone."""
        import duckdb

        culprits = list(zip(self.exprs, self._columns, strict=True))
        while len(culprits) > 1:
            try:
                _run(_select([culprits[0][1]]), rows, self._tries)
            except duckdb.Error as own:
                error = own
                break
            culprits.pop(0)
        culprit = culprits[0][0]
        reason = str(error).splitlines()[0].partition(" Error: ")[2] or str(error)
        return DataError(f"cannot evaluate {told(culprit)}", detail=reason.rstrip("."))


def ask(query: str, rows: pa.RecordBatch) -> pa.Table:
    """The answer to a query over the table `millstream_rows`."""
    import duckdb

    try:
        return _run(query, rows, tries=False)
    except duckdb.Error as error:
        raise DataError(str(error).splitlines()[0].partition(" Error: ")[2].rstrip(".") or str(error)) from None


def _select(columns: list[str]) -> str:
    return "SELECT " + ", ".join(f"{column} AS c{i}" for i, column in enumerate(columns)) + " FROM millstream_rows"


def _run(query: str, rows: pa.RecordBatch, tries: bool) -> pa.Table:
    if not rows.num_columns:
        # A table needs a column to have rows.
        rows = pa.record_batch([pa.nulls(rows.num_rows, pa.bool_())], names=["millstream_row"])
    work = limits.current()
    connection = _connection(0 if work is None else work.limits.memory, tries)
    # not as a variable that DuckDB finds by its name: a connection that looks for those also looks for files
    connection.register("millstream_rows", _whole(rows))
    with nullcontext() if work is None else work.interruptible(connection.interrupt):
        return connection.sql(query).to_arrow_table()


def _whole(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with structs of their own: DuckDB takes none from the middle of an array."""
    if not any(column.offset and pa.types.is_struct(column.type) for column in rows.columns):
        return rows
    return rows.take(from_numpy(np.arange(rows.num_rows)))


def _connection(memory: int, tries: bool) -> Any:
    """A private database for each thread: connections cannot be shared while they run."""
    known: dict[tuple[int, bool], Any] = _local.__dict__.setdefault("connections", {})
    if (memory, tries) not in known:
        known[memory, tries] = sealed_duckdb.connect(threads=1, memory=memory, tries=tries)
    return known[memory, tries]


def _exported(sql: str, type_: SqlType) -> str:
    # Intervals leave DuckDB as months, days and nanoseconds; ours are microseconds.
    return f"epoch_us({sql})" if type_.name == "INTERVAL" else sql


def _imported(column: pa.ChunkedArray, type_: SqlType) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    if array.type == type_.arrow:
        return array
    return pa.nulls(len(array), type_.arrow) if type_.name == "NULL" else array.cast(type_.arrow)
