"""Aggregates written in SQL: programs run over windows and groups."""
