"""What leaves a program: DataFrames under the query's names, and Arrow tables in order."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.hosts.spark.blobs import SEQ, TIME
from millstream.hosts.spark.branches import Branch, width_of
from millstream.schema import Schema, unique_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def all_rows(branches: tuple[Branch, ...]) -> DataFrame:
    """One DataFrame of all rows, hidden columns included."""
    width = width_of(branches)
    return reduce(lambda a, b: a.unionAll(b), [branch.ordered(width) for branch in branches])


def surface(branches: tuple[Branch, ...], columns: tuple[str, ...]) -> DataFrame:
    """The rows as the user sees them, nothing hidden."""
    return named(reduce(lambda a, b: a.unionAll(b), [branch.bare() for branch in branches]), columns)


def named(df: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """A program's columns under the query's names, made different where they repeat."""
    quoted = [name.replace("`", "``") for name in unique_names(columns)]
    return df.selectExpr(*[f"c{i} AS `{name}`" for i, name in enumerate(quoted)])


def exact(table: pa.Table, schema: Schema, names: tuple[str, ...]) -> pa.Table:
    """Collected rows in order of time, ties by arrival, in exactly the plan's types under the query's names."""
    time = table.column(TIME).to_numpy()
    order = np.lexsort((table.column(SEQ).to_numpy(), time))
    if len(order) > 1 and not bool((np.diff(order) == 1).all()):
        table = table.take(pa.array(order))
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(table.columns[2:], schema.arrow, strict=True)
    ]
    return pa.Table.from_arrays(columns, names=list(names))
