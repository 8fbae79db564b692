"""Kernel source: keys that are rows of several words."""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIER = -7046029254386353131
LOW_HALF = 0xFFFFFFFF


def hash_words(words: Any, row: int) -> Any:
    """A hash of one row."""
    hashed = np.int64(0)
    for j in range(words.shape[1]):
        hashed ^= words[row, j]
        hashed ^= (hashed >> 32) & LOW_HALF
        hashed *= MULTIPLIER
        hashed ^= (hashed >> 32) & LOW_HALF
    return hashed


def same_words(left: Any, left_row: int, right: Any, right_row: int) -> bool:
    """Whether two rows are equal."""
    same = True
    for j in range(left.shape[1]):
        same &= left[left_row, j] == right[right_row, j]
    return same
