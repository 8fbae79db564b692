"""Kernel source: the steps of extremes (see `stair_source`) as a list, and back."""

from __future__ import annotations

from typing import Any

GOES, VALUE, PREVIOUS, NEXT, STEP = 0, 1, 2, 3, 4
"""Lanes of a step, and how many there are."""
FREE, EVER = 0, 1
"""Lanes of `pool`: a step that was given up + 1, linked to the next one; and how many steps were ever used."""


def list_steps(slots: Any, width: Any, live: Any, lanes: Any, steps: Any, out: Any) -> int:
    """Write the steps of groups in order (slot, which of `lanes`, end, value); how many there are."""
    count = 0
    for i in range(len(live)):
        for part in range(len(lanes)):
            step = slots[live[i] * width + lanes[part]]
            while step != 0:
                out[count, 0] = live[i]
                out[count, 1] = part
                out[count, 2] = steps[STEP * (step - 1) + GOES]
                out[count, 3] = steps[STEP * (step - 1) + VALUE]
                count += 1
                step = steps[STEP * (step - 1) + NEXT]
    return count


def load_steps(slots: Any, width: Any, lanes: Any, listed: Any, steps: Any, pool: Any) -> None:
    """The inverse of `list_steps`, for groups without steps."""
    for i in range(len(listed)):
        at = listed[i, 0] * width + lanes[listed[i, 1]]
        pool[EVER] += 1
        new = pool[EVER]
        last = slots[at + 1]
        steps[STEP * (new - 1) + GOES] = listed[i, 2]
        steps[STEP * (new - 1) + VALUE] = listed[i, 3]
        steps[STEP * (new - 1) + PREVIOUS] = last
        steps[STEP * (new - 1) + NEXT] = 0
        if last != 0:
            steps[STEP * (last - 1) + NEXT] = new
        else:
            slots[at] = new
        slots[at + 1] = new
