"""The compiler policy: kernel source is text that runs as plain Python or, once that pays, as machine code.

Numba is imported here alone, and only once a kernel has rows enough to repay it.
"""

from millstream.kernels.jit.compiled import Compiled, as_input, compile_kernel, source_of
from millstream.kernels.jit.parallel import run_all
from millstream.kernels.jit.policy import Mode, current, set_mode, set_threads, threads, using

__all__ = [
    "Compiled",
    "Mode",
    "as_input",
    "compile_kernel",
    "current",
    "run_all",
    "set_mode",
    "set_threads",
    "source_of",
    "threads",
    "using",
]
