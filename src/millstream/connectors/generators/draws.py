"""Random numbers by position: a draw depends on seed, purpose and row number, and on nothing drawn before."""

from __future__ import annotations

from typing import Any

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Reals = np.ndarray[Any, np.dtype[np.float64]]
_Words = np.ndarray[Any, np.dtype[np.uint64]]

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


class Draws:
    """The random draws of one seed; every purpose (a short word) has draws of its own."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._keys: dict[str, int] = {}

    def uniform(self, purpose: str, rows: Numbers) -> Reals:
        """Reals in [0, 1)."""
        return (self._words(purpose, rows) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, purpose: str, rows: Numbers, bound: int | Numbers) -> Numbers:
        """Whole numbers in [0, bound); the bound is less than 2**32."""
        high = self._words(purpose, rows) >> np.uint64(32)
        drawn: Numbers = ((high * np.asarray(bound, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)
        return drawn

    def skewed(self, purpose: str, rows: Numbers, bound: int) -> Numbers:
        """Ranks in [0, bound) where rank r is drawn about 1 / (r + 1) as often as rank 0."""
        ranks = np.exp(self.uniform(purpose, rows) * np.log(bound + 1)).astype(np.int64) - 1
        clipped: Numbers = np.clip(ranks, 0, bound - 1)
        return clipped

    def _words(self, purpose: str, rows: Numbers) -> _Words:
        words = rows.astype(np.uint64)
        words += np.uint64(self._key(purpose))
        words *= np.uint64(_STEP)
        return _mixed(words)

    def _key(self, purpose: str) -> int:
        """Where this purpose's draws begin in the sequence of all of them."""
        if purpose not in self._keys:
            word = self._seed & _MASK
            for letter in purpose.encode():
                word = _mixed_int((word + letter + 1) * _STEP & _MASK)
            self._keys[purpose] = word
        return self._keys[purpose]


def _mixed(words: _Words) -> _Words:
    """Scramble 64-bit words in place (the finaliser of SplitMix64)."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(_MIX_1)
    words ^= words >> np.uint64(27)
    words *= np.uint64(_MIX_2)
    words ^= words >> np.uint64(31)
    return words


def _mixed_int(word: int) -> int:
    word = (word ^ (word >> 30)) * _MIX_1 & _MASK
    word = (word ^ (word >> 27)) * _MIX_2 & _MASK
    return word ^ (word >> 31)
