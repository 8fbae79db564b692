"""Expressions as trees of `pyarrow.compute` calls."""
