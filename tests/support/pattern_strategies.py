"""Hypothesis strategies: random small searches for row patterns, and rows for them."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.aggregates import result_type
from millstream.plan.patterns.expressions import (
    Check,
    Edge,
    Either,
    Excluded,
    Greed,
    Pattern,
    Permute,
    Repeat,
    Sequence,
    Variable,
    walk_pattern,
)
from millstream.plan.patterns.search import (
    CLASSIFIER,
    MATCH_NUMBER,
    TIMED_OUT,
    Given,
    Reach,
    Search,
    Skip,
)
from millstream.plan.programs.builder import call
from millstream.schema import Schema
from millstream.types import BIGINT, VARCHAR, SqlType
from tests.support.pattern_values import Row

COLUMNS = Schema.of(k=BIGINT, x=BIGINT, y=BIGINT, s=VARCHAR)
"""The input of every search; `k` is its key."""

Arrival = tuple[int, Row]
"""A time and a row."""

_RANDOM = st.randoms(use_true_random=True)
"""Searches from a seed: what Hypothesis draws choice by choice is mostly patterns that match nothing."""

_LETTERS = ("a", "b")


@st.composite
def arrivals(draw: st.DrawFn, max_size: int = 14, keys: int = 3) -> list[Arrival]:
    """Rows of a few partitions in order of time, with ties and NULLs."""
    random, time = draw(_RANDOM), 0
    rows: list[Arrival] = []
    for _ in range(random.randint(0, max_size)):
        time += random.choice((0, 1, 1, 1, 2, 4))
        values = {"x": random.randint(0, 3), "y": random.randint(0, 2), "s": random.choice(_LETTERS)}
        row: dict[str, Any] = {name: None if random.random() < 0.05 else value for name, value in values.items()}
        rows.append((time, {"k": random.randrange(keys), **row}))
    return rows


@st.composite
def searches(draw: st.DrawFn, *, ahead: bool = True, chains: bool = False) -> Search:
    """A random search over `COLUMNS`: patterns of all constructs, with conditions between rows.

    Without `ahead` nothing reaches rows that follow (NEXT). With `chains`, variables come one after the other, most of
    them such that a row can only go to one, and conditions follow from each other more often.
    """
    return random_search(draw(_RANDOM), ahead, chains)


def random_search(random: Random, ahead: bool, chains: bool) -> Search:
    """A search that only depends on the state of `random`."""
    kinds = ("one", "one", "all") if chains else ("one", "one", "all", "all", "each")
    return _Maker(random, random.choice(kinds), ahead, chains).search()


class _Maker:
    """Draws the parts of one search."""

    def __init__(self, random: Random, rows: str, ahead: bool, chains: bool) -> None:
        self.random, self.rows, self.chains = random, rows, chains
        self.names = tuple("ABCD"[: random.randint(1, 4)])
        self.reaches: list[Reach] = []
        self.summaries: list[AggregateCall[Expr]] = []
        self.has_deadline = rows != "each" and self.chance(0.25)
        self.timeouts = self.has_deadline and self.chance(0.4)
        self.ahead = ahead

    def chance(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability

    def search(self) -> Search:
        pattern = self.chain() if self.chains else self.pattern(4, 2)
        present = sorted({part.name for part in walk_pattern(pattern) if isinstance(part, Variable)})
        condition = self.simple if self.chains else self.predicate
        conditions = tuple((name, condition(2, name)) for name in present if self.chance(0.85))
        columns = [self.reach(BIGINT, measure=True).name for _ in range(self.random.randint(0, 2))]
        columns += [self.summary(measure=True).name for _ in range(self.random.randint(0, 2))]
        columns += [self.classifier(measure=True).name] if self.chance(0.7) else []
        columns += [name for name in (MATCH_NUMBER, TIMED_OUT) if self.chance()]
        self.random.shuffle(columns)
        return Search(
            ("k",), pattern, conditions, tuple(self.reaches), tuple(self.summaries), tuple(columns), self.given(),
            self.skip(present), self.random.randint(1, 6) if self.has_deadline else None, self.timeouts, BIGINT,
        )  # fmt: skip

    def given(self) -> Given:
        if self.rows == "each":
            return Given("each", most=self.random.choice((None, 0, 1, 3)), seek=self.chance())
        if self.rows == "one":
            return Given("one", empty=self.chance(0.8))
        shown = self.random.choice(("show", "omit", "unmatched") if not self.timeouts else ("show", "omit"))
        return Given("all", empty=shown != "omit", unmatched=shown == "unmatched")

    def skip(self, present: list[str]) -> Skip:
        to = self.random.choice(("past last", "past last", "next", "next", "first", "last"))
        if to in ("first", "last") and present:
            return Skip("first" if to == "first" else "last", tuple(self.random.sample(present, self.few(present))))
        return Skip("next" if to == "next" else "past last")

    def few(self, among: list[str] | tuple[str, ...]) -> int:
        return self.random.randint(1, min(2, len(among)))

    def pattern(self, depth: int, loops: int) -> Pattern:
        """A pattern of at most this depth, with as many unlimited repetitions inside each other."""
        if depth == 1 or self.chance(0.15):
            return Variable(self.random.choice(self.names))
        kind = self.random.choice(("sequence", "sequence", "either", "repeat", "repeat", "repeat", "rare"))
        match kind:
            case "sequence":
                return Sequence(tuple(self.pattern(depth - 1, loops) for _ in range(self.random.randint(2, 3))))
            case "either":
                kind_of = Permute if self.chance(0.3) else Either
                return kind_of(tuple(self.pattern(depth - 1, loops) for _ in range(2)))
            case "repeat":
                least, most = self.random.choice(((0, None), (1, None), (0, 1), (2, 2), (1, 2), (0, 3), (2, None)))
                if most is None and not loops:
                    most = 3
                body = self.pattern(depth - 1, loops - (most is None))
                # Only repetitions of a single variable keep what they took: no statement asks for others.
                last: Greed = "possessive" if isinstance(body, Variable) else "reluctant"
                greed: Greed = self.random.choice(("greedy", "greedy", "reluctant", last))
                return Repeat(body, least, most, greed)
        return self.rare(depth, loops)

    def chain(self) -> Pattern:
        items: list[Pattern] = []
        for name in self.names:
            item: Pattern = Variable(name)
            if self.chance(0.6):
                least, most = self.random.choice(((0, None), (1, None), (1, None), (0, 1), (1, 3)))
                item = Repeat(item, least, most, self.random.choice(("possessive", "possessive", "greedy")))
            if self.chance(0.1):
                item = Excluded(item)
            items.append(item)
            if self.chance(0.15):
                items.append(Check(self.simple(1, name)))
        return Sequence(tuple(items))

    def simple(self, depth: int, own: str) -> Expr:
        """A conjunction of comparisons that have much in common with those of other variables."""
        column = "x" if self.chance(0.8) else "y"
        here = self.column(self.add(Reach("", column, BIGINT, self.one_of((None, (own,))))))
        other: Expr = Literal(BIGINT, self.random.randint(0, 3))
        if self.chance():
            other = self.column(self.add(Reach("", column, BIGINT, self.one_of((None, (own,))), shift=-1)))
        elif self.chance(0.2):
            other = self.column(self.reach(BIGINT) if self.chance() else self.summary(integral=True))
        found = call(self.random.choice(("<", "<=", ">", ">=", "=", "<>")), here, other)
        if depth > 1 and self.chance(0.25):
            return call(self.random.choice(("and", "and", "or")), found, self.simple(depth - 1, own))
        return found

    def rare(self, depth: int, loops: int) -> Pattern:
        choices = ["empty", "check"]
        if self.rows != "each":
            choices += ["excluded", "excluded", "begin"] + ([] if self.timeouts else ["end"])
        match self.random.choice(choices):
            case "excluded":
                return Excluded(self.pattern(depth - 1, loops))
            case "begin":
                return Edge(end=False)
            case "end":
                return Edge(end=True)
            case "check":
                return Check(self.comparison(None))
        return Sequence(())

    def predicate(self, depth: int, own: str | None) -> Expr:
        kind = self.random.choice(("compare", "compare", "compare", "text", "null", "and", "or", "not"))
        if depth == 0 or kind == "compare":
            return self.comparison(own)
        match kind:
            case "text":
                left: Expr = self.column(self.classifier() if self.chance() else self.reach(VARCHAR))
                names = self.names if self.chance() else _LETTERS
                right = self.column(self.reach(VARCHAR)) if self.chance(0.3) else Literal(VARCHAR, names[0])
                return call(self.random.choice(("=", "<>")), left, right)
            case "null":
                return call("is_null", self.column(self.reach(BIGINT)))
            case "not":
                return call("not", self.predicate(depth - 1, own))
        return call(kind, self.predicate(depth - 1, own), self.predicate(depth - 1, own))

    def comparison(self, own: str | None) -> Expr:
        """Most often between the row at hand and something else."""
        if own is not None and self.chance(0.8):
            left = self.column(self.add(Reach("", self.random.choice(("x", "y")), BIGINT, self.one_of((None, (own,))))))
        else:
            left = self.number()
        return call(self.random.choice(("<", "<=", ">", ">=", "=", "<>")), left, self.number())

    def one_of(self, options: tuple[Any, ...]) -> Any:
        return self.random.choice(options)

    def number(self) -> Expr:
        kind = self.random.choice(("literal", "literal", "reach", "reach", "summary", "plus", "match"))
        match kind:
            case "literal":
                return Literal(BIGINT, self.random.randint(0, 3))
            case "reach":
                return self.column(self.reach(BIGINT))
            case "plus":
                return call("+", self.column(self.reach(BIGINT)), Literal(BIGINT, 1))
            case "match" if self.chance(0.3):
                return Column(BIGINT, MATCH_NUMBER)
        return self.column(self.summary(integral=True))

    def column(self, value: Reach | AggregateCall[Expr]) -> Expr:
        return Column(value.type, value.name)

    def which(self) -> tuple[str, ...] | None:
        return None if self.chance(0.3) else tuple(self.random.sample(self.names, self.few(self.names)))

    def reach(self, type_: SqlType, measure: bool = False) -> Reach:
        shifts = (0, 0, 0, -1, -1, -2) + ((1, 2) if self.ahead and self.chance(0.3) else ())
        column = self.random.choice(("x", "y")) if type_ == BIGINT else "s"
        return self.add(
            Reach("", column, type_, self.which(), self.chance(0.3), self.random.choice((0, 0, 0, 1, 2)),
                  self.random.choice(shifts), measure and self.chance())
        )  # fmt: skip

    def classifier(self, measure: bool = False) -> Reach:
        which, offset = (None, 0) if self.chance() else (self.which(), self.random.choice((0, 1)))
        return self.add(
            Reach("", CLASSIFIER, VARCHAR, which, self.chance(0.3), offset, 0, measure and self.chance(0.3))
        )

    def add(self, reach: Reach) -> Reach:
        named = Reach(f"r{len(self.reaches)}", reach.column, reach.type, reach.variables, reach.first, reach.offset,
                      reach.shift, reach.final)  # fmt: skip
        self.reaches.append(named)
        return named

    def summary(self, measure: bool = False, integral: bool = False) -> AggregateCall[Expr]:
        fn = self.random.choice(("count", "count", "sum", "min", "max") if integral else ("count", "sum", "avg", "max"))
        arg: Expr = Column(BIGINT, self.random.choice(("x", "y")))
        if self.chance(0.15):
            arg = call("+", arg, Column(BIGINT, MATCH_NUMBER))
        if fn == "count" and self.chance(0.2):
            arg = Column(VARCHAR, CLASSIFIER)
        args = () if fn == "count" and self.chance() else (arg,)
        distinct = bool(args) and self.chance(0.15)
        type_ = result_type(fn, distinct, args[0].type if args else None)
        assert type_ is not None
        name = f"s{len(self.summaries)}"
        summary = AggregateCall.matched(name, fn, args, type_, self.which(), measure and self.chance(), distinct)
        self.summaries.append(summary)
        return summary
