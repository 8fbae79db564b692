"""Kernels of the snapshot algebra: tables that change with time."""
