"""Kernel source: entries of panes, and windows put together from them.

An entry is what a key has in a pane. Entries are numbered for ever; the one with number n is at place n - base.
"""

from __future__ import annotations

from typing import Any

COUNT, BASE, OPEN_PANE, OPEN_FIRST = 0, 1, 2, 3
NEXT_WINDOW, NEXT_ENTRY, PAIRS, GROUPS = 0, 1, 2, 3


def find_entries(
    slots: Any, time: Any, seq: Any, length: int, offset: int, meta: Any, newest: Any, slot_at: Any, pane_at: Any,
    first_at: Any, rows_at: Any, places: Any,
) -> None:  # fmt: skip
    """The place of each row's entry; rows are in order of time. Entries that were not there yet are made."""
    count, base, first = meta[COUNT], meta[BASE], meta[OPEN_FIRST]
    pane = meta[OPEN_PANE]
    start = pane * length + offset
    end = start + length
    for i in range(len(slots)):
        if time[i] < start or time[i] >= end:
            pane = (time[i] - offset) // length
            start = pane * length + offset
            end = start + length
            first = base + count
        slot = slots[i]
        entry = newest[slot]
        if entry < first:
            entry = base + count
            newest[slot] = entry
            slot_at[count] = slot
            pane_at[count] = pane
            first_at[count] = seq[i]
            rows_at[count] = 0
            count += 1
        place = entry - base
        rows_at[place] += 1
        places[i] = place
    meta[COUNT], meta[OPEN_PANE], meta[OPEN_FIRST] = count, pane, first


def gather_windows(
    slot_at: Any, pane_at: Any, first_at: Any, stop: int, last: int, grows: bool, size: int, slide: int, cursor: Any,
    group_of: Any, group_base: int, targets: Any, sources: Any, slot_of: Any, first_of: Any, window_of: Any,
) -> None:  # fmt: skip
    """Which entries make up which groups of the windows from the cursor's up to `last`, as many as there is room for.

    Size and slide are numbers of panes. Window w has the panes from w * slide on; if it grows, from the last multiple
    of `size` to w.
    """
    window, begin = cursor[NEXT_WINDOW], cursor[NEXT_ENTRY]
    pairs = 0
    groups = 0
    while begin < stop:
        # The first window that has this entry.
        earliest = pane_at[begin] if grows else (pane_at[begin] - size) // slide + 1
        if earliest > window:
            window = earliest
        if window > last:
            break
        low = window // size * size if grows else window * slide
        high = window + 1 if grows else low + size
        if pane_at[begin] < low:
            begin += 1
            continue
        end = begin
        while end < stop and pane_at[end] < high:
            end += 1
        if pairs + end - begin > len(targets):
            break
        known = group_base + groups
        for place in range(begin, end):
            slot = slot_at[place]
            group = group_of[slot] - group_base
            if group_of[slot] < known:
                group = groups
                group_of[slot] = group_base + group
                slot_of[group] = slot
                first_of[group] = first_at[place]
                window_of[group] = window
                groups += 1
            targets[pairs] = group
            sources[pairs] = place
            pairs += 1
        window += 1
    cursor[NEXT_WINDOW], cursor[NEXT_ENTRY], cursor[PAIRS], cursor[GROUPS] = window, begin, pairs, groups


def count_rows(targets: Any, sources: Any, rows_at: Any, rows: Any) -> None:
    """How many rows there are in the entries of each group."""
    for i in range(len(targets)):
        rows[targets[i]] += rows_at[sources[i]]
