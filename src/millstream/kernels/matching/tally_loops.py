"""Kernel source: rows of many queries counted, and those left out of which a query has too many waiting."""

from __future__ import annotations

from typing import Any

from millstream.kernels.jit.primitives import place


def count_rows(start: int, rows: int, numbers: Any, counts: Any) -> None:
    """One more for the number of each row."""
    for row in range(start, rows):
        counts[numbers[place(row)]] += 1


def admit_rows(
    start: int, rows: int, numbers: Any, until: Any, at: int, counts: Any, turns: Any, waiting: Any, turn: int,
    most: int, over: Any, kept: Any,
) -> int:  # fmt: skip
    """The rows of queries that end after this place in the results, at most so many of each in a turn; returns how many
    they are. Those that are too many are counted in `over`."""
    made = 0
    for row in range(start, rows):
        number = numbers[place(row)]
        if until[number] <= at:
            continue
        if most > 0:
            if turns[number] != turn:
                turns[number] = turn
                waiting[number] = 0
            if waiting[number] >= most:
                over[number] += 1
                continue
            waiting[number] += 1
        counts[number] += 1
        kept[made] = row
        made += 1
    return made
