"""OVER aggregates the slow and obvious way: for each row, the list of rows in its frame."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from millstream.kernels.over import AheadSpec, Frame, OverSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import BESIDE, KNOWN, RANKS


def over(spec: OverSpec | AheadSpec, rows: list[dict[str, Any]], times: list[int]) -> dict[str, list[Any]]:
    """The result columns of a spec over all its rows, which are in order of time."""
    partitions: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(rows):
        partitions.setdefault(tuple(_key(row[key]) for key in spec.keys), []).append(i)
    results: dict[str, list[Any]] = {call.name: [None] * len(rows) for call in spec.calls}
    for members in partitions.values():
        for place, i in enumerate(members):
            for call in spec.calls:
                if call.fn in RANKS:
                    before = [times[j] for j in members[: place + 1] if times[j] < times[i]]
                    results[call.name][i] = len(before if call.fn == "rank" else set(before)) + 1
                elif call.fn == "lag":
                    assert call.arg is not None and call.frame.start is not None
                    back = place - call.frame.start
                    results[call.name][i] = rows[members[back]][call.arg] if back >= 0 else None
                else:
                    chosen = _in_frame(call.frame, members, place, times)
                    results[call.name][i] = aggregate(call, [rows[j] for j in chosen])
    return results


def _key(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def _in_frame(frame: Frame, members: list[int], place: int, times: list[int]) -> list[int]:
    if frame.unit == "later":
        before = place - frame.start - 1
        chosen = members[max(0, before + 1) : max(0, place + 1 - frame.end)]
        return [j for j in chosen if before < 0 or times[j] > times[members[before]]]
    if frame.unit in ("rows", "earlier"):
        start = 0 if frame.start is None else max(0, place - frame.start)
        chosen = members[start : max(0, place + 1 - frame.end)]
        return [j for j in chosen if frame.unit == "rows" or times[j] < times[members[place]]]
    if frame.unit == "groups":
        known = sorted({times[j] for j in members})
        times = {j: known.index(times[j]) for j in members}
    now = times[members[place]]
    return [
        j for j in members if times[j] <= now - frame.end and (frame.start is None or times[j] >= now - frame.start)
    ]


def aggregate(call: AggregateCall, rows: list[dict[str, Any]]) -> Any:
    """One aggregate over the rows of a frame."""
    if call.arg is None:
        return len(rows)
    values = [row[call.arg] for row in rows]
    if call.fn == "nth_value":
        assert call.number is not None
        return values[call.number - 1] if call.number <= len(values) else None
    if call.fn in ("first_value", "last_value"):
        if not values:
            return None
        return values[0] if call.fn == "first_value" else values[-1]
    if call.fn in BESIDE:
        beside = [(row[call.args[1]], row[call.arg]) for row in rows]
        known = [pair for pair in beside if None not in pair]
        pick = min if call.fn == "min_by" else max
        return (
            pick(known, key=lambda pair: (pair[0] != pair[0], 0 if pair[0] != pair[0] else pair[0]))[1]
            if known
            else None
        )
    values = [value for value in values if value is not None]
    if call.fn in KNOWN:
        return next(iter(values if call.fn == "first_known" else reversed(values)), None)
    if call.distinct:
        values = list({_key(value): value for value in reversed(values)}.values())
    if call.fn == "count":
        return len(values)
    if not values:
        return None
    if call.fn in ("min", "max"):
        pick = min if call.fn == "min" else max
        return pick(values, key=lambda v: (v != v, 0 if v != v else v))
    if call.fn == "sum":
        return total(values)
    if call.fn == "avg":
        return float(total(values)) / len(values)
    return _spread(call.fn, values)


def total(values: list[Any]) -> Any:
    if not isinstance(values[0], float):
        return sum(values)
    if any(math.isnan(v) for v in values) or {math.inf, -math.inf} <= set(values):
        return math.nan
    return math.fsum(values) if all(map(math.isfinite, values)) else next(v for v in values if math.isinf(v))


def _spread(fn: str, values: list[Any]) -> float | None:
    by = len(values) - fn.endswith("samp")
    if by == 0:
        return None
    if not all(math.isfinite(v) for v in values):
        return math.nan
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    variance = sum((v - mean) ** 2 for v in exact) / by
    return math.sqrt(variance) if fn.startswith("stddev") else float(variance)
