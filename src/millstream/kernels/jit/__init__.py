"""The compiler policy: kernel source is text that runs as plain Python or, once that pays, as machine code.

Numba is imported here alone, and only once a kernel has rows enough to repay it.
"""

from millstream.kernels.jit.compiled import BULK_ROWS, Compiled, as_input, compile_kernel, source_of
from millstream.kernels.jit.parallel import run_all
from millstream.kernels.jit.policy import Mode, Policy, current, enter, leave, session_policy, threads, using
from millstream.kernels.jit.ready import make_ready

__all__ = [
    "BULK_ROWS",
    "Compiled",
    "Mode",
    "Policy",
    "as_input",
    "compile_kernel",
    "current",
    "enter",
    "leave",
    "make_ready",
    "run_all",
    "session_policy",
    "source_of",
    "threads",
    "using",
]
