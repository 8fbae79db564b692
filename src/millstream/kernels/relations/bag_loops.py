"""Kernel source: how often each row is in DISTINCT, EXCEPT or INTERSECT while rows begin and end in the inputs.

Events come as up to four lists in order of time: what begins and what ends in each input. At each instant all of them
are counted first, then the groups that they touched are settled.
"""

from __future__ import annotations

from typing import Any

from millstream.kernels.relations.place_loops import BASE, LINK, OPEN, OWNER, TAIL, close_place, open_place
from millstream.kernels.relations.place_loops import END as PLACE_END

FOREVER = 0x7FFF_FFFF_FFFF_FFFF
DISTINCT, EXCEPT, INTERSECT = 0, 1, 2
SLOT, END = 0, 1
LIVE, DIED, MARK = 0, 1, 2
LEFT, RIGHT, GONE, LEFT_REACH, RIGHT_REACH, UNTIL, FIRST, LAST, HAVE = 3, 4, 5, 6, 7, 8, 9, 10, 11
"""Lanes of a group: how many rows each input has, how many ended on the left at this instant, the last end of the rows
of each input so far, how far the output is known; the oldest and newest open place + 1, and how many are open."""


def touch(groups: Any, slot: Any, touched: Any, count: Any) -> Any:
    """Note that something happens to a group at this instant."""
    if groups[slot, MARK] == 0:
        groups[slot, MARK] = 1
        touched[count] = slot
        return count + 1
    return count


def wanted(op: Any, every: Any, left: Any, right: Any) -> Any:
    """How often a row is in the output that is so often in the inputs."""
    if every:
        return max(left - right, 0) if op == EXCEPT else min(left, right)
    if op == DISTINCT:
        return 1 if left > 0 else 0
    if op == EXCEPT:
        return 1 if left > 0 and right <= 0 else 0
    return 1 if left > 0 and right > 0 else 0


def sweep_intervals(
    op: Any, every: Any, left_time: Any, left: Any, left_ends: Any, left_gone: Any, right_time: Any, right: Any,
    right_ends: Any, right_gone: Any, groups: Any, touched: Any, places: Any, marks: Any,
) -> None:  # fmt: skip
    """Work on all events of intervals; output rows take places."""
    i = 0
    j = 0
    k = 0
    m = 0
    while True:
        t = FOREVER
        if i < len(left_time):
            t = left_time[i]
        if j < len(left_ends):
            t = min(t, left_ends[j])
        if k < len(right_time):
            t = min(t, right_time[k])
        if m < len(right_ends):
            t = min(t, right_ends[m])
        if t == FOREVER:
            return
        count = 0
        while j < len(left_ends) and left_ends[j] == t:
            slot = left_gone[j, SLOT]
            groups[slot, LIVE] -= 1
            groups[slot, LEFT] -= 1
            groups[slot, GONE] += 1
            count = touch(groups, slot, touched, count)
            j += 1
        while m < len(right_ends) and right_ends[m] == t:
            slot = right_gone[m, SLOT]
            groups[slot, LIVE] -= 1
            groups[slot, RIGHT] -= 1
            count = touch(groups, slot, touched, count)
            m += 1
        while i < len(left_time) and left_time[i] == t:
            slot = left[i, SLOT]
            groups[slot, LIVE] += 1
            groups[slot, LEFT] += 1
            groups[slot, LEFT_REACH] = max(groups[slot, LEFT_REACH], left[i, END])
            count = touch(groups, slot, touched, count)
            i += 1
        while k < len(right_time) and right_time[k] == t:
            slot = right[k, SLOT]
            groups[slot, LIVE] += 1
            groups[slot, RIGHT] += 1
            groups[slot, RIGHT_REACH] = max(groups[slot, RIGHT_REACH], right[k, END])
            count = touch(groups, slot, touched, count)
            k += 1
        for c in range(count):
            slot = touched[c]
            groups[slot, MARK] = 0
            want = wanted(op, every, groups[slot, LEFT], groups[slot, RIGHT])
            if every:
                settle_copies(groups, slot, want, t, places, marks)
            elif op == EXCEPT:
                settle_one(groups, slot, want, t, places, marks)
            elif want > 0 and groups[slot, UNTIL] <= t:
                # While these rows last so does the output, so its end is known at once.
                until = groups[slot, LEFT_REACH]
                if op == INTERSECT:
                    until = min(until, groups[slot, RIGHT_REACH])
                groups[slot, UNTIL] = until
                close_place(places, marks, open_place(places, marks, t, slot), until)
            groups[slot, GONE] = 0
            if groups[slot, LIVE] == 0:
                groups[slot, DIED] = marks[TAIL]


