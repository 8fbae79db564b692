"""Kernels on streams of events that need no program: order, merging, sessions, windows."""
