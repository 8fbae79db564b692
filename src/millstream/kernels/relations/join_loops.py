"""Kernel source: joining rows with intervals, and the time for which a row is matched."""

from __future__ import annotations

from typing import Any

from millstream.kernels.source.sides import the_other_side

ANEW = -2
"""In place of a row of a chain: the chain has not been entered."""


def match(
    left_start: Any, left_end: Any, left_key: Any, left_next: Any, left_head: Any, left_stop: Any,
    right_start: Any, right_end: Any, right_key: Any, right_next: Any, right_head: Any, right_stop: Any,
    where: Any, out_left: Any, out_right: Any, out_start: Any, out_end: Any,
) -> Any:  # fmt: skip
    """Enter the rows of both sides in order of their starts, each beside those of the other side that it meets.

    Stops when there is no room for another pair; `where` tells how far it came. Gives back how many pairs it made.
    """
    left, right, at, before = where[0], where[1], where[2], where[3]
    room = len(out_left)
    count = 0
    while left < left_stop or right < right_stop:
        if right == right_stop or (left < left_stop and left_start[left] <= right_start[right]):
            now, end, key = left_start[left], left_end[left], left_key[left]
            if key >= 0:
                if at == ANEW:
                    at, before = right_head[key], -1
                while at >= 0:
                    following = right_next[at]
                    if right_end[at] > now:
                        if count == room:
                            break
                        out_left[count], out_right[count] = left, at
                        out_start[count], out_end[count] = now, min(end, right_end[at])
                        count += 1
                        before = at
                    elif before < 0:
                        right_head[key] = following
                    else:
                        right_next[before] = following
                    at = following
                if at >= 0:
                    break
                left_next[left] = left_head[key]
                left_head[key] = left
            left += 1
        else:
            the_other_side()
        at = ANEW
    where[0], where[1], where[2], where[3] = left, right, at, before
    return count


def link(key: Any, links: Any, heads: Any, stop: Any) -> None:
    """Chain the rows before `stop` by key."""
    for row in range(stop):
        if key[row] >= 0:
            links[row] = heads[key[row]]
            heads[key[row]] = row


def cover(
    rows: Any, starts: Any, ends: Any, is_gap: Any, opened: Any, edge: Any, out_row: Any, out_start: Any, out_end: Any
) -> Any:
    """Take matches, in order of their starts, into the time [opened, edge) for which each row is matched at last.

    Gives what that shows to be over: gaps between matched times, or matched times themselves.
    """
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        if starts[i] > edge[row]:
            begin, end = (edge[row], starts[i]) if is_gap else (opened[row], edge[row])
            if begin < end:
                out_row[count], out_start[count], out_end[count] = row, begin, end
                count += 1
            opened[row] = starts[i]
        edge[row] = max(edge[row], ends[i])
    return count


def settle(
    end: Any, first: Any, stop: Any, now: Any, is_gap: Any,
    opened: Any, edge: Any, out_row: Any, out_start: Any, out_end: Any, found: Any,
) -> Any:  # fmt: skip
    """Gaps, or matched times, that no later match can change, of the rows from `first` to `stop`.

    Puts into `found` where the first of those that remain open begins, and the first row that is not over.
    """
    count = 0
    open_from = now
    unfinished = stop
    for row in range(first, stop):
        begin, until = (edge[row], end[row]) if is_gap else (opened[row], edge[row])
        if end[row] > now and row < unfinished:
            unfinished = row
        if begin >= until:
            continue
        if end[row] <= now or (not is_gap and (until < now or until == end[row])):
            out_row[count], out_start[count], out_end[count] = row, begin, until
            count += 1
            if is_gap:
                edge[row] = until
            else:
                opened[row] = until
        elif begin < open_from:
            open_from = begin
    found[0] = open_from
    found[1] = unfinished
    return count
