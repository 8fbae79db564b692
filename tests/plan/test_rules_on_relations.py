"""Rules keep the meaning of relations: random plans on random streams, compared at every instant; and what is no rule,
with a witness each."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from plan_meaning import Data, meaning

from millstream.expressions.nodes import Call, Column, Expr, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.costs.statistics import Statistics, StreamStatistics
from millstream.plan.nodes import Distinct, Filter, Node, Project, Scan, Union
from millstream.plan.relations import (
    Coarsen,
    Join,
    Periods,
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

COLUMNS = Schema.of(a=BIGINT, b=BIGINT)
HOWS = ("inner", "inner", "inner", "left", "right", "full", "semi", "anti")


def only_two(node: Node) -> Node:
    """The first two columns."""
    return Project(node, tuple((name, Column(BIGINT, name)) for name in node.schema.names[:2]))


class Plans:
    """Random plans; columns have new names wherever sides could share them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.made = 0

    def name(self) -> str:
        self.made += 1
        return f"c{self.made}"

    def renamed(self, node: Node) -> Node:
        return Project(node, tuple((self.name(), Column(field.type, field.name)) for field in node.schema))

    def events(self) -> Node:
        node: Node = Scan(self.random.choice("st"), COLUMNS)
        if self.random.random() < 0.3:
            node = Filter(node, self.condition(node))
        return node

    def window(self) -> Node:
        below = self.events()
        if self.random.random() < 0.15:
            until = Call(BIGINT, "+", (Column(BIGINT, "b"), Literal(BIGINT, self.random.randint(2, 6))))
            ends = Project(below, (("a", Column(BIGINT, "a")), ("b", Column(BIGINT, "b")), ("until", until)))
            return only_two(self.renamed(Window(ends, Periods("until"))))
        by = self.random.choice(((), (), ("a",)))
        spec = self.random.choice(
            (
                RangeWindow(self.random.choice((1, 1, 2, 5, None))),
                RangeWindow(self.random.randint(1, 4), self.random.randint(1, 3)),
                RowsWindow(self.random.randint(1, 3), by),
                RowsWindow(self.random.randint(1, 3), by, 2),
            )
        )
        return self.renamed(Window(below, spec))

    def relation(self, depth: int) -> Node:
        if depth == 0:
            return self.window() if self.random.random() < 0.7 else Distinct(self.window())
        make = self.random.choice(
            (self.filtered, self.filtered, self.filtered, self.projected, self.joined, self.joined, self.joined,
             self.summarized, self.distinct, self.distinct, self.united, self.sets, self.coarse, self.again,
             self.chained, self.looked_up, self.alike_twice, self.banded)
        )  # fmt: skip
        return make(depth - 1)

    def filtered(self, depth: int) -> Node:
        below = self.relation(depth)
        return Filter(below, self.condition(below))

    def projected(self, depth: int) -> Node:
        below = self.relation(depth)
        names = self.random.sample(below.schema.names, self.random.randint(1, min(2, len(below.schema))))
        computed = (self.name(), Call(BIGINT, "+", (self.column(below), Literal(BIGINT, 1))))
        kept = tuple((name, Column(BIGINT, name)) for name in names)
        return Project(below, kept + ((computed,) if self.random.random() < 0.5 else ()))

    def joined(self, depth: int) -> Node:
        left, right = self.renamed(self.relation(depth)), self.renamed(self.relation(max(depth - 1, 0)))
        pairs = ((self.column(left), self.column(right)),) if self.random.random() < 0.5 else ()
        both = Schema(left.schema.fields + right.schema.fields)
        residual = self.on(both) if self.random.random() < 0.5 else None
        return Join(left, right, pairs, residual, self.random.choice(HOWS))

    def chained(self, _: int) -> Node:
        """Several relations joined one after the other, as FROM lists them."""
        joined = self.window()
        for _ in range(self.random.randint(2, 3)):
            right = self.window()
            joined = Join(joined, right, ((self.column(joined), self.column(right)),))
        return joined

    def banded(self, depth: int) -> Node:
        """A join by how far two numbers are apart at most."""
        left, right = self.renamed(self.relation(depth)), self.renamed(self.window())
        low, high = (Literal(BIGINT, self.random.randint(*ends)) for ends in ((-2, 1), (0, 2)))
        mine, other = self.column(left), self.column(right)
        above = Call(BOOLEAN, self.random.choice((">", ">=")), (mine, Call(BIGINT, "+", (other, low))))
        below = Call(BOOLEAN, "<=", (Call(BIGINT, "-", (mine, high)), other))
        return Join(left, right, (), Call(BOOLEAN, "and", (above, below)), self.random.choice(HOWS))

    def alike_twice(self, depth: int) -> Node:
        """Windows of one length, a relation joined with two others, and rows without two others."""
        one, two = (self.events() for _ in range(2))
        match self.random.randrange(3):
            case 0:
                return Union((Window(one, RangeWindow(3)), Window(two, RangeWindow(3))))
            case 1:
                shared, branches = self.renamed(self.relation(depth)), []
                names, mine = [self.name() for _ in range(3)], self.column(shared)
                for side in (self.window(), self.window()):
                    join = Join(shared, side, ((mine, Column(BIGINT, side.schema.names[0])),))
                    columns = (mine, Column(BIGINT, side.schema.names[1]), Column(BIGINT, side.schema.names[0]))
                    branches.append(Project(join, tuple(zip(names, columns, strict=True))))
                return Union(tuple(branches))
        windows = [Window(self.events(), RangeWindow(size)) for size in (5, 2, 3)]
        every = self.random.random() < 0.5
        return SetOperation(SetOperation(*windows[:2], "except", every), windows[2], "except", every)

    def looked_up(self, depth: int) -> Node:
        """Groups of rows with what the last row of the same key says about it."""
        rows, last = self.renamed(self.relation(depth)), self.renamed(Window(self.events(), RowsWindow(1, ("a",))))
        key = self.column(rows)
        pairs: tuple[tuple[Expr, Expr], ...] = ((key, Column(BIGINT, last.schema.names[0])),)
        sides = (rows, last)
        if self.random.random() < 0.5:
            sides, pairs = (last, rows), tuple((theirs, mine) for mine, theirs in pairs)
        below = Join(*sides, pairs)
        keys = {self.random.choice((key.name, last.schema.names[0])), self.random.choice(below.schema.names)}
        call = AggregateCall((self.name(),), self.random.choice(("count", "sum")), (self.column(rows).name,), (BIGINT,))
        return Summarize(below, tuple(sorted(keys)), (call,))

    def summarized(self, depth: int) -> Node:
        below = self.relation(depth)
        keys = tuple(self.random.sample(below.schema.names, self.random.randint(0, min(2, len(below.schema)))))
        calls = []
        for _ in range(self.random.randint(1, 2)):
            fn = self.random.choice(("count", "sum", "min", "max"))
            name = self.random.choice(below.schema.names)
            calls.append(AggregateCall((self.name(),), fn, (name,), (BIGINT,), self.random.random() < 0.3))
        return Summarize(below, keys, tuple(calls))

    def distinct(self, depth: int) -> Node:
        return Distinct(self.relation(depth))

    def united(self, depth: int) -> Node:
        return Union(self.alike(depth))

    def sets(self, depth: int) -> Node:
        left, right = self.alike(depth)
        return SetOperation(left, right, self.random.choice(("except", "intersect")), self.random.random() < 0.5)

    def coarse(self, depth: int) -> Node:
        return Coarsen(self.relation(depth), self.random.randint(1, 3))

    def again(self, depth: int) -> Node:
        how = self.random.choice(("istream", "istream", "dstream", "rstream"))
        size = self.random.choice((1, 3, None))
        found: Node = ToEvents(self.relation(depth), how)
        if self.random.random() < 0.5:
            found = Project(found, (("one", self.column(found)),))
        return self.renamed(Window(found, RangeWindow(size)))

    def alike(self, depth: int) -> tuple[Node, Node]:
        """Two relations of the same columns."""
        left, right = self.relation(depth), self.relation(max(depth - 1, 0))
        names = [self.name() for _ in range(min(len(left.schema), len(right.schema), 2))]
        return tuple(  # type: ignore[return-value]
            Project(side, tuple(zip(names, (Column(BIGINT, f.name) for f in side.schema), strict=False)))
            for side in (left, right)
        )

    def column(self, node: Node) -> Column:
        return Column(BIGINT, self.random.choice(node.schema.names))

    def condition(self, node: Node) -> Expr:
        return self.on(node.schema)

    def on(self, schema: Schema) -> Expr:
        parts = [self.part(schema) for _ in range(self.random.randint(1, 3))]
        result = parts[0]
        for part in parts[1:]:
            result = Call(BOOLEAN, self.random.choice(("and", "and", "or")), (result, part))
        return result

    def part(self, schema: Schema) -> Expr:
        one, two = (Column(BIGINT, self.random.choice(schema.names)) for _ in range(2))
        test = Call(BOOLEAN, self.random.choice(("=", "=", "=", "<", ">", "<>")), (one, two))
        constant = Call(BOOLEAN, self.random.choice(("=", ">", "<")), (one, Literal(BIGINT, self.random.randint(0, 1))))
        null = Call(BOOLEAN, "is_null", (one,))
        return self.random.choice((test, test, constant, constant, null, Call(BOOLEAN, "not", (null,))))

    def data(self) -> Data:
        return {stream: list(self.rows()) for stream in "st"}

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        times = sorted(self.random.randint(0, 9) for _ in range(self.random.randint(3, 9)))
        return [(t, {name: self.random.choice((0, 1, 1, None)) for name in "ab"}) for t in times]

    def statistics(self) -> Statistics:
        return Statistics(
            {
                stream: StreamStatistics(
                    100,
                    self.random.choice((1.0, 10.0, 1000.0)),
                    {name: self.random.choice((2.0, 1000.0)) for name in "ab"},
                )
                for stream in "st"
            }
        )


