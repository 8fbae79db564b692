"""Kernel source: joining changes of two bags of rows, and the changes of what is matched."""

from __future__ import annotations

from typing import Any

from millstream.kernels.source.sides import the_other_side

ANEW = -2
"""In place of a value of a chain: the chain has not been entered."""


def match_changes(
    left_time: Any, left_value: Any, left_sign: Any, left_key: Any, left_count: Any, left_next: Any, left_head: Any,
    right_time: Any, right_value: Any, right_sign: Any, right_key: Any, right_count: Any, right_next: Any,
    right_head: Any, left_stays: Any, right_stays: Any, where: Any,
    out_left: Any, out_right: Any, out_time: Any, out_pairs: Any, out_of_left: Any, out_of_right: Any,
) -> Any:  # fmt: skip
    """Take in the changes of both sides in order of time, the left ones of an instant first.

    For each value on the other side with the same key: how many pairs come or go, and by how much the number of rows
    that match the left and the right value changes. A value that is new here learns of all that were there before.
    Values that are not there leave their chain unless their side `stays`, since what matches them is counted.
    Keys are by value. Stops when there is no room; `where` tells how far it came. Gives back how much it wrote.
    """
    left, right, at, before = where[0], where[1], where[2], where[3]
    count = 0
    room = len(out_left)
    while left < len(left_time) or right < len(right_time):
        if right == len(right_time) or (left < len(left_time) and left_time[left] <= right_time[right]):
            value, sign, now = left_value[left], left_sign[left], left_time[left]
            key, is_new = left_key[value], left_next[value] == ANEW
            if key >= 0:
                if at == ANEW:
                    at, before = right_head[key], -1
                while at >= 0:
                    following = right_next[at]
                    if right_count[at] != 0 or right_stays:
                        if count == room:
                            break
                        out_left[count], out_right[count], out_time[count] = value, at, now
                        out_pairs[count] = sign * right_count[at]
                        out_of_left[count] = right_count[at] if is_new else 0
                        out_of_right[count] = sign
                        count += 1
                        before = at
                    else:
                        right_next[at] = ANEW
                        if before < 0:
                            right_head[key] = following
                        else:
                            right_next[before] = following
                    at = following
                if at >= 0:
                    break
                if is_new:
                    left_next[value] = left_head[key]
                    left_head[key] = value
            left_count[value] += sign
            left += 1
        else:
            the_other_side()
        at = ANEW
    where[0], where[1], where[2], where[3] = left, right, at, before
    return count


def chain_values(values: Any, key: Any, links: Any, heads: Any) -> None:
    """Chain values by key."""
    for i in range(len(values)):
        value = values[i]
        if key[value] >= 0:
            links[value] = heads[key[value]]
            heads[key[value]] = value


def cover_changes(
    time: Any, value: Any, sign: Any, pair_time: Any, pair_value: Any, pair_change: Any, is_gap: Any,
    count: Any, matches: Any, given: Any, is_touched: Any, touched: Any, out_value: Any, out_time: Any, out_change: Any,
) -> Any:  # fmt: skip
    """How often each value is to be given, from its own changes and those of what matches it, instant by instant.

    `given` is how often it was so far: as often as it is there, if it is unmatched (`is_gap`) or matched.
    """
    written = 0
    own, pair = 0, 0
    while own < len(time) or pair < len(pair_time):
        now = time[own] if own < len(time) else pair_time[pair]
        if pair < len(pair_time) and pair_time[pair] < now:
            now = pair_time[pair]
        many = 0
        while own < len(time) and time[own] == now:
            v = value[own]
            count[v] += sign[own]
            if not is_touched[v]:
                is_touched[v] = True
                touched[many] = v
                many += 1
            own += 1
        while pair < len(pair_time) and pair_time[pair] == now:
            v = pair_value[pair]
            matches[v] += pair_change[pair]
            if not is_touched[v]:
                is_touched[v] = True
                touched[many] = v
                many += 1
            pair += 1
        for i in range(many):
            v = touched[i]
            is_touched[v] = False
            wanted = count[v] if (matches[v] == 0) == is_gap else 0
            if wanted != given[v]:
                out_value[written], out_time[written], out_change[written] = v, now, wanted - given[v]
                written += 1
                given[v] = wanted
    return written
