"""Instances in a pool of rows, in lists by state and key: this is kernel source, shared by all automata."""

from __future__ import annotations

from typing import Any

START, END, NEXT, PREV, NUMBER, STATE, CODE, SUCCESSOR, HEADER = range(9)
"""the words of a row; behind them which values are NULL, and the values"""

FREE, USED, LIVE, NUMBERS, EPOCH, MARKED, OUT, NEED_ROWS, NEED_OUT, NEED_MARKS, SIZE = range(11)
"""what is known of the pool"""

UNTOUCHED, GONE, WAITING = -1, -2, -3
"""of an instance that no event of this instant met; that one met, with nothing to follow; that takes another's place"""


def take(rows: Any, meta: Any) -> Any:
    x = meta[FREE]
    if x >= 0:
        meta[FREE] = rows[x, NEXT]
    else:
        x = meta[USED]
        meta[USED] += 1
    meta[LIVE] += 1
    return x


def give_back(rows: Any, meta: Any, x: Any) -> Any:
    rows[x, STATE] = -1
    rows[x, NEXT] = meta[FREE]
    meta[FREE] = x
    meta[LIVE] -= 1


def append(rows: Any, lists: Any, meta: Any, state: Any, code: Any, x: Any) -> Any:
    last = lists[state, code, 1]
    rows[x, NEXT] = -1
    rows[x, PREV] = last
    rows[x, STATE] = state
    rows[x, CODE] = code
    rows[x, SUCCESSOR] = UNTOUCHED
    rows[x, NUMBER] = meta[NUMBERS]
    meta[NUMBERS] += 1
    if last < 0:
        lists[state, code, 0] = x
    else:
        rows[last, NEXT] = x
    lists[state, code, 1] = x
    lists[state, code, 2] += 1


def unlink(rows: Any, lists: Any, x: Any) -> Any:
    state = rows[x, STATE]
    code = rows[x, CODE]
    before = rows[x, PREV]
    after = rows[x, NEXT]
    if before < 0:
        lists[state, code, 0] = after
    else:
        rows[before, NEXT] = after
    if after < 0:
        lists[state, code, 1] = before
    else:
        rows[after, PREV] = before
    lists[state, code, 2] -= 1


def wait(rows: Any, meta: Any, x: Any, y: Any) -> Any:
    """Let `y` take the place of `x` once the instant is over."""
    rows[x, SUCCESSOR] = y
    rows[y, SUCCESSOR] = WAITING
    rows[y, PREV] = x
    rows[y, STATE] = rows[x, STATE]
    rows[y, CODE] = rows[x, CODE]
    rows[y, NUMBER] = meta[NUMBERS]
    meta[NUMBERS] += 1


def mark(rows: Any, meta: Any, marked: Any, x: Any) -> Any:
    if rows[x, SUCCESSOR] == UNTOUCHED:
        rows[x, SUCCESSOR] = GONE
        marked[meta[MARKED]] = x
        meta[MARKED] += 1


def commit(rows: Any, lists: Any, meta: Any, marked: Any) -> Any:
    """The instant is over: instances that an event met go, or others take their places."""
    for place in range(meta[MARKED]):
        x = marked[place]
        y = rows[x, SUCCESSOR]
        if y >= 0:
            rows[x, START] = rows[y, START]
            rows[x, END] = rows[y, END]
            for word in range(HEADER, rows.shape[1]):
                rows[x, word] = rows[y, word]
            rows[x, SUCCESSOR] = UNTOUCHED
            give_back(rows, meta, y)
        else:
            unlink(rows, lists, x)
            give_back(rows, meta, x)
    meta[MARKED] = 0


def sweep(rows: Any, lists: Any, meta: Any, bounds: Any, now: Any) -> Any:
    """Forget instances that have lasted too long to lead anywhere."""
    for x in range(meta[USED]):
        state = rows[x, STATE]
        held = state >= 0 and rows[x, SUCCESSOR] == UNTOUCHED and bounds[state] >= 0
        if held and now - rows[x, START] > bounds[state]:
            unlink(rows, lists, x)
            give_back(rows, meta, x)


def link(rows: Any, lists: Any, meta: Any, marked: Any, numbers: Any, touched: Any, replaced: Any) -> Any:
    """Put the first rows of the pool into their lists; those that take the place of another, which `replaced` has, wait
    for the end of the instant."""
    for x in range(len(numbers)):
        if replaced[x] < 0:
            meta[NUMBERS] = numbers[x]
            append(rows, lists, meta, rows[x, STATE], rows[x, CODE], x)
            if touched[x]:
                mark(rows, meta, marked, x)
    for x in range(len(numbers)):
        if replaced[x] >= 0:
            meta[NUMBERS] = numbers[x]
            wait(rows, meta, replaced[x], x)
