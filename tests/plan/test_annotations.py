"""What a plan alone tells of a relation, operator by operator."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.expressions.nodes import Call, Column, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.annotations import ends_in_order, is_chronon, unique_key
from millstream.plan.nodes import Distinct, Filter, JoinTable, Node, Project, Scan, TableScan, Union
from millstream.plan.relations import (
    Coarsen,
    Join,
    RangeWindow,
    RowsWindow,
    SetOperation,
    Summarize,
    Window,
)
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN

EVENTS = Scan("s", Schema.of(a=BIGINT, b=BIGINT))
NOW = Window(EVENTS, RangeWindow(1))
LONG = Window(EVENTS, RangeWindow(5))
TABLE = TableScan("t", Schema.of(c=BIGINT))


def kept(node: Node) -> Node:
    return Filter(node, Call(BOOLEAN, "=", (Column(BIGINT, "a"), Literal(BIGINT, 1))))


def only_a(node: Node) -> Node:
    return Project(node, (("x", Column(BIGINT, "a")),))


def join(left: Node, right: Node, how: Any = "inner") -> Join:
    return Join(left, Project(right, (("c", Column(BIGINT, "a")), ("d", Column(BIGINT, "b")))), (), None, how)


def group(node: Node, *keys: str) -> Node:
    return Summarize(node, keys, (AggregateCall(("n",), "count", (), (BIGINT,)),))


def sets(left: Node, right: Node, op: Any = "except", every: bool = True) -> Node:
    return SetOperation(left, right, op, every)


@pytest.mark.parametrize(
    ("node", "chronon"),
    [
        (NOW, True),
        (LONG, False),
        (Window(EVENTS, RangeWindow(1, 2)), False),
        (Window(EVENTS, RangeWindow(None)), False),
        (Window(EVENTS, RowsWindow(1)), False),
        (Window(EVENTS, RowsWindow(1, ("a",))), False),
        (kept(NOW), True),
        (kept(LONG), False),
        (only_a(NOW), True),
        (only_a(LONG), False),
        (Union((NOW, NOW)), True),
        (Union((NOW, LONG)), False),
        (join(NOW, LONG), True),
        (join(LONG, NOW), True),
        (join(LONG, LONG), False),
        (join(NOW, LONG, "left"), True),
        (join(LONG, NOW, "left"), False),
        (join(LONG, NOW, "right"), True),
        (join(NOW, LONG, "right"), False),
        (join(NOW, LONG, "full"), False),
        (join(NOW, NOW, "full"), True),
        (join(LONG, NOW, "semi"), True),
        (join(LONG, NOW, "anti"), False),
        (join(NOW, LONG, "anti"), True),
        (Distinct(NOW), True),
        (Distinct(LONG), False),
        (sets(NOW, LONG), True),
        (sets(LONG, NOW), False),
        (sets(LONG, NOW, "intersect"), True),
        (group(NOW), True),
        (group(LONG, "a"), False),
        (Coarsen(NOW, 1), True),
        (Coarsen(NOW, 2), False),
        (JoinTable(NOW, TABLE, ()), True),
    ],
    ids=str,
)
def test_chronon(node: Node, chronon: bool) -> None:
    assert is_chronon(node) is chronon


@pytest.mark.parametrize(
    ("node", "ordered"),
    [
        (LONG, True),
        (Window(EVENTS, RangeWindow(5, 2)), True),
        (Window(EVENTS, RowsWindow(3)), True),
        (Window(EVENTS, RowsWindow(3, ("a",))), False),
        (kept(LONG), True),
        (only_a(LONG), True),
        (kept(Window(EVENTS, RowsWindow(3, ("a",)))), False),
        (Coarsen(LONG, 2), True),
        (Union((LONG, LONG)), False),
        (join(LONG, LONG), False),
        (Distinct(LONG), False),
        (sets(LONG, LONG), False),
        (group(LONG), True),
        (group(join(LONG, LONG)), True),
        (group(LONG, "a"), False),
        (JoinTable(LONG, TABLE, ()), True),
        (kept(EVENTS), False),
    ],
    ids=str,
)
def test_ends_in_order(node: Node, ordered: bool) -> None:
    assert ends_in_order(node) is ordered


@pytest.mark.parametrize(
    ("node", "key"),
    [
        (LONG, None),
        (Distinct(LONG), {"a", "b"}),
        (group(LONG), set()),
        (group(LONG, "a"), {"a"}),
        (Distinct(group(LONG, "a")), {"a"}),
        (kept(group(LONG, "a")), {"a"}),
        (only_a(group(LONG, "a")), {"x"}),
        (only_a(group(LONG, "a", "b")), None),
        (join(Distinct(LONG), Distinct(LONG)), {"a", "b", "c", "d"}),
        (Join(group(LONG, "a"), Distinct(only_a(LONG)), ()), {"a", "x"}),
        (Join(group(LONG, "a"), only_a(LONG), ()), None),
        (Join(group(LONG, "a"), only_a(LONG), (), None, "semi"), {"a"}),
        (Join(group(LONG, "a"), Distinct(only_a(LONG)), (), None, "full"), None),
        (sets(LONG, LONG), None),
        (sets(LONG, LONG, every=False), {"a", "b"}),
        (sets(Distinct(LONG), LONG), {"a", "b"}),
        (sets(LONG, Distinct(LONG), "intersect"), {"a", "b"}),
    ],
    ids=lambda given: str(sorted(given)) if isinstance(given, set) else str(given),
)
def test_unique_key(node: Node, key: set[str] | None) -> None:
    assert unique_key(node) == key
