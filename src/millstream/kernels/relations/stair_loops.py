"""Kernel source: the greatest or least value of rows that end at known times.

Of each group only those values wait that will be the extreme at some time: in order of their ends they get worse. They
lie as steps in a pool that all groups share, linked both ways; a group has the numbers of its first and last + 1.
"""

from __future__ import annotations

from typing import Any

END, VALUE, PREVIOUS, NEXT, STEP = 0, 1, 2, 3, 4
"""Lanes of a step, and how many there are."""
FREE, USED = 0, 1
"""Lanes of `pool`: a step that was given up + 1, linked to the next one; and how many steps were ever used."""


def beats(left: Any, right: Any, greatest: Any) -> Any:
    """Whether a value is as near to the extreme as another or nearer; NaN is the greatest number."""
    if greatest:
        return left >= right or left != left
    return left <= right or right != right


def put_step(slots: Any, at: Any, steps: Any, values: Any, pool: Any, end: Any, value: Any, greatest: Any) -> None:
    """A value enters a group until `end`; `at` is where the group has its first and last step."""
    after = 0
    before = slots[at + 1]
    while before != 0 and steps[STEP * (before - 1) + END] > end:
        after = before
        before = steps[STEP * (before - 1) + PREVIOUS]
    if after != 0 and beats(values[STEP * (after - 1) + VALUE], value, greatest):
        return
    is_last = before != 0 and steps[STEP * (before - 1) + END] == end
    if is_last and beats(values[STEP * (before - 1) + VALUE], value, greatest):
        return
    while before != 0 and beats(value, values[STEP * (before - 1) + VALUE], greatest):
        worse = before
        before = steps[STEP * (worse - 1) + PREVIOUS]
        steps[STEP * (worse - 1) + NEXT] = pool[FREE]
        pool[FREE] = worse
    new = pool[FREE]
    if new != 0:
        pool[FREE] = steps[STEP * (new - 1) + NEXT]
    else:
        pool[USED] += 1
        new = pool[USED]
    place = STEP * (new - 1)
    steps[place + END] = end
    values[place + VALUE] = value
    steps[place + PREVIOUS] = before
    steps[place + NEXT] = after
    if before != 0:
        steps[STEP * (before - 1) + NEXT] = new
    else:
        slots[at] = new
    if after != 0:
        steps[STEP * (after - 1) + PREVIOUS] = new
    else:
        slots[at + 1] = new


def drop_steps(slots: Any, at: Any, steps: Any, pool: Any, now: Any) -> None:
    """The values whose rows have ended leave a group."""
    first = slots[at]
    while first != 0 and steps[STEP * (first - 1) + END] <= now:
        after = steps[STEP * (first - 1) + NEXT]
        steps[STEP * (first - 1) + NEXT] = pool[FREE]
        pool[FREE] = first
        first = after
    slots[at] = first
    if first == 0:
        slots[at + 1] = 0
    else:
        steps[STEP * (first - 1) + PREVIOUS] = 0


def list_steps(slots: Any, width: Any, live: Any, lanes: Any, steps: Any, out: Any) -> int:
    """Write the steps of groups in order (slot, which of `lanes`, end, value); how many there are."""
    count = 0
    for i in range(len(live)):
        for part in range(len(lanes)):
            step = slots[live[i] * width + lanes[part]]
            while step != 0:
                out[count, 0] = live[i]
                out[count, 1] = part
                out[count, 2] = steps[STEP * (step - 1) + END]
                out[count, 3] = steps[STEP * (step - 1) + VALUE]
                count += 1
                step = steps[STEP * (step - 1) + NEXT]
    return count


def load_steps(slots: Any, width: Any, lanes: Any, listed: Any, steps: Any, pool: Any) -> None:
    """The inverse of `list_steps`, for groups without steps."""
    for i in range(len(listed)):
        at = listed[i, 0] * width + lanes[listed[i, 1]]
        pool[USED] += 1
        new = pool[USED]
        last = slots[at + 1]
        steps[STEP * (new - 1) + END] = listed[i, 2]
        steps[STEP * (new - 1) + VALUE] = listed[i, 3]
        steps[STEP * (new - 1) + PREVIOUS] = last
        steps[STEP * (new - 1) + NEXT] = 0
        if last != 0:
            steps[STEP * (last - 1) + NEXT] = new
        else:
            slots[at] = new
        slots[at + 1] = new
