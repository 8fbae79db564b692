"""Typed scalar expressions, the functions they call, and their forms: Arrow, DuckDB, Spark, kernel source."""
