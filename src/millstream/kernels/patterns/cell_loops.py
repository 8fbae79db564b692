"""Loops that follow the labels that threads left; kernel source, see `jit`.

A cell is the number of the cell that its thread wrote before (-1: none), the position of a row, and its label.
"""

from __future__ import annotations

from typing import Any

# What was found: partition, first and last row (-1: none), last cell, number, time, arrival number, kind, output row.
M_SLOT, M_START, M_END, M_CELL, M_NUMBER, M_TIME, M_SEQ, M_KIND, M_ROW = range(9)
FOUND = 9
MATCH, TIMEOUT, NO_MATCH = range(3)


def mark_cells(roots: Any, owners: Any, cells: Any, owner: Any) -> None:
    """Give the cells that can be reached from `roots` to the owners of these."""
    for i in range(len(roots)):
        c = roots[i]
        while c >= 0 and owner[c] < 0:
            owner[c] = owners[i]
            c = cells[3 * c]


def unroll(found: Any, count: int, cells: Any, next_: Any, begins: Any, rows: Any, labels: Any) -> int:
    """The rows of each match with their labels (0 if there are no cells), one match after the other from `begins`; how
    many they are, or would be if there were room."""
    total = 0
    for m in range(count):
        begins[m] = total
        p = found[m * FOUND + M_START]
        end = found[m * FOUND + M_END]
        if end < 0:
            continue
        first = total
        while True:
            if total < len(rows):
                rows[total] = p
                labels[total] = 0
            total += 1
            if p == end:
                break
            p = next_[p]
        c = found[m * FOUND + M_CELL]
        i = total
        while c >= 0 and i > first:
            i -= 1
            if i < len(rows):
                labels[i] = cells[3 * c + 2]
            c = cells[3 * c]
    begins[count] = total
    return total
