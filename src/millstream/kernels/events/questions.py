"""A table of what loops ask Python, and of the answers: this is kernel source, shared by all automata that ask.

The last row is no part of the table: there a loop writes its question before it looks the question up.
"""

from __future__ import annotations

from typing import Any

TOLD, ANSWER, NULLS, NUMBER, ARGUMENTS = range(5)
"""the words of a row: what is known, the answer, which arguments are NULL, what is asked, and its arguments"""

NOTHING, OPEN, IS_NULL, KNOWN = range(4)
"""what is known of a row"""

FILLED, OPENED, FULL, COUNTS = range(4)
"""rows of the table in use; those without an answer; whether there was no room for one"""


def place(asked: Any, opened: Any, counts: Any) -> Any:
    """The row of the question in the last row; if it is new and there is room, it is put into the table, and its row
    is one of those that were opened."""
    last = asked.shape[0] - 1
    mixed = 0
    for word in range(NULLS, asked.shape[1]):
        low = asked[last, word] & 0xFFFFFFFF
        high = (asked[last, word] >> 32) & 0xFFFFFFFF
        mixed = ((mixed ^ low) * 1_000_003 + high) & 0x7FFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
        mixed = mixed ^ (mixed >> 13)
    at = mixed & (last - 1)
    while asked[at, TOLD] != NOTHING:
        same = True
        for word in range(NULLS, asked.shape[1]):
            if asked[at, word] != asked[last, word]:
                same = False
                break
        if same:
            return at
        at = (at + 1) & (last - 1)
    if 2 * counts[FILLED] >= last:
        counts[FULL] = 1
        return last
    for word in range(NULLS, asked.shape[1]):
        asked[at, word] = asked[last, word]
    asked[at, TOLD] = OPEN
    opened[counts[OPENED]] = at
    counts[FILLED] += 1
    counts[OPENED] += 1
    return at


def holds(asked: Any, at: Any) -> Any:
    """Whether a condition is known to hold."""
    return asked[at, TOLD] == KNOWN and asked[at, ANSWER] != 0
