"""Kernel source: what remains of the changes of each instant."""

from __future__ import annotations

from typing import Any


def net_changes(
    values: Any, times: Any, signs: Any, sign: Any, net: Any, where: Any, touched: Any, rows: Any, copies: Any
) -> Any:
    """For changes in order of time: a row of each instant and value that has more of `sign`, and how many more. `net`
    and `where` are by value, `net` all zeros; returns how many rows there are."""
    given = 0
    begin = 0
    while begin < len(values):
        time = times[begin]
        count = 0
        stop = begin
        while stop < len(values) and times[stop] == time:
            value = values[stop]
            if where[value] < begin:
                where[value] = stop
                touched[count] = value
                count += 1
            net[value] += signs[stop] * sign
            stop += 1
        for i in range(count):
            value = touched[i]
            if net[value] > 0:
                rows[given] = where[value]
                copies[given] = net[value]
                given += 1
            net[value] = 0
        begin = stop
    return given
