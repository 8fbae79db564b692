"""Kernel source: the nearest row before or after, of the same key."""

from __future__ import annotations

from typing import Any


def latest_before(
    time: Any, slot: Any, other_time: Any, other_slot: Any, first: Any, stop: Any, is_strict: Any, latest: Any, out: Any
) -> Any:
    """For each row the last one of the other side with its key, whose time is not later (earlier if `is_strict`).

    The other side's rows have numbers from 0; those before `first` are known in `latest`, and at least those before
    `stop` are afterwards. Gives back the first that is not.
    """
    following = first
    for row in range(len(time)):
        while following < len(other_time) and (
            other_time[following] < time[row] or (not is_strict and other_time[following] == time[row])
        ):
            latest[other_slot[following]] = following
            following += 1
        out[row] = latest[slot[row]] if slot[row] >= 0 else -1
    while following < stop:
        latest[other_slot[following]] = following
        following += 1
    return following


def first_after(
    time: Any, slot: Any, first: Any, stop: Any, other_time: Any, other_slot: Any, is_strict: Any,
    head: Any, links: Any, out: Any, out_other: Any,
) -> Any:  # fmt: skip
    """Chain the rows from `first` to `stop` by key; each row of the other side takes the chain of its key, if all in it
    are not later (earlier if `is_strict`). Gives back how many were taken."""
    entered = first
    count = 0
    for other in range(len(other_time)):
        while entered < stop and (
            time[entered] < other_time[other] or (not is_strict and time[entered] == other_time[other])
        ):
            if slot[entered] >= 0:
                links[entered] = head[slot[entered]]
                head[slot[entered]] = entered
            entered += 1
        if other_slot[other] >= 0:
            row = head[other_slot[other]]
            while row >= 0:
                out[count], out_other[count] = row, other
                count += 1
                row = links[row]
            head[other_slot[other]] = -1
    while entered < stop:
        if slot[entered] >= 0:
            links[entered] = head[slot[entered]]
            head[slot[entered]] = entered
        entered += 1
    return count


def chain(slot: Any, stop: Any, head: Any, links: Any) -> None:
    """Chain the rows before `stop` by key."""
    for row in range(stop):
        if slot[row] >= 0:
            links[row] = head[slot[row]]
            head[slot[row]] = row
