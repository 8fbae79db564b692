"""Scalar expressions, evaluated: on Arrow batches, as SQL for DuckDB and Spark, and as source for kernels."""

from __future__ import annotations

from millstream.physical.expressions.evaluator import Evaluator, Filter, compile_arrow, compile_filter
from millstream.physical.expressions.sql import quote_duckdb, quote_spark, to_duckdb_sql, to_spark_sql

__all__ = [
    "Evaluator",
    "Filter",
    "compile_arrow",
    "compile_filter",
    "quote_duckdb",
    "quote_spark",
    "to_duckdb_sql",
    "to_spark_sql",
]
