"""Aggregates OVER the rows before each row."""

from millstream.kernels.over.spec import Frame, OverCall, OverSpec
from millstream.plan.windows import Between

__all__ = ["Between", "Frame", "OverCall", "OverSpec"]
