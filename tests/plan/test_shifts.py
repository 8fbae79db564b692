"""Chains and the tables of their search: the same matches as the naive search, and never more questions."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.expressions.nodes import Column, Expr, Literal
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.patterns.chains import LONGEST, Chain, NoChain, chain_of
from millstream.plan.patterns.expressions import (
    Check,
    Edge,
    Either,
    Excluded,
    Greed,
    Pattern,
    Repeat,
    Sequence,
    Variable,
    walk_pattern,
)
from millstream.plan.patterns.search import Given, Reach, Search
from millstream.plan.patterns.shifts import RunPlace, Shifts, Start, shifts_of
from millstream.plan.programs.builder import Value, call
from millstream.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR
from tests.support.chain_search import Asked, ChainSearch, Match
from tests.support.patterns import told
from tiers import examples

PRICE, PREVIOUS = Column(DOUBLE, "price"), Column(DOUBLE, "previous")
DOWN, UP = call("<", PRICE, PREVIOUS), call(">", PRICE, PREVIOUS)
NOT_UP, NOT_DOWN = call("<=", PRICE, PREVIOUS), call(">=", PRICE, PREVIOUS)
A, B, C, D = map(Variable, "ABCD")


def plus(variable: Variable, greed: Greed = "greedy") -> Repeat:
    return Repeat(variable, 1, None, greed)


def of_prices(*items: Pattern, holds: Expr | None = None, **conditions: Expr) -> Search:
    """A search over prices; `n_<variable>` counts its rows, and `last_<variable>` is its last price."""
    pattern = Sequence(items)
    names = {part.name for part in walk_pattern(pattern) if isinstance(part, Variable)}
    reaches = [Reach("price", "price", DOUBLE), Reach("previous", "price", DOUBLE, shift=-1)]
    reaches += [Reach(f"last_{name}", "price", DOUBLE, (name,)) for name in sorted(names)]
    counts = tuple(AggregateCall.matched(f"n_{name}", "count", (), BIGINT, (name,)) for name in sorted(names))
    return Search((), pattern, tuple(conditions.items()), tuple(reaches), counts, holds=holds)


def at_least(variable: str, rows: int) -> Check:
    return Check(call(">=", Column(BIGINT, f"n_{variable}"), rows))


def of_letters(text: str) -> Search:
    """A search for a word, letter by letter."""
    variables = [Variable(f"V{i}") for i in range(len(text))]
    conditions = ((f"V{i}", call("=", Column(VARCHAR, "s"), letter)) for i, letter in enumerate(text))
    return Search((), Sequence(tuple(variables)), tuple(conditions), (Reach("s", "s", VARCHAR),))


def chain_and_shifts(search: Search) -> tuple[Chain, Shifts]:
    chain = chain_of(search)
    assert isinstance(chain, Chain), str(chain)
    return chain, shifts_of(chain, search)


def searched(search: Search, rows: list[dict[str, Any]]) -> tuple[list[Match], Asked, Asked]:
    """The matches, and what the naive search and the shifted one asked."""
    chain, shifts = chain_and_shifts(search)
    naive, shifted = ChainSearch(search, chain, rows), ChainSearch(search, chain, rows)
    found = naive.naive()
    assert shifted.shifted(shifts) == found
    return found, naive.asked, shifted.asked


def prices(*values: float) -> list[dict[str, Any]]:
    return [{"price": float(value)} for value in values]


# -- chains ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (of_prices(A, plus(B), plus(C), B=DOWN, C=UP), "A B+ C+"),
        (of_prices(plus(A, "reluctant"), B, A=DOWN, B=UP), "A+ B"),
        (of_prices(A, plus(B, "reluctant"), B=DOWN), "A B"),
        (of_prices(A, Repeat(B, 0, None, "reluctant"), B=DOWN), "A"),
        (of_prices(plus(A), Repeat(B, 0, None), A=DOWN, B=NOT_UP), "A+ B*"),
        (of_prices(plus(A, "possessive"), B, A=NOT_UP, B=NOT_DOWN), "A+ B"),
        (of_prices(Repeat(A, 3, None), B, A=DOWN, B=UP), "A A A+ B"),
        (of_prices(Repeat(A, 2, 5), B, A=DOWN, B=UP), "A A{1,4} B"),
        (of_prices(Repeat(Sequence((A, B)), 2, 2), B=UP), "A B A B"),
        (of_prices(plus(A), Repeat(B, 0, 1), C, A=DOWN, B=UP, C=call("=", PRICE, PREVIOUS)), "A+ B? C"),
        (of_prices(Either((A,)), Excluded(plus(B)), C, B=DOWN, C=UP), "A {- B+ -} C"),
        (of_prices(A, plus(B), C, B=DOWN, C=call(">", PRICE, Column(DOUBLE, "last_B"))), "A B+ C"),
        (of_prices(plus(A, "possessive"), at_least("A", 2), B, A=DOWN), "A+ B"),
    ],
)
def test_patterns_that_are_chains(search: Search, expected: str) -> None:
    chain = chain_of(search)
    assert isinstance(chain, Chain)
    assert str(chain) == expected


@pytest.mark.parametrize(
    ("search", "reason"),
    [
        (of_prices(plus(A), B, A=NOT_UP, B=NOT_DOWN), "a row may be both A and B"),
        (of_prices(plus(A), Repeat(B, 0, 1), C, A=DOWN, B=UP, C=NOT_UP), "a row may be both A and C"),
        (of_prices(plus(A), B), "a row may be both A and B"),
        (of_prices(plus(A, "reluctant"), B, A=DOWN, B=NOT_UP), "a row may be both A and B"),
        (of_prices(Either((A, B)), A=DOWN), "it has alternatives"),
        (of_prices(Edge(False), A), "it has ^"),
        (of_prices(Repeat(Sequence((A, B)), 1, None)), "((A B)+) repeats more than a variable"),
        (of_prices(plus(A), at_least("A", 2), A=DOWN), "a check may make A+ backtrack"),
        (of_prices(Repeat(A, LONGEST + 1, None)), f"it has more than {LONGEST} elements"),
        (of_prices(at_least("A", 2), A), "a check stands before the first row"),
    ],
)
def test_patterns_that_are_none(search: Search, reason: str) -> None:
    assert chain_of(search) == NoChain(reason)


def test_conditions_that_read_further_on_are_not_for_chains() -> None:
    reach = Reach("following", "price", DOUBLE, shift=1)
    search = Search((), A, (("A", call(">", Column(DOUBLE, "following"), 1)),), (reach,))
    assert chain_of(search) == NoChain(f"a condition reads {reach}, a row further on")


def test_columns_computed_before_the_search_are_seen_through() -> None:
    """Conditions of a row alone come as columns; what they were made from decides whether they exclude each other."""
    reaches = (Reach("a", "$1", BOOLEAN), Reach("b", "$2", BOOLEAN))
    conditions = tuple((name, Column(reach.type, reach.name)) for name, reach in zip("AB", reaches, strict=True))
    search = Search((), Sequence((plus(A), B)), conditions, reaches)
    assert isinstance(chain_of(search), NoChain)
    price = Column(DOUBLE, "price")
    made = (("$1", call("<", price, 10.0)), ("$2", call(">", price, 20.0)))
    assert isinstance(chain_of(Search((), search.pattern, conditions, reaches, made=made)), Chain)


# -- tables ------------------------------------------------------------------------------------------------------------


def naive_borders(word: str) -> list[tuple[int, int]]:
    """For a mismatch at each letter: how far to move the word, and the next letter to compare, as in KMP where a letter
    that must fail again is not compared; past the text at hand, (j + 1, 0)."""
    result = []
    for j in range(len(word)):
        shifts = [k for k in range(1, j + 1) if word[k:j] == word[: j - k] and word[j - k] != word[j]]
        result.append((shifts[0], j - shifts[0]) if shifts else (j + 1, 0))
    return result


@pytest.mark.parametrize("word", ["abcabcacab", "aaaab", "abababc", "aabaaabaab", "abcd", "a"])
def test_letters_give_the_tables_of_knuth_morris_and_pratt(word: str) -> None:
    chain, shifts = chain_and_shifts(of_letters(word))
    for j, (moved, compared) in enumerate(naive_borders(word)):
        (start,) = shifts.failed[j] or ()
        # every element has one row, so the runs are the rows of the attempt
        assert start.begins[0].run + start.begins[0].ahead == moved
        assert start.element == compared
        assert start.at.run + start.at.ahead == max(j, moved)
    assert not shifts.rescans
    assert len(chain.elements) == len(word)


def test_a_word_is_found_in_linear_time() -> None:
    text = "babcbabcabcaabcabcabcacabc"
    found, naive, shifted = searched(of_letters("abcabcacab"), [{"s": letter} for letter in text])
    assert [match[:2] for match in found] == [(15, 25)]
    assert (naive.conditions, shifted.conditions) == (48, 29)
    # the worst case: as many comparisons as letters in the text and the word for each
    found, naive, shifted = searched(of_letters("aaaaaaab"), [{"s": "a"}] * 200)
    assert not found
    assert naive.conditions > 1500
    assert shifted.conditions <= 2 * 200


def double_bottom(down: Expr, up: Expr, rows: int) -> Search:
    names = ("W", "X", "Y", "Z")
    items = [part for name in names for part in (plus(Variable(name), "possessive"), at_least(name, rows))]
    return of_prices(*items, W=down, X=up, Y=down, Z=up)


def test_double_bottom() -> None:
    """Nothing that fell or rose is looked at again, but for rows without change, which may do both."""
    chain, shifts = chain_and_shifts(double_bottom(NOT_UP, NOT_DOWN, 5))
    assert shifts.lines(chain) == [
        "W+: begin at the next row",
        "X+: begin at the next row",
        "Y+: begin at the next row",
        "Z+: begin at the next row",
        "W+ check: begin at the next row",
        "X+ check: begin at row 2 of X+ if there is one, or begin at this row",
        "Y+ check: begin at row 2 of X+ if there is one, or begin at the next row",
        "Z+ check: begin at row 2 of Z+ if there is one, or begin at this row",
    ]
    _, strict = chain_and_shifts(double_bottom(DOWN, UP, 5))
    assert not strict.rescans
    assert strict.checked == (
        (Start((RunPlace(1, 1),), RunPlace(1, 1)),),
        (Start((RunPlace(2),), RunPlace(2)),),
        (Start((RunPlace(3, 1),), RunPlace(3, 1)),),
        (Start((RunPlace(4),), RunPlace(4)),),
    )


def test_long_falls_cost_no_more_than_their_rows() -> None:
    fall = [100 - 0.1 * i for i in range(60)]
    rise = [fall[-1] + 1, fall[-1] + 2]
    rows = prices(*fall, *rise, *fall, *rise)
    found, naive, shifted = searched(double_bottom(DOWN, UP, 3), rows)
    assert not found
    assert naive.conditions > 10 * len(rows)
    assert shifted.conditions <= 2 * len(rows)


RELAXED = "X *Y *Z *T *U *V *W *R S"


def relaxed_double_bottom(holds: Expr | None = None) -> Search:
    """Falls, rests and rises, where a change of less than two percent is a rest."""
    low, high = (call("*", Literal(DOUBLE, factor), PREVIOUS) for factor in (0.98, 1.02))
    fall, rise = call("<", PRICE, low), call(">", PRICE, high)
    rest = call("and", call("<", low, PRICE), call("<", PRICE, high))
    conditions = {"X": call(">=", PRICE, low), "S": call("<=", PRICE, high)}
    conditions |= {"Y": fall, "V": fall, "T": rise, "R": rise} | dict.fromkeys("ZUW", rest)
    items = [plus(Variable(part[1:]), "possessive") if part[0] == "*" else Variable(part) for part in RELAXED.split()]
    return of_prices(*items, holds=holds, **conditions)


def test_relaxed_double_bottom() -> None:
    """Where prices are known to be positive, a fall is no rise, and much less is left open."""
    chain, shifts = chain_and_shifts(relaxed_double_bottom(call(">", Column(DOUBLE, "price"), 0.0)))
    lines = dict(line.split(": ", 1) for line in shifts.lines(chain))
    assert [name for name, line in lines.items() if line == "begin at this row"] == ["Y+", "Z+", "V+", "W+"]
    assert lines["S"] == "begin at the next row"
    assert lines["T+"].split(", or ") == [
        "begin at row 2 of Z+ if there is one, test row 3 of Z+ for Y+",
        "begin at row 1 of Z+, test row 2 of Z+ for Y+",
    ]
    walk, random = [100.0], Random(7)
    for _ in range(1500):
        walk.append(walk[-1] * random.choice((0.95, 0.99, 1, 1, 1.01, 1.05)))
    found, naive, shifted = searched(relaxed_double_bottom(call(">", Column(DOUBLE, "price"), 0.0)), prices(*walk))
    assert found
    assert shifted.conditions < 0.8 * naive.conditions


def test_an_attempt_may_begin_at_the_last_row_of_a_run() -> None:
    """What rests or rises may come before a fall, but only the last of such rows does."""
    search = relaxed_double_bottom(call(">", Column(DOUBLE, "price"), 0.0))
    chain = chain_of(search)
    assert isinstance(chain, Chain)
    shifts = shifts_of(chain, search, last_rows=True)
    assert shifts.lines(chain) == [
        "X: begin at the next row",
        "Y+: begin at this row",
        "Z+: begin at this row",
        "T+: begin at the last row of Z+, test this row for Y+",
        "U+: begin at the last row of T+, test this row for Y+",
        "V+: begin at this row",
        "W+: begin at this row",
        "R+: begin at the last row of W+, test this row for Y+",
        "S: begin at the next row",
    ]
    assert not shifts.rescans
    assert shifts.failed[3] == (Start((RunPlace(3, -1), RunPlace(3)), RunPlace(3)),)


def test_an_attempt_that_comes_to_an_element_at_the_same_row_fails_there_again() -> None:
    """The rows of the first run are skipped although what fails is a comparison with the last of them."""
    search = of_prices(plus(A, "possessive"), B, C, A=DOWN, B=UP, C=call(">", PRICE, Column(DOUBLE, "last_A")))
    _, shifts = chain_and_shifts(search)
    assert shifts.failed[2] == (Start((RunPlace(2),), RunPlace(2)),)
    first = Reach("first_A", "price", DOUBLE, ("A",), first=True)
    dependent = call(">", PRICE, Column(DOUBLE, "first_A"))
    other = Search((), search.pattern, (*search.conditions[:2], ("C", dependent)), (*search.reaches, first))
    _, shifts = chain_and_shifts(other)
    assert shifts.failed[2] == (
        Start((RunPlace(0, 1), RunPlace(1), RunPlace(2)), RunPlace(2), 0),
        Start((RunPlace(2),), RunPlace(2)),
    )


def test_a_limit_on_a_run_resumes_at_its_end() -> None:
    """An upper bound on the rows of the first run: later attempts take the same rows but the first, and know them."""
    few = Check(call("<", Column(BIGINT, "n_A"), 20))
    search = of_prices(plus(A, "possessive"), few, B, A=DOWN, B=UP)
    _, shifts = chain_and_shifts(search)
    assert shifts.checked[0] == (Start((RunPlace(0, 1),), RunPlace(1), 0), Start((RunPlace(1, 1),), RunPlace(1, 1)))
    rows = prices(*range(100, 0, -1), 5)
    found, naive, shifted = searched(search, rows)
    assert [match[:2] for match in found] == [(81, 101)]
    assert shifted.conditions < 300 < 4000 < naive.conditions


def test_the_row_that_ended_a_match_may_be_known_not_to_begin_one() -> None:
    search = of_prices(plus(A), plus(B), A=DOWN, B=call("not", DOWN))
    assert not chain_and_shifts(of_prices(A, plus(A), A=DOWN))[1].ender_begins
    assert chain_and_shifts(search)[1].ender_begins


# -- random chains -----------------------------------------------------------------------------------------------------

_COMPARE = ("<", "<=", ">", ">=", "=", "<>")
_TIMES = ((0, None), (1, None), (1, None), (1, None), (0, 1), (2, None), (1, 3), (0, 2), (2, 2), (2, 4))


class _Maker:
    """Draws a search with conditions on rows, between neighbours, and on how the match went."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names = "ABCDE"[: random.randint(1, 5)]
        self.greeds: tuple[Greed, ...] = ("possessive",)
        self.alternates = random.random() < 0.3
        if not self.alternates and random.random() < 0.4:
            self.greeds = ("greedy", "reluctant", "possessive")

    def search(self) -> Search:
        random, x = self.random, Column(BIGINT, "x")
        reaches = [Reach("x", "x", BIGINT), Reach("q", "x", BIGINT, shift=-1), Reach("s", "s", VARCHAR)]
        reaches += [Reach("x2", "x", BIGINT, offset=1), Reach("fx", "x", BIGINT, first=True)]
        reaches += [Reach("from", "n", BIGINT, first=True), Reach("to", "n", BIGINT)]
        summaries = []
        for name in self.names:
            reaches += [Reach(f"L{name}", "x", BIGINT, (name,)), Reach(f"F{name}", "x", BIGINT, (name,), first=True)]
            summaries += [AggregateCall.matched(f"C{name}", "count", (), BIGINT, (name,))]
            summaries += [AggregateCall.matched(f"{fn[:3]}{name}", fn, (x,), BIGINT, (name,)) for fn in ("min", "max")]
        pattern = Sequence(tuple(self._items()))
        used = {part.name for part in walk_pattern(pattern) if isinstance(part, Variable)}
        pool = [self._condition() for _ in range(random.randint(1, 3))]
        conditions = tuple(
            (name, random.choice(pool) if random.random() < 0.6 else self._condition())
            for name in self.names
            if name in used and random.random() < 0.93
        )
        if self.alternates:
            turns = (self._compared("x", Column(BIGINT, "q")), self._compared("x", Column(BIGINT, "q")))
            conditions = tuple((name, turns[i % 2]) for i, name in enumerate(self.names))
        within = random.choice((None, None, None, 3, 6))
        columns = ("from", "to", *(f"C{name}" for name in self.names))
        return Search((), pattern, conditions, tuple(reaches), tuple(summaries), columns, Given(), within=within)

    def _items(self) -> list[Pattern]:
        random, items = self.random, list[Pattern]()
        if self.alternates:
            for name in self.names:
                items.append(Repeat(Variable(name), *random.choice(_TIMES[:4]), "possessive"))
                if random.random() < 0.6:
                    items.append(
                        Check(self._compared(random.choice(("C", "min", "max", "L", "F")) + name, self._small()))
                    )
            return items
        for name in self.names if random.random() < 0.8 else random.choices(self.names, k=len(self.names)):
            if random.random() < 0.45:
                items.append(Variable(name))
            else:
                items.append(Repeat(Variable(name), *random.choice(_TIMES), random.choice(self.greeds)))
            if random.random() < 0.3:
                who = name if random.random() < 0.8 else random.choice(self.names)
                items.append(Check(self._compared(random.choice(("C", "C", "min", "max", "L")) + who, self._small())))
        return items

    def _condition(self) -> Expr:
        pick = self.random.random()
        if pick < 0.6:
            return self._atom()
        return call("and" if pick < 0.9 else "or", self._atom(), self._atom())

    def _atom(self) -> Expr:
        random, name = self.random, self.random.choice(self.names)
        previous = Column(BIGINT, "q")
        choices: list[tuple[float, Any]] = [
            (0.35, lambda: self._compared("x", self._small())),
            (0.3, lambda: self._compared("x", previous)),
            (0.05, lambda: self._compared("x", call("+", previous, random.choice((-1, 1))))),
            (0.05, lambda: self._compared("x", call("*", previous, random.choice((2, -1))))),
            (0.05, lambda: call("is_null", Column(BIGINT, "x"))),
            (0.05, lambda: call("=", Column(VARCHAR, "s"), random.choice("ab"))),
            (0.05, lambda: self._compared("x", Column(BIGINT, random.choice("LF") + name))),
            (0.03, lambda: self._compared(f"C{name}", self._small())),
            (0.03, lambda: self._compared("x", Column(BIGINT, random.choice(("x2", "fx"))))),
            (0.04, lambda: call("not", self._atom())),
        ]
        (made,) = random.choices([choice for _, choice in choices], [weight for weight, _ in choices])
        result: Expr = made()
        return result

    def _compared(self, name: str, other: Value) -> Expr:
        return call(self.random.choice(_COMPARE), Column(BIGINT, name), other)

    def _small(self) -> int:
        return self.random.randint(0, 3)

    def rows(self) -> tuple[list[dict[str, Any]], list[int]]:
        random, x, time = self.random, 1, 0
        rows: list[dict[str, Any]] = []
        times = []
        wanders = random.random() < 0.5
        for i in range(random.randint(1, 25)):
            x = max(0, min(3, x + random.choice((-1, 0, 0, 1)))) if wanders else self._small()
            rows.append({"x": None if random.random() < 0.05 else x, "s": random.choice("ab"), "n": i})
            time += random.choice((0, 1, 1, 2))
            times.append(time)
        return rows, times


