"""The rules of the snapshot algebra as equations between plans, on random streams; and the equations that do not hold,
each with a witness that shows why no rule may use it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from plan_meaning import Data, meaning

from millstream.expressions.nodes import Call, Column, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.nodes import Distinct, Filter, Node, Project, Scan, Union
from millstream.plan.relations import (
    Coarsen,
    Join,
    RangeWindow,
    RowsWindow,
    SetOperation,
    Summarize,
    ToEvents,
    Window,
)
from millstream.rules import OPTIMIZE, run_rules
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN

COLUMNS = Schema.of(e=BIGINT, v=BIGINT)
NOW = RangeWindow(1)


def stream(name: str) -> Node:
    return Scan(name, COLUMNS)


def now(events: Node) -> Node:
    return Window(events, NOW)


def last(events: Node, size: int | None, slide: int = 1) -> Node:
    return Window(events, RangeWindow(size, slide))


def again(relation: Node, size: int) -> Node:
    """A window over what a relation has at each instant."""
    return last(ToEvents(relation, "rstream"), size)


def where(node: Node, column: str = "e", constant: int = 1) -> Node:
    return Filter(node, Call(BOOLEAN, "=", (Column(BIGINT, column), Literal(BIGINT, constant))))


def only(node: Node, *names: str) -> Node:
    return Project(node, tuple((name, Column(BIGINT, name)) for name in names))


def renamed(node: Node, mark: str) -> Node:
    return Project(node, tuple((field.name + mark, Column(BIGINT, field.name)) for field in node.schema))


def product(left: Node, right: Node, *, to: str = "1") -> Node:
    return Join(left, renamed(right, to), ())


def equijoin(left: Node, right: Node, how: Any = "inner") -> Node:
    return Join(left, renamed(right, "1"), ((Column(BIGINT, "e"), Column(BIGINT, "e1")),), None, how)


def minus(left: Node, right: Node) -> Node:
    return SetOperation(left, right, "except", True)


def both(left: Node, right: Node) -> Node:
    return SetOperation(left, right, "intersect", True)


def union(*nodes: Node) -> Node:
    return Union(nodes)


def largest(node: Node) -> Node:
    return Summarize(node, ("e",), (AggregateCall(("most",), "max", ("v",), (BIGINT,)),))


def counted(node: Node) -> Node:
    return Summarize(node, ("e",), (AggregateCall(("n",), "count", (), (BIGINT,)),))


A, B, C = last(stream("a"), 4), last(stream("b"), 3), last(stream("c"), 2)
SA, SB = stream("a"), stream("b")

VALID: dict[str, tuple[Node, Node]] = {
    "filters commute": (where(where(A, "v"), "e"), where(where(A, "e"), "v")),
    "filter of a union": (where(union(A, B)), union(where(A), where(B))),
    "filter of one side of a product": (where(product(A, B)), product(where(A), B)),
    "filter of a difference": (where(minus(A, B)), minus(where(A), where(B))),
    "filter of a difference, left only": (where(minus(A, B)), minus(where(A), B)),
    "filter of distinct rows": (where(Distinct(A)), Distinct(where(A))),
    "filter of groups by their key": (where(counted(A)), counted(where(A))),
    "filter of semi-joined rows": (where(equijoin(A, B, "semi")), equijoin(where(A), B, "semi")),
    "filter of anti-joined rows": (where(equijoin(A, B, "anti")), equijoin(where(A), B, "anti")),
    "projection of a union": (only(union(A, B), "v"), union(only(A, "v"), only(B, "v"))),
    "distinct projection of distinct rows": (Distinct(only(Distinct(A), "v")), Distinct(only(A, "v"))),
    "union commutes": (union(A, B), union(B, A)),
    "union associates": (union(union(A, B), C), union(A, union(B, C))),
    "product associates": (product(product(A, B), C, to="2"), Join(A, Join(renamed(B, "1"), renamed(C, "2"), ()), ())),
    "product distributes over union": (product(A, union(B, C)), union(product(A, B), product(A, C))),
    "product distributes over difference": (product(A, minus(B, C)), minus(product(A, B), product(A, C))),
    "distinct twice": (Distinct(Distinct(A)), Distinct(A)),
    "distinct product": (Distinct(product(A, B)), product(Distinct(A), Distinct(B))),
    "distinct union": (Distinct(union(A, B)), Distinct(union(Distinct(A), Distinct(B)))),
    "distinct intersection": (Distinct(both(A, B)), both(Distinct(A), Distinct(B))),
    "distinct semi-joined rows": (Distinct(equijoin(A, B, "semi")), equijoin(Distinct(A), B, "semi")),
    "difference of a union": (minus(A, union(B, C)), minus(minus(A, B), C)),
    "intersection commutes": (both(A, B), both(B, A)),
    "intersection is two differences": (both(A, B), minus(A, minus(A, B))),
    "the largest of distinct rows": (largest(Distinct(A)), largest(A)),
    "distinct groups": (Distinct(counted(A)), counted(A)),
    "granularity of a product": (Coarsen(product(A, B), 3), product(Coarsen(A, 3), Coarsen(B, 3))),
    "granularity of distinct rows": (Coarsen(Distinct(A), 3), Distinct(Coarsen(A, 3))),
    "granularity of a difference": (Coarsen(minus(A, B), 3), minus(Coarsen(A, 3), Coarsen(B, 3))),
    "granularity of groups": (Coarsen(counted(A), 3), counted(Coarsen(A, 3))),
    "a window of an instant": (again(now(SA), 1), now(SA)),
    "filter of a time window": (where(last(SA, 4)), last(where(SA), 4)),
    "filter of a sliding time window": (where(last(SA, 4, 3)), last(where(SA), 4, 3)),
    "projection of a time window": (only(last(SA, 4), "v"), last(only(SA, "v"), 4)),
    "projection of a sliding time window": (only(last(SA, 4, 3), "v"), last(only(SA, "v"), 4, 3)),
    "union of time windows": (union(last(SA, 4), last(SB, 4)), last(union(SA, SB), 4)),
    "union of sliding time windows": (union(last(SA, 4, 3), last(SB, 4, 3)), last(union(SA, SB), 4, 3)),
    "projection of a window of rows": (only(Window(SA, RowsWindow(2)), "v"), Window(only(SA, "v"), RowsWindow(2))),
    "projection of a partitioned window": (
        only(Window(SA, RowsWindow(2, ("e",))), "e"),
        Window(only(SA, "e"), RowsWindow(2, ("e",))),
    ),
    "filter of whole partitions": (
        where(Window(SA, RowsWindow(2, ("e",)))),
        Window(where(SA), RowsWindow(2, ("e",))),
    ),
    "distinct window of distinct rows": (Distinct(again(Distinct(now(SA)), 4)), Distinct(last(SA, 4))),
    "distinct window of a window": (Distinct(again(last(SA, 3), 4)), Distinct(last(SA, 6))),
    "istream of an endless window": (now(ToEvents(where(last(SA, None)), "istream")), now(where(SA))),
    "istream filtered": (where(ToEvents(A, "istream")), ToEvents(where(A), "istream")),
    "dstream filtered": (where(ToEvents(A, "dstream")), ToEvents(where(A), "dstream")),
}


def rows(*events: tuple[int, int] | tuple[int, int, int]) -> list[tuple[int, dict[str, Any]]]:
    return [(event[0], {"e": event[1], "v": event[2] if len(event) > 2 else 0}) for event in events]


INVALID: dict[str, tuple[Node, Node, Data]] = {
    "projection of a difference": (
        only(minus(A, B), "e"),
        minus(only(A, "e"), only(B, "e")),
        {"a": rows((0, 1, 1)), "b": rows((0, 1, 2))},
    ),
    "projection of distinct rows": (only(Distinct(A), "e"), Distinct(only(A, "e")), {"a": rows((0, 1, 1), (0, 1, 2))}),
    "distinct rows of each side of a union": (
        Distinct(union(A, B)),
        union(Distinct(A), Distinct(B)),
        {"a": rows((0, 1)), "b": rows((0, 1))},
    ),
    "distinct rows of each side of a difference": (
        Distinct(minus(A, B)),
        minus(Distinct(A), Distinct(B)),
        {"a": rows((0, 1), (0, 1)), "b": rows((0, 1))},
    ),
    "difference of each branch of a union": (
        minus(union(A, B), C),
        union(minus(A, C), minus(B, C)),
        {"a": rows((0, 1)), "b": rows((0, 1)), "c": rows((0, 1))},
    ),
    "window of a product": (
        again(product(now(SA), now(SB)), 3),
        product(last(SA, 3), last(SB, 3)),
        {"a": rows((0, 1)), "b": rows((1, 1))},
    ),
    "window of a difference": (
        again(minus(now(SA), now(SB)), 3),
        minus(last(SA, 3), last(SB, 3)),
        {"a": rows((0, 1)), "b": rows((1, 1))},
    ),
    "window of distinct rows": (again(Distinct(now(SA)), 3), Distinct(last(SA, 3)), {"a": rows((0, 1), (1, 1))}),
    "granularity of a window": (Coarsen(last(SA, 3), 2), again(Coarsen(now(SA), 2), 3), {"a": rows((1, 1))}),
    "window of a window": (again(last(SA, 2), 2), last(SA, 3), {"a": rows((0, 1))}),
    # a c a b b a c, one at each instant
    "filter of a window of rows": (
        Filter(Window(SA, RowsWindow(2)), Call(BOOLEAN, "<>", (Column(BIGINT, "e"), Literal(BIGINT, 1)))),
        Window(Filter(SA, Call(BOOLEAN, "<>", (Column(BIGINT, "e"), Literal(BIGINT, 1)))), RowsWindow(2)),
        {"a": rows((0, 1), (1, 3), (2, 1), (3, 2), (4, 2), (5, 1), (6, 3))},
    ),
    "filter of a partitioned window by another column": (
        where(Window(SA, RowsWindow(1, ("e",))), "v"),
        Window(where(SA, "v"), RowsWindow(1, ("e",))),
        {"a": rows((0, 7, 1), (1, 7, 2))},
    ),
    "union of windows of rows": (
        union(Window(SA, RowsWindow(1)), Window(SB, RowsWindow(1))),
        Window(union(SA, SB), RowsWindow(1)),
        {"a": rows((0, 1)), "b": rows((1, 2))},
    ),
    "projection of insertions": (
        only(ToEvents(A, "istream"), "e"),
        ToEvents(only(A, "e"), "istream"),
        {"a": rows((0, 1, 1), (4, 1, 2))},
    ),
    "filter below an outer join": (
        Filter(equijoin(A, B, "left"), Call(BOOLEAN, "is_null", (Column(BIGINT, "v1"),))),
        Join(
            A,
            Filter(renamed(B, "1"), Call(BOOLEAN, "is_null", (Column(BIGINT, "v1"),))),
            ((Column(BIGINT, "e"), Column(BIGINT, "e1")),),
            None,
            "left",
        ),
        {"a": rows((0, 1)), "b": rows((0, 1, 5))},
    ),
}


@pytest.mark.parametrize("name", VALID)
def test_valid(name: str) -> None:
    one, two = VALID[name]
    for seed in range(40):
        data = random_data(Random(f"{name} {seed}"))
        assert meaning(one, data) == meaning(two, data)


@pytest.mark.parametrize("name", INVALID)
def test_invalid(name: str) -> None:
    one, two, data = INVALID[name]
    data = {"a": [], "b": [], "c": []} | data
    assert meaning(one, data) != meaning(two, data)
    for plan in (one, two):
        assert meaning(run_rules(plan, OPTIMIZE)[0], data) == meaning(plan, data)


def test_the_count_window_of_the_filter_counterexample() -> None:
    """The witness with its contents at each instant: letters a, b, c are 1, 2, 3."""
    above, below, data = INVALID["filter of a window of rows"]

    def shown(plan: Node) -> list[str]:
        return ["".join(sorted("abc"[row[0] - 1] for row in at.elements())) for at in meaning(plan, data)[1:7]]

    assert shown(above) == ["c", "c", "b", "bb", "b", "c"]
    assert shown(below) == ["c", "c", "bc", "bb", "bb", "bc"]


def test_a_partitioned_window_refuses_to_lose_its_key() -> None:
    with pytest.raises(ValueError, match="no column e"):
        Window(only(SA, "v"), RowsWindow(2, ("e",)))


def random_data(random: Random) -> Data:
    def one() -> list[tuple[int, dict[str, Any]]]:
        times = sorted(random.randint(0, 9) for _ in range(random.randint(0, 6)))
        return rows(*((t, random.randint(0, 2), random.randint(0, 1)) for t in times))

    return {name: one() for name in "abc"}
