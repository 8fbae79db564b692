"""Scalar expressions, evaluated: on Arrow batches, as SQL for DuckDB and Spark, and as source for kernels."""

from __future__ import annotations

from millstream.physical.expressions.evaluator import Evaluator, Filter, compile_arrow, compile_filter
from millstream.physical.expressions.kernel import KernelExpr, to_kernel_source
from millstream.physical.expressions.kernel_helpers import HELPERS, helper_source
from millstream.physical.expressions.sql import quote_duckdb, quote_spark, to_duckdb_sql, to_spark_sql

__all__ = [
    "Evaluator",
    "Filter",
    "HELPERS",
    "KernelExpr",
    "compile_arrow",
    "compile_filter",
    "helper_source",
    "quote_duckdb",
    "quote_spark",
    "to_duckdb_sql",
    "to_kernel_source",
    "to_spark_sql",
]
