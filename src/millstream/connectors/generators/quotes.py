"""Stock quotes: every symbol's price wanders like a random walk, popular symbols are quoted more often."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from millstream.connectors.generators.draws import Numbers, Reals
from millstream.connectors.generators.table import (
    NUMBER,
    REAL,
    TEXT,
    TIME,
    TIME_NAMES,
    GeneratedColumn,
    GeneratedRows,
    instants,
)

_OCTAVES = 8
_COARSER = 4
_VOLATILITY = 0.002


class Quotes(GeneratedRows):
    """One quote a row."""

    columns: ClassVar = {
        "symbol": GeneratedColumn(TEXT, ("sym", "ticker", "name", "stock")),
        "price": GeneratedColumn(REAL, ("last", "close")),
        "volume": GeneratedColumn(NUMBER, ("size", "shares", "quantity")),
        "ts": GeneratedColumn(TIME, ("date", "quotetime", "tradetime", *TIME_NAMES)),
    }

    @cached_property
    def symbol(self) -> pa.Array:
        return pa.array([symbol_name(rank) for rank in range(self.settings.symbols)]).take(pa.array(self._rank))

    @cached_property
    def price(self) -> Reals:
        return np.round(self._base * np.exp(_VOLATILITY * self._wander), 2)

    @cached_property
    def volume(self) -> Numbers:
        return (self.draws.skewed("volume", self.rows, 100) + 1) * 100

    @cached_property
    def ts(self) -> Numbers:
        return instants(self.rows, self.settings)

    @cached_property
    def _rank(self) -> Numbers:
        return self.draws.skewed("symbol", self.rows, self.settings.symbols)

    @cached_property
    def _base(self) -> Reals:
        return 5 + 495 * self.draws.uniform("base", self._rank)

    @cached_property
    def _wander(self) -> Reals:
        """A walk that can be entered anywhere: noise between lattice points at ever wider spacing and swing.

        A random walk's swing grows with the square root of the time it takes, and so do these.
        """
        ticks = self.rows / self.settings.symbols
        total = np.zeros(len(self.rows))
        for octave in range(_OCTAVES):
            spacing = float(_COARSER**octave)
            place = ticks / spacing
            left = np.floor(place)
            part = place - left
            lattice = self._rank * (1 << 40) + left.astype(np.int64)
            low = self.draws.uniform(f"walk{octave}", lattice)
            high = self.draws.uniform(f"walk{octave}", lattice + 1)
            total += np.sqrt(spacing) * (low + (high - low) * part - 0.5)
        return total


def symbol_name(rank: int) -> str:
    """Three or four letters, different for every rank.

    >>> symbol_name(0), symbol_name(1)
    ('HMZ', 'TFO')
    """
    block, rest = divmod(rank, 26**3)
    number = (rest * 7919 + 5069) % 26**3
    letters = "".join(chr(ord("A") + number // 26**place % 26) for place in (2, 1, 0))
    return letters + (chr(ord("A") + (block - 1) % 26) * ((block - 1) // 26 + 1) if block else "")
