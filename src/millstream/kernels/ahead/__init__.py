"""Aggregates OVER rows that come after the current one."""

from millstream.kernels.ahead.spec import AheadSpec

__all__ = ["AheadSpec"]
