"""Aggregates OVER the rows before each row, and those that come after it."""

from millstream.kernels.over.spec import AheadSpec, Between, Frame, OverSpec

__all__ = ["AheadSpec", "Between", "Frame", "OverSpec"]
