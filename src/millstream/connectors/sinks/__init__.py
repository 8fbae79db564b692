"""Sinks: files written exactly once, the terminal, memory, and one that only counts."""
