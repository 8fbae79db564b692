"""The cost model: its numbers, its directions, and what it makes of plans."""

from __future__ import annotations

import pytest

from millstream.expressions.nodes import Call, Column, Expr, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.costs import flows
from millstream.plan.costs import operators as costs
from millstream.plan.costs.flows import RelationFlow
from millstream.plan.costs.plans import DISTANCE, LONG, estimate
from millstream.plan.costs.selectivity import COMPARED, EQUAL, groups, join_selectivity, selectivity
from millstream.plan.costs.statistics import Statistics, StreamStatistics
from millstream.plan.nodes import Distinct, Filter, JoinTable, Node, Project, Scan, TableScan, Union, walk
from millstream.plan.relations import (
    Coarsen,
    Join,
    RangeWindow,
    RowsWindow,
    SetOperation,
    Summarize,
    ToEvents,
    Validity,
    Window,
)
from millstream.rules import OPTIMIZE, run_rules
from millstream.schema import Schema
from millstream.types import BIGINT, BOOLEAN, TIMESTAMP

ROWS = RelationFlow(10, 5000, 1)


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        (flows.filtered(RelationFlow(10, 1000, 1), 0.25), (40, 1000, 1)),
        (flows.united(RelationFlow(10, 100, 1), RelationFlow(40, 300, 1)), (8, 140, 1)),
        (flows.joined(ROWS, ROWS), (0.01, 2500, 1)),
        (flows.joined(RelationFlow(10, 100, 1), RelationFlow(20, 300, 1)), (0.5, 75, 1)),
        (flows.distinct(ROWS, 100), (10, 1000, 1)),
        (flows.distinct(RelationFlow(10, 500, 1), 100), (10, 500, 1)),
        (flows.summarized(ROWS), (5.516157, 5.516157, 1)),
        (flows.summarized(RelationFlow(10, 5000, 10)), (11.561556, 11.561556, 10)),
        (flows.summarized(RelationFlow(100, 50, 1)), (100, 50, 1)),
        (flows.summarized(ROWS, regular=True), (10, 10, 1)),
        (flows.grouped(ROWS, 50), (5.009507, 250.475333, 1)),
        (flows.grouped(RelationFlow(10, 400, 1), 50), (10, 400, 1)),
        (flows.split(ROWS, 1), (0.002, 1, 1)),
        (flows.split(ROWS, 6000), (10, 5000, 1)),
        (flows.coarsened(ROWS, 10), (10, 5000, 10)),
        (flows.coarsened(RelationFlow(10, 4, 1), 10), (25, 10, 10)),
        (flows.range_window(RelationFlow(10, 1, 1), 5000), (10, 5000, 1)),
        (flows.rows_window(RelationFlow(10, 1, 1), 100), (10, 1000, 1)),
        (flows.rows_window(RelationFlow(10, 1, 1), 100, 5), (10, 5000, 1)),
        (flows.uncovered(ROWS, ROWS, 0.0), (10, 5000, 1)),
    ],
)
def test_flows(flow: RelationFlow, expected: tuple[float, float, float]) -> None:
    assert (flow.distance, flow.length, flow.granule) == pytest.approx(expected, rel=1e-6)


def test_rows_held() -> None:
    assert costs.join_rows(ROWS, ROWS) == pytest.approx(1001)
    assert costs.join_rows(ROWS, RelationFlow(20, 5000)) == pytest.approx(751.25)
    assert costs.partitioned_rows(5, 100) == 5 * 102


def test_union_and_join_do_not_depend_on_order() -> None:
    one, two, three = RelationFlow(3, 50), RelationFlow(7, 200), RelationFlow(20, 1000)
    left = flows.joined(flows.joined(one, two, 0.1), three, 0.01)
    right = flows.joined(one, flows.joined(two, three, 0.01), 0.1)
    assert left.distance == pytest.approx(right.distance)
    assert left.length == pytest.approx(right.length)
    assert flows.united(one, two, three).distance == pytest.approx(flows.united(flows.united(three, one), two).distance)


def test_a_hash_join_costs_less_than_a_nested_loop_and_a_queue_less_than_a_heap() -> None:
    nested = costs.join_cpu(ROWS, ROWS, 0.001)
    hashed = costs.join_cpu(ROWS, ROWS, 0.001, buckets=1000)
    assert hashed < nested / 3
    assert costs.join_cpu(ROWS, ROWS, 0.001, 1000, (False, True)) > hashed


@pytest.mark.parametrize("cpu", [costs.split_cpu(ROWS, 1) > costs.split_cpu(ROWS, 100) > costs.split_cpu(ROWS, 6000)])
def test_cutting_finer_costs_more(cpu: bool) -> None:
    assert cpu


