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


def place(index: Any) -> Any:
    """An index that is not negative: compiled code then does not ask whether it counts from the end."""
    return index


def total(a: Any, b: Any) -> tuple[Any, bool]:
    """The sum of two integers, and whether it fits 64 bits; if not, the sum is anything."""
    return _fitting(int(a) + int(b))


def difference(a: Any, b: Any) -> tuple[Any, bool]:
    """The like for a - b."""
    return _fitting(int(a) - int(b))


def product(a: Any, b: Any) -> tuple[Any, bool]:
    """The like for a * b."""
    return _fitting(int(a) * int(b))


def _fitting(exact: int) -> tuple[int, bool]:
    fits = -9223372036854775808 <= exact <= 9223372036854775807
    return (exact if fits else 0), fits


def remainder(a: Any, b: Any) -> Any:
    """What a division towards zero leaves, with the sign of a; b is neither 0 nor -1."""
    rest = a % b
    return rest - b if rest != 0 and (a < 0) != (b < 0) else rest


def load_word(data: Any, index: Any) -> np.int64:
    """Eight bytes from `data[index]` on as an integer, the first one lowest."""
    return np.int64(int.from_bytes(data[index : index + 8].tobytes(), "little", signed=True))


def turned(word: Any) -> np.int64:
    """The bytes of a word in the opposite order."""
    return np.int64(int.from_bytes(int(word).to_bytes(8, "little", signed=True), "big", signed=True))
