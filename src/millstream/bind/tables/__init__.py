"""Stored tables: what the table store is asked."""
