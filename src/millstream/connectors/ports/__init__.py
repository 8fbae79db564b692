"""Port sources: rows as lines over TCP."""
