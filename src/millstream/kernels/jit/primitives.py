"""Operations that compiled kernels have and Python lacks, in their Python form.

Kernel source imports them from here; its compiled form gets those of `intrinsics` instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

COMPILED = False
"""Whether this is the compiled form: work that only helps the processor is skipped in Python."""


def prefetch(array: Any, index: Any) -> None:
    """Ask the processor to bring `array[index]` near."""


def load_word(data: Any, index: Any) -> np.int64:
    """Eight bytes from `data[index]` on as an integer, the first one lowest."""
    return np.int64(int.from_bytes(data[index : index + 8].tobytes(), "little", signed=True))