@settings(max_examples=examples(250), deadline=None)
@given(st.randoms(use_true_random=True))
def test_shifts_change_the_work_and_nothing_else(random: Random) -> None:
    maker = _Maker(random)
    search = maker.search()
    chain = chain_of(search)
    if isinstance(chain, NoChain):
        return
    first = chain.elements[0] if chain.elements else None
    if first is not None and first.least == 1 and first.most is None:
        search = replace(search, whole_runs=random.random() < 0.5)
    shifts = shifts_of(chain, search, last_rows=random.random() < 0.5)
    for _ in range(3):
        rows, times = maker.rows()
        naive, shifted = (ChainSearch(search, chain, rows, times) for _ in range(2))
        found = naive.naive()
        assert shifted.shifted(shifts) == found
        assert shifted.asked.conditions <= naive.asked.conditions
        assert shifted.asked.checks <= naive.asked.checks
        if not search.whole_runs:
            assert [one.values for one in told(search, rows, times)] == [_told(search, match) for match in found]


def _told(search: Search, match: Match) -> tuple[int | None, ...]:
    first, behind, labels = match
    ends = (first, behind - 1) if behind > first else (None, None)
    counted = (sum(label == name[1:] for label, _ in labels) for name in search.columns[2:])
    return (*ends, *counted)
