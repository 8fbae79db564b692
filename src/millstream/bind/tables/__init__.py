"""Stored tables: the statements that the table store runs."""
