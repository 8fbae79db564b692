"""Loops that every compiled program needs; this module is itself kernel source."""

from __future__ import annotations

from typing import Any

import numpy as np

MULTIPLIER = -7046029254386353131
LOW_HALF = 0xFFFFFFFF


def bucket(group: Any, word: Any, mask: Any) -> Any:
    """Where the chain of the cells of a group with a value begins."""
    hashed = np.int64(word) ^ (np.int64(group) << 20)
    hashed = (hashed ^ ((hashed >> 32) & LOW_HALF)) * MULTIPLIER
    hashed ^= (hashed >> 32) & LOW_HALF
    return hashed & mask


def chain(group: Any, word: Any, cell: Any, cells: Any, width: Any, lane: Any, heads: Any) -> None:
    """Put a cell at the end of its chain."""
    at = bucket(group, word, len(heads) - 1)
    cells[cell * width + lane] = 0
    here = heads[at]
    if here == 0:
        heads[at] = cell
    else:
        while cells[here * width + lane] != 0:
            here = cells[here * width + lane]
        cells[here * width + lane] = cell


def unchain(group: Any, word: Any, cell: Any, cells: Any, width: Any, lane: Any, heads: Any) -> None:
    """Take a cell out of its chain."""
    at = bucket(group, word, len(heads) - 1)
    here = heads[at]
    if here == cell:
        heads[at] = cells[cell * width + lane]
        return
    while cells[here * width + lane] != cell:
        here = cells[here * width + lane]
    cells[here * width + lane] = cells[cell * width + lane]


def chain_all(
    owners: Any, found: Any, width: Any, lane: Any, column: Any, nulls: Any, bit: Any, cells: Any, heads: Any
) -> None:
    """Build the chains of these cells, in order; `owners` are the groups' records."""
    for i in range(len(found)):
        cell = found[i]
        if (cells[cell * width + nulls] >> bit) & 1 == 0:
            chain(owners[i], cells[cell * width + column], cell, cells, width, lane, heads)


def gather(slots: Any, record: Any, width: Any, start: Any, cells: Any, cell_width: Any, found: Any, owner: Any) -> Any:
    """The cells of the lists of these groups, in order, and the place of the group that each belongs to; returns how
    many there are, of which as many are given as there is room for."""
    count = 0
    for i in range(len(slots)):
        cell = record[slots[i] * width + start]
        while cell != 0:
            if count < len(found):
                owner[count] = i
                found[count] = cell
            count += 1
            cell = cells[cell * cell_width]
    return count
