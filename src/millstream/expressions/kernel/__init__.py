"""Expressions as Python source for the inner loops of kernels."""
