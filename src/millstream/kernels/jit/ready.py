"""The compiler, made ready in a process that others are forked from."""

from __future__ import annotations

from millstream.kernels.jit import policy


def make_ready() -> None:
    """Import the compiler and its tables, unless nothing is compiled here: most of the time that a process takes until
    it runs its first machine code."""
    if policy.current().mode == "off":
        return
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
