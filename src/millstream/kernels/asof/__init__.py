"""ASOF joins: each row with the nearest one of another stream, before it or after it."""

from millstream.kernels.asof.spec import AsofSpec

__all__ = ["AsofSpec"]
