"""Stored tables on Spark: Arrow rows handed over, or a DataFrame that the user registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.hosts.spark.blobs import for_spark
from millstream.hosts.spark.sqltext import spark_sql, spark_value
from millstream.physical.nodes import StoredTable
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SparkTable:
    """A table's columns as d0, d1, …; with `rows`, also d_row, the number of each row."""

    df: DataFrame
    rows: int | None = None


def arrow_frame(spark: SparkSession, rows: pa.Table, ddl: str) -> DataFrame:
    """A DataFrame of Arrow rows with exactly the given columns."""
    batches = [for_spark(batch) for batch in rows.to_batches()]
    table = pa.Table.from_batches(batches) if batches else rows
    if not table.num_rows:
        return spark.createDataFrame([], ddl)
    return spark.createDataFrame(table, ddl)


def stored_table(spark: SparkSession, rows: pa.Table, schema: Schema) -> SparkTable:
    """A table that was read in the driver."""
    names = [f"d{i}" for i in range(len(schema))]
    numbered = pa.Table.from_arrays(
        [*rows.columns, pa.array(np.arange(rows.num_rows, dtype=np.int64))], names=[*names, "d_row"]
    )
    columns = [f"{name} {field.type.spark}" for name, field in zip(names, schema, strict=True)]
    return SparkTable(arrow_frame(spark, numbered, ", ".join([*columns, "d_row BIGINT"])), rows.num_rows)


def collected(df: DataFrame, schema: Schema) -> pa.Table:
    """The rows of a DataFrame of the user's, brought to the driver."""
    rows: pa.Table = df.toDF(*schema.names).toArrow()
    return rows.cast(schema.arrow)


def registered_table(df: DataFrame, schema: Schema, node: StoredTable) -> SparkTable:
    """A table that is a DataFrame of the user's, filtered and projected as the plan reads it."""
    df = df.toDF(*[f"c{i}" for i in range(len(schema))])
    if node.predicate is not None:
        df = df.where(spark_sql(node.predicate, schema))
    columns = [f"{spark_value(expr, schema)} AS d{i}" for i, (_, expr) in enumerate(node.columns)]
    return SparkTable(df.selectExpr(*columns))


def brought_table(df: DataFrame, schema: Schema, node: StoredTable) -> pa.Table:
    """A table that is a DataFrame of the user's, as the plan reads it, brought to the driver."""
    rows: pa.Table = registered_table(df, schema, node).df.toArrow()
    return rows.rename_columns(list(node.schema.names)).cast(node.schema.arrow)
