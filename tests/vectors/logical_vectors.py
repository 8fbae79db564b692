"""Vectors of the logical algebra."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vector_data import Check, Vector, logical, raw

from tests.support import snapshot_algebra as algebra


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right)


def _symbolic(bag: Counter[str]) -> str:
    return "+".join(sorted(bag.elements()))


def _group(value: str) -> int:
    return {"a": 1, "b": 2}.get(value, 3)


def _partition(value: str) -> int:
    return 1 if value in "ac" else 2


def _product(vector: Vector) -> None:
    out = algebra.product(logical("S1"), logical("S2"), lambda left, right: left + right)
    assert out == logical(vector.out)


def _grouping(vector: Vector) -> None:
    out = algebra.groups(logical("S1"), _group)
    assert out == {int(key): logical(stream) for key, stream in vector.out.items()}


def _scalar(vector: Vector) -> None:
    out = algebra.aggregate(logical("S1"), _symbolic)
    assert out == {int(time): Counter([text]) for time, text in vector.out.items()}


def _semi_and_anti(vector: Vector) -> None:
    one, other = logical("S1"), logical("S2")
    assert algebra.semi_join(one, other, _equal) == logical(vector.out["semi"])
    assert algebra.anti_join(one, other, _equal) == logical(vector.out["anti"])
    assert algebra.strict_difference(one, other) == logical(vector.out["anti"])


def _group_count(vector: Vector) -> None:
    assert algebra.group_aggregate(logical("S1"), lambda value: value, Counter.total) == logical(vector.out)


def _changes(vector: Vector) -> None:
    stream = logical("S1")
    before = algebra.difference(algebra.time_window(stream, 2), stream)
    assert algebra.istream(stream) == logical(vector.out["istream tau_t-tau_{t-1}"])
    assert algebra.istream(stream) == algebra.difference(stream, before)
    assert algebra.anti_join(stream, before, _equal) == logical(vector.out["istream anti-join 17.3"])
    assert algebra.dstream(stream) == logical(vector.out["dstream tau_{t-1}-tau_t"])
    assert algebra.dstream(stream) == algebra.difference(before, stream)


def _semi_of_inequality(vector: Vector) -> None:
    one, other = logical(vector.given["A"]), logical(vector.given["B"])
    literal = algebra.join(one, algebra.distinct(other), lambda a, b: bool(a <= b), lambda a, b: a)
    assert literal == logical(vector.out["literal 8.11"])
    assert algebra.semi_join(one, other, lambda a, b: bool(a <= b)) == logical(vector.out["set-semantics semi-join"])


def _filter_and_count_window(vector: Vector) -> None:
    stream = raw("LS3")
    until = max(time for _, time in stream) + 1

    def is_kept(value: str) -> bool:
        return value != "a"

    outside = algebra.select(algebra.count_window(stream, vector.params["N"], 1, until), is_kept)
    inside = algebra.count_window([row for row in stream if is_kept(row[0])], vector.params["N"], 1, until)
    assert outside == logical(vector.out["filter(window)"])
    assert inside == logical(vector.out["window(filter)"])
    assert outside != inside


def _gives(operator: Any, *names: str) -> Check:
    def check(vector: Vector) -> None:
        assert operator(*map(logical, names)) == logical(vector.out)

    return check


CHECKS: dict[str, Check] = {
    "TV-L02": _gives(lambda s: algebra.select(s, lambda value: value in "ac"), "S1"),
    "TV-L03": _gives(lambda s: algebra.transform(s, lambda value: "x" if value == "b" else value), "S1"),
    "TV-L04": _gives(algebra.union, "S1", "S2"),
    "TV-L05": _product,
    "TV-L06": _gives(algebra.distinct, "S1"),
    "TV-L07": _gives(algebra.difference, "S1", "S2"),
    "TV-L08": _grouping,
    "TV-L09": _scalar,
    "TV-L10": _gives(lambda s: algebra.time_window(s, 2), "S1"),
    "TV-L12": lambda v: _same(algebra.count_window(raw("LS3"), 3, 1, 7), v),
    "TV-L13": lambda v: _same(algebra.partitioned_window(raw("LS3"), _partition, 1, 1, 7), v),
    "TV-L14": _gives(lambda s: algebra.coarsen(s, 2), "S1"),
    "TV-D01": _gives(algebra.intersection, "S1", "S2"),
    "TV-D02": _gives(algebra.max_union, "S1", "S2"),
    "TV-D03": _semi_and_anti,
    "TV-D04": _group_count,
    "TV-D05": _changes,
    "TV-D15": _semi_of_inequality,
    "TV-D20": _filter_and_count_window,
}


def _same(out: algebra.Logical, vector: Vector) -> None:
    assert out == logical(vector.out)