@pytest.mark.parametrize("part", range(4))
def test_rules_keep_what_relations_mean(part: int) -> None:
    for seed in range(part * 200, (part + 1) * 200):
        plans = Plans(seed)
        plan = plans.relation(plans.random.randint(2, 4))
        if plans.random.random() < 0.3:
            plan = ToEvents(plan, plans.random.choice(("istream", "dstream", "rstream")))
        data, known = plans.data(), plans.statistics()
        expected = meaning(plan, data)
        after, trace = run_rules(plan, OPTIMIZE, known=known)
        assert meaning(after, data) == expected, f"seed {seed}: {trace.applied}\n{plan}\nbecame\n{after}"


@pytest.mark.parametrize("step", OPTIMIZE, ids=lambda step: step.name)
def test_each_rule_alone_keeps_what_relations_mean(step: Any) -> None:
    for seed in range(10_000, 10_030):
        plans = Plans(seed)
        plan = plans.relation(plans.random.randint(2, 4))
        data = plans.data()
        after, _ = run_rules(plan, (step,), known=plans.statistics())
        assert meaning(after, data) == meaning(plan, data), f"seed {seed}:\n{plan}\nbecame\n{after}"


def test_rules_of_relations_are_all_met() -> None:
    met: set[str] = set()
    for seed in range(150):
        plans = Plans(seed)
        plan = plans.relation(plans.random.randint(2, 4))
        if plans.random.random() < 0.3:
            plan = ToEvents(plan, plans.random.choice(("istream", "dstream", "rstream")))
        met.update(run_rules(plan, OPTIMIZE, known=plans.statistics())[1].applied)
    others = {"tumble_slides", "pane_slides", "merge_aggregates", "eliminate_filter", "drop_implied_pairs"}
    others |= {"fuse_events"}
    wanted = {step.name for step in OPTIMIZE} - others
    assert met >= wanted
