"""Expressions as SQL text for DuckDB and Spark."""
