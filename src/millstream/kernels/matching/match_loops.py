"""Kernel source: the entries of a run whose intervals hold a row's values.

The entries of a run lie in order of the lower bound of their first interval, and are read as a balanced search tree:
the root is the middle one. `top` of an entry is the greatest upper bound in its subtree, so what lies to the left of an
instant is passed over in one step, and a row costs the logarithm of the run and what it matches. Where no interval has
an upper bound, those that begin below a value hold it, and the run is read from its beginning.
"""

from __future__ import annotations

from typing import Any

from millstream.kernels.jit.primitives import place

SMALL = 32
"""runs so short are read from their beginning to the first entry that begins above the value"""


def fill_tops(firsts: Any, counts: Any, high: Any, top: Any, stack: Any) -> None:
    """The greatest upper bound of every subtree."""
    for run in range(len(firsts)):
        depth = 0
        start = firsts[run]
        stop = start + counts[run]
        # a node is filled in once both of its subtrees are: it is met twice, the second time with its mark set
        stack[depth, 0] = start
        stack[depth, 1] = stop
        stack[depth, 2] = 0
        depth += 1
        while depth > 0:
            depth -= 1
            start = stack[depth, 0]
            stop = stack[depth, 1]
            if start >= stop:
                continue
            middle = (start + stop) >> 1
            if stack[depth, 2] == 0:
                stack[depth, 2] = 1
                depth += 1
                stack[depth, 0] = start
                stack[depth, 1] = middle
                stack[depth, 2] = 0
                depth += 1
                stack[depth, 0] = middle + 1
                stack[depth, 1] = stop
                stack[depth, 2] = 0
                depth += 1
                continue
            best = high[middle]
            if start < middle:
                best = max(best, top[(start + middle) >> 1])
            if middle + 1 < stop:
                best = max(best, top[(middle + 1 + stop) >> 1])
            top[middle] = best


def find_matches(
    row: int,
    rows: int,
    slots: Any,
    usable: Any,
    values: Any,
    firsts: Any,
    counts: Any,
    lows: Any,
    highs: Any,
    top: Any,
    bounded: bool,
    alive: Any,
    out_row: Any,
    out_entry: Any,
    found: Any,
    stack: Any,
    ends: Any,
    one: bool,
) -> int:
    """Pairs of rows and entries, from `row` on, or `one` of each row, and the `ends` of the pairs of each row, by which
    `out_row` may be left out. Returns the row before which the room for pairs ran out, or `rows`."""
    ranges = len(values)
    # the first two ranges are those of most queries
    second = min(ranges - 1, 1)
    low, other_low = lows[0], lows[second]
    high, other_high = highs[0], highs[second]
    room = len(out_entry)
    tells_rows = len(out_row) == room
    made = found[0]
    while row < rows:
        slot = slots[place(row)]
        if slot < 0 or slot >= len(firsts) or not usable[place(row)]:
            ends[place(row)] = made
            row += 1
            continue
        sought = values[0, place(row)]
        other = values[second, place(row)]
        first = firsts[slot]
        count = counts[slot]
        if room - made < count and not one and room - made < 64:
            found[0] = made
            return row
        begun = made
        depth = 0
        stack[0, 0] = first
        stack[0, 1] = first + count
        depth = 1
        full = False
        while depth > 0:
            depth -= 1
            start = stack[depth, 0]
            stop = stack[depth, 1]
            if stop - start > SMALL and bounded:
                middle = (start + stop) >> 1
                if top[middle] < sought:
                    continue
                stack[depth, 0] = start
                stack[depth, 1] = middle
                depth += 1
                if low[place(middle)] > sought:
                    continue
                stack[depth, 0] = middle + 1
                stack[depth, 1] = stop
                depth += 1
                start = middle
                stop = middle + 1
            for entry in range(start, stop):
                if low[place(entry)] > sought:
                    break
                fits = alive[place(entry)] != 0 and other_low[place(entry)] <= other
                if bounded:
                    fits = fits and sought <= high[place(entry)] and other <= other_high[place(entry)]
                for each in range(2, ranges):
                    value = values[each, place(row)]
                    fits = fits and lows[each, place(entry)] <= value
                    if bounded:
                        fits = fits and value <= highs[each, place(entry)]
                if fits:
                    if made == room:
                        full = True
                        break
                    if tells_rows:
                        out_row[place(made)] = row
                    out_entry[place(made)] = entry
                    made += 1
                    if one:
                        depth = 0
                        break
            if full:
                break
        if full:
            # this row is done again with more room
            found[0] = begun
            return row
        ends[place(row)] = made
        row += 1
    found[0] = made
    return row