def test_every_processor_cost_falls_with_the_rate() -> None:
    slow = RelationFlow(100, 5000, 1)
    for formula in (
        lambda flow: costs.filter_cpu(flow, flow),
        costs.project_cpu,
        costs.union_cpu,
        lambda flow: costs.join_cpu(flow, ROWS, 0.1),
        lambda flow: costs.distinct_cpu(flow, 20),
        lambda flow: costs.distinct_cpu(flow, 1e9),
        lambda flow: costs.coarsen_cpu(flow, flows.coarsened(flow, 10)),
        costs.range_window_cpu,
        costs.rows_window_cpu,
        costs.partitioned_cpu,
        lambda flow: costs.except_cpu(flow, flow, flow, 10),
        lambda flow: costs.coalesce_cpu(flow, flow),
        lambda flow: costs.sweep_cpu(flow, flow, in_order=True),
        costs.events_cpu,
    ):
        assert 0 < formula(slow) < formula(ROWS)


def test_a_difference_has_less_the_more_there_is_on_the_right() -> None:
    shares = [flows.uncovered(ROWS, RelationFlow(d, 5000), 0.01).valid for d in (1000, 100, 10)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] < ROWS.valid


EVENTS = Scan("s", Schema.of(a=BIGINT, b=BIGINT))
OTHERS = Scan("r", Schema.of(c=BIGINT, d=BIGINT))
KNOWN = Statistics(
    {"s": StreamStatistics(1000, 10.0, {"a": 50.0}), "r": StreamStatistics(1000, 20.0, {"c": 200.0})},
    selectivities={"(b > 3)": 0.75},
)


def column(name: str) -> Expr:
    return Column(BIGINT, name)


def test(fn: str, *args: Expr) -> Expr:
    return Call(BOOLEAN, fn, args)


test.__test__ = False  # type: ignore[attr-defined]

A, B, C, ONE = column("a"), column("b"), column("c"), Literal(BIGINT, 1)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (test("=", A, ONE), 1 / 50),
        (test("=", B, ONE), EQUAL),
        (test("<>", A, ONE), 1 - 1 / 50),
        (test("<", A, ONE), COMPARED),
        (test(">", B, Literal(BIGINT, 3)), 0.75),
        (test("and", test("=", A, ONE), test(">", B, Literal(BIGINT, 3))), 0.75 / 50),
        (test("or", test("=", A, ONE), test("=", A, ONE)), 1 - (49 / 50) ** 2),
        (test("not", test("=", A, ONE)), 49 / 50),
        (test("in", A, ONE, Literal(BIGINT, 2)), 2 / 50),
        (test("in", B, *(Literal(BIGINT, n) for n in range(20))), 1.0),
        (test("is_null", A), EQUAL),
        (Literal(BOOLEAN, True), 1.0),
        (Literal(BOOLEAN, False), 1e-6),
    ],
    ids=str,
)
def test_selectivity(condition: Expr, expected: float) -> None:
    assert selectivity(condition, EVENTS, KNOWN) == pytest.approx(expected)


def test_values_are_found_where_columns_come_from() -> None:
    renamed = Project(Window(EVENTS, RangeWindow(5)), (("x", A), ("y", test("=", A, B))))
    assert groups(("x",), renamed, KNOWN) == 50
    assert groups(("y",), renamed, KNOWN) == 1 / EQUAL
    assert groups((), renamed, KNOWN) == 1
    right = Window(OTHERS, RangeWindow(5))
    assert join_selectivity(Join(renamed, right, ((column("x"), C),)), KNOWN) == pytest.approx(1 / 200)


def call(fn: str, *args: str) -> AggregateCall:
    return AggregateCall(("n",), fn, args, (BIGINT,))


def test_estimates_of_a_plan_add_up() -> None:
    left, right = Window(EVENTS, RangeWindow(5000)), Window(OTHERS, RangeWindow(1000))
    plan = Validity(Summarize(Join(left, right, ((A, C),)), ("a",), (call("count"),)), TIMESTAMP)
    cost = estimate(plan, KNOWN)
    assert [each.node for each in cost.walk()] == list(walk(plan))
    assert cost.total_held == pytest.approx(sum(each.held for each in cost.walk()))
    assert cost.total_cpu == pytest.approx(sum(each.cpu for each in cost.walk()))
    join = cost.inputs[0].inputs[0]
    assert join.flow.distance == pytest.approx(10 * 20 / 6000 * 200)
    assert join.held == pytest.approx(500 + 50 + 1 + 0.25)


NOTHING = Statistics()
KEYED = Window(EVENTS, RowsWindow(3, ("a",)))


