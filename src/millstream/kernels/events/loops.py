"""Instances in a pool of rows, in lists by state and key: this is kernel source, shared by all automata."""

from __future__ import annotations

from typing import Any

START, END, HEADER = 0, 1, 4
"""the words of a row; behind them which values are NULL, and the values"""

NEXT, PREV, SUCCESSOR, STATE = 4, 5, 6, 7
"""the halves of words of a row: few words are few lines of the cache"""

FREE, USED, LIVE, NUMBERS, EPOCH, MARKED, OUT, NEED_ROWS, NEED_OUT, NEED_MARKS, SIZE = range(11)
"""what is known of the pool"""

NEAR, AHEAD = 1 << 15, 8
"""words of rows that stay in the cache anyway; how many events before it is taken what one looks at is fetched"""

UNTOUCHED, GONE, WAITING = -1, -2, -3
"""of an instance that no event of this instant met; that one met, with nothing to follow; that takes another's place"""


def take(halves: Any, meta: Any) -> Any:
    x = meta[FREE]
    if x >= 0:
        meta[FREE] = halves[x, NEXT]
    else:
        x = meta[USED]
        meta[USED] += 1
    meta[LIVE] += 1
    return x


def give_back(halves: Any, meta: Any, x: Any) -> Any:
    halves[x, STATE] = -1
    halves[x, NEXT] = meta[FREE]
    meta[FREE] = x
    meta[LIVE] -= 1


def append(halves: Any, numbers: Any, lists: Any, meta: Any, state: Any, code: Any, x: Any) -> Any:
    last = lists[state, code, 1]
    halves[x, NEXT] = -1
    halves[x, PREV] = last
    halves[x, STATE] = state
    halves[x, SUCCESSOR] = UNTOUCHED
    numbers[x] = meta[NUMBERS]
    meta[NUMBERS] += 1
    if last < 0:
        lists[state, code, 0] = x
    else:
        halves[last, NEXT] = x
    lists[state, code, 1] = x
    lists[state, code, 2] += 1


def unlink(halves: Any, lists: Any, state: Any, code: Any, x: Any) -> Any:
    before = halves[x, PREV]
    after = halves[x, NEXT]
    if before < 0:
        lists[state, code, 0] = after
    else:
        halves[before, NEXT] = after
    if after < 0:
        lists[state, code, 1] = before
    else:
        halves[after, PREV] = before
    lists[state, code, 2] -= 1


def code_of(rows: Any, code_words: Any, state: Any, x: Any) -> Any:
    """The code by which an instance is found; 0 in states where all are looked at."""
    word = code_words[state]
    return rows[x, word] if word >= 0 else 0


def wait(halves: Any, numbers: Any, meta: Any, x: Any, y: Any) -> Any:
    """Let `y` take the place of `x` once the instant is over."""
    halves[x, SUCCESSOR] = y
    halves[y, SUCCESSOR] = WAITING
    halves[y, PREV] = x
    halves[y, STATE] = halves[x, STATE]
    numbers[y] = meta[NUMBERS]
    meta[NUMBERS] += 1


def mark(halves: Any, meta: Any, marked: Any, x: Any) -> Any:
    if halves[x, SUCCESSOR] == UNTOUCHED:
        halves[x, SUCCESSOR] = GONE
        marked[meta[MARKED]] = x
        meta[MARKED] += 1


def commit(rows: Any, halves: Any, code_words: Any, lists: Any, meta: Any, marked: Any) -> Any:
    """The instant is over: instances that an event met go, or others take their places."""
    for place in range(meta[MARKED]):
        x = marked[place]
        y = halves[x, SUCCESSOR]
        if y >= 0:
            rows[x, START] = rows[y, START]
            rows[x, END] = rows[y, END]
            for word in range(HEADER, rows.shape[1]):
                rows[x, word] = rows[y, word]
            halves[x, SUCCESSOR] = UNTOUCHED
            give_back(halves, meta, y)
        else:
            state = halves[x, STATE]
            unlink(halves, lists, state, code_of(rows, code_words, state, x), x)
            give_back(halves, meta, x)
    meta[MARKED] = 0


def sweep(rows: Any, halves: Any, code_words: Any, lists: Any, meta: Any, bounds: Any, now: Any) -> Any:
    """Forget instances that have lasted too long to lead anywhere."""
    for x in range(meta[USED]):
        state = halves[x, STATE]
        held = state >= 0 and halves[x, SUCCESSOR] == UNTOUCHED and bounds[state] >= 0
        if held and now - rows[x, START] > bounds[state]:
            unlink(halves, lists, state, code_of(rows, code_words, state, x), x)
            give_back(halves, meta, x)


def link(
    rows: Any, halves: Any, code_words: Any, numbers: Any, lists: Any, meta: Any, marked: Any,
    former: Any, touched: Any, replaced: Any,
) -> Any:  # fmt: skip
    """Put the first rows of the pool, which had these numbers, into their lists; those that take the place of another,
    which `replaced` has, wait for the end of the instant."""
    for x in range(len(former)):
        if replaced[x] < 0:
            meta[NUMBERS] = former[x]
            state = halves[x, STATE]
            append(halves, numbers, lists, meta, state, code_of(rows, code_words, state, x), x)
            if touched[x]:
                mark(halves, meta, marked, x)
    for x in range(len(former)):
        if replaced[x] >= 0:
            meta[NUMBERS] = former[x]
            wait(halves, numbers, meta, replaced[x], x)
