"""Where CSV records end, found for a whole block at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.connectors.text.csv_records import Dialect
from millstream.connectors.text.decoder import Lines, line_starts

_QUOTE = ord('"')


def filled_records(block: bytes, ends: Lines, width: int) -> np.ndarray[Any, Any]:
    """Which records are rows: in a file of several columns an empty line is none, in a file of one it is NULL."""
    lengths = np.diff(ends, prepend=0)
    if width == 1:
        return np.ones(len(ends), dtype=bool)
    letters = np.frombuffer(block, dtype=np.uint8)
    first = letters[line_starts(ends)]
    blank = ((lengths == 1) & (first == 10)) | ((lengths == 2) & (first == 13))
    return np.asarray(~blank)


def quotes_within_lines(block: bytes, dialect: Dialect) -> bool:
    """Whether every quoted value is closed on its line."""
    ends = record_ends(block, True, dialect)
    return ends is not None and len(ends) == block.count(b"\n")


def record_ends(data: bytes, final: bool, dialect: Dialect) -> Lines | None:
    """Positions just after each line end outside quotes; None if quotes stand elsewhere than around fields."""
    letters = np.frombuffer(data, dtype=np.uint8)
    quotes = np.flatnonzero(letters == _QUOTE)
    if final and len(quotes) % 2:
        return None
    newlines = np.flatnonzero(letters == 10)
    opening, closing = quotes[0::2], quotes[1::2]
    separators = (10, 13, ord(dialect.delimiter))
    before = letters[opening[opening > 0] - 1]
    after = letters[closing[closing + 1 < len(letters)] + 1]
    # A doubled quote closes and opens at once: its second half is preceded by, and its first half followed by, a quote.
    if not np.isin(before, (*separators[::2], _QUOTE)).all() or not np.isin(after, (*separators, _QUOTE)).all():
        return None
    outside = np.searchsorted(quotes, newlines) % 2 == 0
    ends: Lines = newlines[outside] + 1
    return ends