@pytest.mark.parametrize(
    ("plan", "flow", "held"),
    [
        (EVENTS, RelationFlow(DISTANCE), 0),
        (Window(EVENTS, RangeWindow(None)), RelationFlow(DISTANCE, LONG), 0),
        (Window(EVENTS, RowsWindow(7)), RelationFlow(DISTANCE, 7 * DISTANCE), 7),
        (KEYED, RelationFlow(DISTANCE, 30 * DISTANCE), 50),
        (Coarsen(Window(EVENTS, RangeWindow(5000)), 10), RelationFlow(DISTANCE, 5000, 10), 0),
        (Union((KEYED, KEYED)), RelationFlow(DISTANCE / 2, 30 * DISTANCE), 0),
        (ToEvents(KEYED, "istream"), RelationFlow(DISTANCE), 30),
        (JoinTable(EVENTS, TableScan("t", Schema.of(c=BIGINT)), ((A, C),)), RelationFlow(DISTANCE / 100), 0),
        (
            JoinTable(EVENTS, TableScan("t", Schema.of(c=BIGINT)), ((A, C),), how="left"),
            RelationFlow(DISTANCE / 100),
            0,
        ),
    ],
    ids=str,
)
def test_estimates_without_statistics(plan: Node, flow: RelationFlow, held: float) -> None:
    cost = estimate(plan, NOTHING)
    assert cost.flow == flow
    assert cost.held == pytest.approx(held)


def test_all_kinds_of_operators_have_costs() -> None:
    left, right = Window(EVENTS, RangeWindow(5000)), Window(OTHERS, RangeWindow(3000))
    same = Project(right, (("a", C), ("b", column("d"))))
    plans: list[Node] = [Distinct(left), SetOperation(left, same, "except", True), ToEvents(left, "rstream")]
    plans += [
        SetOperation(left, same, "intersect", False),
        ToEvents(left, "dstream"),
        Summarize(left, (), (call("count"),)),
    ]
    plans += [Join(left, right, ((A, C),), None, how) for how in ("inner", "left", "right", "full", "semi", "anti")]
    for plan in plans:
        cost = estimate(plan, KNOWN)
        assert cost.cpu > 0
        assert cost.held > 0
        assert cost.flow.distance > 0
        assert cost.flow.length > 0


def stars(*sizes: int) -> Node:
    """Joins in a row, of relations that all have the key `k`; each as long as said."""
    joined: Node | None = None
    for i, size in enumerate(sizes):
        scan = Scan(f"s{i}", Schema.of(k=BIGINT, v=BIGINT))
        names = (("k", f"k{i}"), ("v", f"v{i}"))
        leaf = Project(Window(scan, RangeWindow(size)), tuple((new, column(old)) for old, new in names))
        joined = leaf if joined is None else Join(joined, leaf, ((column("k0"), column(f"k{i}")),))
    assert joined is not None
    return joined


def leaves(plan: Node) -> list[str]:
    return [node.stream for node in walk(plan) if isinstance(node, Scan)]


def test_joins_are_ordered_by_what_was_measured() -> None:
    plan = stars(10_000, 10_000, 10_000)
    steps = tuple(step for step in OPTIMIZE if step.name == "order_joins")
    measured = {
        "s0": StreamStatistics(1000, 10.0, {"k": 100.0}),
        "s1": StreamStatistics(1000, 1.0, {"k": 100.0}),
        "s2": StreamStatistics(1000, 1000.0, {"k": 5000.0}),
    }
    assert run_rules(plan, steps)[0] == plan
    after, _ = run_rules(plan, steps, known=Statistics(measured))
    assert leaves(after) == ["s0", "s2", "s1"]
    assert after.schema == plan.schema
    assert estimate(after, Statistics(measured)).total_cpu < estimate(plan, Statistics(measured)).total_cpu
    swapped = measured | {"s1": measured["s2"], "s2": measured["s1"]}
    assert run_rules(plan, steps, known=Statistics(swapped))[0] == plan


@pytest.mark.parametrize("count", [8, 9])
def test_many_joins_keep_their_columns(count: int) -> None:
    """Of more joins than are looked at together, those below are ordered."""
    steps = tuple(step for step in OPTIMIZE if step.name == "order_joins")
    plan = stars(*[10_000] * count)
    known = Statistics(
        {f"s{i}": StreamStatistics(1, 1.0 + 100 * (i % 3), {"k": 10.0 ** (i % 4)}) for i in range(count)}
    )
    after, _ = run_rules(plan, steps, known=known)
    assert after.schema == plan.schema
    assert sorted(leaves(after)) == sorted(leaves(plan))
    assert estimate(after, known).total_cpu < estimate(plan, known).total_cpu


def test_a_filter_costs_less_below_a_join_than_above() -> None:
    left, right = Window(EVENTS, RangeWindow(5000)), Window(OTHERS, RangeWindow(5000))
    plan = Filter(Join(left, right, ()), test("and", test("=", A, C), test("=", A, ONE)))
    after, _ = run_rules(plan, OPTIMIZE)
    assert estimate(after, KNOWN).total_cpu < estimate(plan, KNOWN).total_cpu / 10