def settle_one(groups: Any, slot: Any, want: Any, t: Any, places: Any, marks: Any) -> None:
    """Open or close the only place of a group; one whose rows all have ended makes room for a new one, so that others
    need not wait for it any longer."""
    if groups[slot, FIRST] > 0 and (want == 0 or groups[slot, UNTIL] <= t):
        close_place(places, marks, groups[slot, FIRST] - 1, t)
        groups[slot, FIRST] = 0
    if groups[slot, FIRST] == 0 and want > 0:
        groups[slot, FIRST] = open_place(places, marks, t, slot) + 1
        groups[slot, UNTIL] = groups[slot, LEFT_REACH]


def settle_copies(groups: Any, slot: Any, want: Any, t: Any, places: Any, marks: Any) -> None:
    """Open or close places until as many are open as wanted. For each row that ended on the left the oldest one closes
    in any case, so that others need not wait for it any longer."""
    have = groups[slot, HAVE]
    close = max(have - want, min(have, groups[slot, GONE]))
    for _ in range(close):
        place = groups[slot, FIRST] - 1
        close_place(places, marks, place, t)
        groups[slot, FIRST] = places[place - marks[BASE], LINK]
    have -= close
    for _ in range(want - have):
        place = open_place(places, marks, t, slot)
        places[place - marks[BASE], LINK] = 0
        if have == 0:
            groups[slot, FIRST] = place + 1
        else:
            places[groups[slot, LAST] - 1 - marks[BASE], LINK] = place + 1
        groups[slot, LAST] = place + 1
        have += 1
    groups[slot, HAVE] = have


def sweep_changes(
    op: Any, every: Any, left_time: Any, left: Any, right_time: Any, right: Any, groups: Any, touched: Any, out: Any
) -> int:
    """Work on all changes; what changes in the output is written to `out` (slot, sign, time). How much that is."""
    i = 0
    k = 0
    written = 0
    while i < len(left_time) or k < len(right_time):
        t = left_time[i] if i < len(left_time) else right_time[k]
        if k < len(right_time):
            t = min(t, right_time[k])
        count = 0
        while i < len(left_time) and left_time[i] == t:
            slot = left[i, SLOT]
            groups[slot, LIVE] += left[i, END]
            groups[slot, LEFT] += left[i, END]
            count = touch(groups, slot, touched, count)
            i += 1
        while k < len(right_time) and right_time[k] == t:
            slot = right[k, SLOT]
            groups[slot, LIVE] += right[k, END]
            groups[slot, RIGHT] += right[k, END]
            count = touch(groups, slot, touched, count)
            k += 1
        for c in range(count):
            slot = touched[c]
            groups[slot, MARK] = 0
            want = wanted(op, every, groups[slot, LEFT], groups[slot, RIGHT])
            more = want - groups[slot, HAVE]
            groups[slot, HAVE] = want
            for _ in range(abs(more)):
                out[written, 0] = slot
                out[written, 1] = 1 if more > 0 else -1
                out[written, 2] = t
                written += 1
    return written


def sweep_to_intervals(time: Any, rows: Any, groups: Any, touched: Any, places: Any, marks: Any) -> None:
    """Changes as rows with places: of equal rows the one that came first goes first."""
    i = 0
    while i < len(time):
        t = time[i]
        count = 0
        while i < len(time) and time[i] == t:
            slot = rows[i, SLOT]
            groups[slot, LIVE] += rows[i, END]
            if rows[i, END] < 0:
                groups[slot, GONE] += 1
            count = touch(groups, slot, touched, count)
            i += 1
        for c in range(count):
            slot = touched[c]
            groups[slot, MARK] = 0
            settle_copies(groups, slot, max(groups[slot, LIVE], 0), t, places, marks)
            groups[slot, GONE] = 0
            if groups[slot, LIVE] == 0:
                groups[slot, DIED] = marks[TAIL]


def relink(groups: Any, places: Any, marks: Any) -> None:
    """Find the open places of each group again, in order."""
    for place in range(marks[BASE], marks[TAIL]):
        at = place - marks[BASE]
        if places[at, PLACE_END] == OPEN:
            slot = places[at, OWNER]
            places[at, LINK] = 0
            if groups[slot, HAVE] == 0:
                groups[slot, FIRST] = place + 1
            else:
                places[groups[slot, LAST] - 1 - marks[BASE], LINK] = place + 1
            groups[slot, LAST] = place + 1
            groups[slot, HAVE] += 1
