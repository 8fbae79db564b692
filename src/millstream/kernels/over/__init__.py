"""Aggregates OVER the rows before each row."""

from millstream.kernels.over.spec import Frame, OverCall, OverSpec

__all__ = ["Frame", "OverCall", "OverSpec"]
