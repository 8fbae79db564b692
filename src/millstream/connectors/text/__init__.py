"""Rows in text: CSV and JSON lines, decoded in blocks of complete rows."""
