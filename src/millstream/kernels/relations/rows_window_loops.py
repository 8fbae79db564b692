"""Kernel source: which rows the last ones of each key are, at most as many as each row says, moving every `every`."""

from __future__ import annotations

from typing import Any


def slide_rows(
    slots: Any, times: Any, first: Any, most: Any, every: Any, signed: Any, held: Any, oldest: Any, newest: Any,
    waiting: Any, early: Any, start: Any, end: Any, after: Any, entered: Any, log: Any, logged: Any,
) -> Any:  # fmt: skip
    """Let rows number `first`, `first` + 1, … come. A key's rows are a chain (`oldest`, `after`): the `held` ones in
    its window, then the `waiting` ones of its unfinished slide, which begin at `early`. `log` notes the number n of a
    row that enters a window and, if `signed`, ~n of one that leaves; returns how much it holds."""
    for r in range(len(slots)):
        row = first + r
        slot = slots[r]
        time = times[r]
        start[row] = time
        end[row] = 9223372036854775807
        after[row] = -1
        entered[row] = False
        if newest[slot] >= 0:
            after[newest[slot]] = row
        newest[slot] = row
        if waiting[slot] == 0:
            early[slot] = row
        waiting[slot] += 1
        if waiting[slot] < every:
            continue
        waiting[slot] = 0
        coming = early[slot]
        while coming >= 0:
            if held[slot] == most[r]:
                leaving = oldest[slot]
                end[leaving] = time
                oldest[slot] = after[leaving]
                held[slot] -= 1
                if signed:
                    log[logged] = ~leaving
                    logged += 1
            if held[slot] == 0:
                oldest[slot] = coming
            start[coming] = time
            entered[coming] = True
            log[logged] = coming
            logged += 1
            held[slot] += 1
            coming = after[coming]
    return logged


def closed_prefix(log: Any, begin: Any, stop: Any, end: Any) -> Any:
    """Where the first row stands in a log of rows, from `begin` on, that is still in its window."""
    place = begin
    while place < stop and end[log[place]] != 9223372036854775807:
        place += 1
    return place


def link_rows(slots: Any, entered: Any, end: Any, held: Any, oldest: Any, newest: Any, waiting: Any, early: Any,
              after: Any) -> None:  # fmt: skip
    """Make the chains of rows that are known to have entered or left."""
    for row in range(len(slots)):
        after[row] = -1
        slot = slots[row]
        if end[row] != 9223372036854775807:
            continue
        if newest[slot] >= 0:
            after[newest[slot]] = row
        newest[slot] = row
        if entered[row]:
            if held[slot] == 0:
                oldest[slot] = row
            held[slot] += 1
        else:
            if waiting[slot] == 0:
                early[slot] = row
            waiting[slot] += 1
