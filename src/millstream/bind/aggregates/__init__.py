"""Calls of aggregates, and GROUP BY."""
