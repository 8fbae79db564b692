"""What follows from conditions: verdicts that must be found, and none that values contradict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import sql
from millstream.bind import statements as act
from millstream.catalog import Catalog
from millstream.expressions.nodes import Column, Expr, Literal, columns_of
from millstream.kernels.source.objects import compile_objects
from millstream.plan.nodes import Filter, walk
from millstream.plan.programs.builder import call
from millstream.plan.proofs.implication import contradictory, excludes
from millstream.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR
from tiers import examples

DECLARATION = """CREATE STREAM t (x DOUBLE, prev DOUBLE, z DOUBLE, i INT, j INT, k BIGINT, m DECIMAL(8, 2),
    w DECIMAL(8, 2), s VARCHAR, u VARCHAR, b BOOLEAN, c BOOLEAN, at TIMESTAMP, since TIMESTAMP, d DATE) ORDER BY at"""


def implies(p: Expr, q: Expr, givens: tuple[Expr, ...] = ()) -> bool:
    """Whether q is certainly satisfied where p is, and the givens are."""
    return contradictory((p, *givens), (q,))


def tautology(p: Expr) -> bool:
    """Whether p is certainly satisfied."""
    return contradictory((), (p,))


@lru_cache
def catalog() -> Catalog:
    made = Catalog()
    (statement,) = sql.parse(DECLARATION)
    action = act.bind(statement.ast, made, DECLARATION)
    assert isinstance(action, act.Define)
    made.add(action.entry)
    return made


@lru_cache
def condition(text: str) -> Expr:
    """A condition on the columns of the declaration, as the binder makes it."""
    text = f"SELECT i FROM t WHERE {text}"
    (statement,) = sql.parse(text)
    action = act.bind(statement.ast, catalog(), text)
    assert isinstance(action, act.StartQuery)
    (found,) = (node for node in walk(action.bound.plan) if isinstance(node, Filter))
    return found.predicate


EXCLUSIVE = [
    ("x < prev", "x > prev"),
    ("x < prev", "x >= prev"),
    ("x < prev", "x = prev"),
    ("x > 10", "x < 5"),
    ("0.98 * prev < x", "x < 0.98 * prev"),
    ("x < prev * 0.98", "0.98 * prev <= x"),
    ("prev > 0 AND x < 0.98 * prev", "x > 1.02 * prev"),
    ("x > 0 AND x < 0.98 * prev", "x > 1.02 * prev"),
    ("prev > 0 AND x > prev + 1", "x < 0.98 * prev"),
    ("prev >= 100 AND x < 50", "x > 0.98 * prev"),
    ("x < -prev", "-prev < x"),
    ("s = 'a'", "s = 'd'"),
    ("s = u", "s = 'a' AND u = 'b'"),
    ("s = 'a'", "s IN ('b', 'c')"),
    ("s = 'a'", "s <> 'a'"),
    ("s < 'b'", "s > 'c'"),
    ("i = 3", "i IN (1, 2)"),
    ("i IN (1, 2)", "i NOT IN (0, 1, 2, 3)"),
    ("i BETWEEN 1 AND 3", "i > 3"),
    ("i > 1", "i < 2"),
    ("i > j", "i < j + 1"),
    ("i < j AND j < k", "k < i + 2"),
    ("i - j > 5", "i <= j"),
    ("i > 2 * j", "i < 2 * j"),
    ("j > 0 AND i > 2 * j", "i < j"),
    ("i > 0 AND i > 2 * j", "i + i < 3 * j"),
    ("m < 0.98 * w", "m > 0.98 * w"),
    ("w > 0 AND m < 0.98 * w", "m > w"),
    ("at - since > INTERVAL '5' MINUTE", "at < since + INTERVAL '1' MINUTE"),
    ("at > TIMESTAMP '2024-01-02 00:00:00'", "at < TIMESTAMP '2024-01-01 00:00:00'"),
    ("b", "NOT b"),
    ("b", "b = FALSE"),
    ("b AND NOT c", "b = c"),
    ("i IS NULL", "i < j"),
    ("i + j IS NOT NULL", "i IS NULL"),
    ("i / j > 0", "j IS NULL"),
    ("lower(s) = 'a'", "lower(s) = 'b'"),
    ("(x - prev) / prev > 0.02", "(x - prev) / prev < -0.02"),
    ("x < prev OR x < z", "x > prev AND x > z"),
    ("i IS DISTINCT FROM j", "i = j"),
    ("i IS NOT DISTINCT FROM j", "i < j"),
    ("NOT (i < j)", "i < j"),
]
COMPATIBLE = [
    ("x <= prev", "x >= prev"),
    ("x < 0.98 * prev", "x > 1.02 * prev"),
    ("x > 5", "x < 10"),
    ("x > 1", "x < 2"),
    ("m > 1", "m < 2"),
    ("i > 1", "i < 3"),
    ("x - prev > 0", "x <= prev"),
    ("s = 'a'", "u = 'd'"),
    ("lower(s) = 'a'", "upper(s) = 'b'"),
    ("x < prev", "s = 'a'"),
    ("i > 2 * j", "i < j"),
    ("i IS NULL", "j IS NOT NULL"),
    ("i / j IS NULL", "i IS NOT NULL"),
]
IMPLIED = [
    ("x > 10", "x > 5"),
    ("x > 10", "x <> 3"),
    ("x < prev AND prev < z", "x < z"),
    ("0.98 * prev < x AND x < 1.02 * prev", "x >= 0.98 * prev"),
    ("prev > 0 AND x > 1.02 * prev", "x >= 0.98 * prev"),
    ("x > 1.02 * prev AND prev > 0", "x > 0"),
    ("x > 2.0 * prev AND prev > 100", "x > 200"),
    ("i = 3", "i IN (1, 3)"),
    ("i BETWEEN 2 AND 3", "i IN (2, 3)"),
    ("i > j", "i >= j + 1"),
    ("i - j > 5", "i > j"),
    ("i > 2 * j AND j >= 3", "i > 6"),
    ("s = 'a'", "s <> 'b'"),
    ("s = 'a'", "s IS NOT NULL"),
    ("i < j", "i IS NOT NULL AND j IS NOT NULL"),
    ("b = TRUE", "b"),
    ("b <> c AND b", "NOT c"),
    ("x < prev OR x = prev", "x <= prev"),
    ("i = j", "i IS NOT DISTINCT FROM j"),
    ("at > since + INTERVAL '1' HOUR", "at > since"),
]
OPEN = [
    ("x > 5", "x > 10"),
    ("x > 1.02 * prev", "x >= 0.98 * prev"),
    ("x < 10", "prev < 10"),
    ("x <= prev", "x < prev"),
    ("x * 0.5 >= 0", "x >= 0"),
    ("i IS NULL", "i = i"),
    ("x > 10 OR s = 'a'", "x > 10"),
]


@pytest.mark.parametrize(("one", "other"), EXCLUSIVE)
def test_conditions_that_exclude_each_other(one: str, other: str) -> None:
    assert excludes(condition(one), condition(other))
    assert excludes(condition(other), condition(one))


@pytest.mark.parametrize(("one", "other"), COMPATIBLE)
def test_conditions_that_do_not(one: str, other: str) -> None:
    assert not excludes(condition(one), condition(other))


@pytest.mark.parametrize(("one", "other"), IMPLIED)
def test_conditions_that_follow(one: str, other: str) -> None:
    assert implies(condition(one), condition(other))


@pytest.mark.parametrize(("one", "other"), OPEN)
def test_conditions_that_do_not_follow(one: str, other: str) -> None:
    assert not implies(condition(one), condition(other))


def test_what_always_holds() -> None:
    assert tautology(condition("i IS NULL OR i = i"))
    assert tautology(condition("i IS NULL OR j IS NULL OR i < j OR i >= j"))
    assert tautology(condition("b IS NULL OR b OR NOT b"))
    assert not tautology(condition("i = i"))
    assert not tautology(condition("i < j OR i >= j"))


def test_what_failed_counts_as_false_or_null() -> None:
    """A condition that failed may be NULL, so its opposite does not follow, but with the terms known it does."""
    down, up = condition("i < j"), condition("i >= j")
    assert not contradictory((), (down, up))
    assert contradictory((condition("i + j IS NOT NULL"),), (down, up))
    assert contradictory((condition("i < j - 5"),), (down,))


def test_givens_hold_for_both() -> None:
    down, up = condition("x < 0.98 * prev"), condition("x > 1.02 * prev")
    assert excludes(down, up, (condition("prev > 0"),))
    assert implies(up, condition("x >= 0.98 * prev"), (condition("prev > 0"),))


def test_too_many_cases_are_left_open() -> None:
    """Seven numbers from one to six cannot all be different, but that is not found out."""
    numbers = [Column(BIGINT, f"n{i}") for i in range(7)]
    bounds = [call("in", number, *range(1, 7)) for number in numbers]
    pairs = [call("<>", one, other) for one, other in itertools.combinations(numbers, 2)]
    assert not contradictory((*bounds, *pairs))
    assert contradictory((*bounds, *pairs, *(call("=", number, 3) for number in numbers)))


_COMPARE = ("=", "<>", "<", "<=", ">", ">=", "is_distinct")
_FLOATS = (None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1.0, 3.0, -3.0, 1e308, 0.98)
_WHOLE = (None, -2, -1, 0, 1, 2, 3)
_DOMAINS: dict[str, tuple[Any, ...]] = {
    "x": _FLOATS, "y": _FLOATS, "i": _WHOLE, "j": _WHOLE, "s": (None, "a", "b", "c"), "b": (None, True, False),
}  # fmt: skip
_TYPES = {"x": DOUBLE, "y": DOUBLE, "i": BIGINT, "j": BIGINT, "s": VARCHAR, "b": BOOLEAN}


class _Maker:
    """Draws conditions over a few columns."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.numbers = random.choice((("x", "y"), ("i", "j")))

    def condition(self, depth: int = 2) -> Expr:
        pick = self.random.random()
        if depth and pick < 0.45:
            return call(self.random.choice(("and", "or")), self.condition(depth - 1), self.condition(depth - 1))
        if depth and pick < 0.52:
            return call("not", self.condition(depth - 1))
        return self._atom()

    def _atom(self) -> Expr:
        random = self.random
        match random.choice(("number",) * 6 + ("in", "null", "text", "truth")):
            case "number":
                return call(random.choice(_COMPARE), self._number(), self._number())
            case "in":
                return call("in", self._number(), *(self._constant() for _ in range(random.randint(1, 3))))
            case "null":
                return call("is_null", self._number())
            case "text":
                right = random.choice((Literal(VARCHAR, random.choice("abc")), Literal(VARCHAR, None)))
                return call(random.choice(_COMPARE), Column(VARCHAR, "s"), right)
        return Column(BOOLEAN, "b")

    def _number(self, depth: int = 2) -> Expr:
        random = self.random
        name = random.choice(self.numbers)
        column = Column(_TYPES[name], name)
        pick = random.random() if depth else 0.0
        if pick < 0.45:
            return column if random.random() < 0.7 else self._constant()
        if pick < 0.6:
            return call(random.choice("+-"), self._number(depth - 1), self._number(depth - 1))
        if pick < 0.9:
            factor, rest = self._constant(), self._number(depth - 1)
            return call("*", *((factor, rest) if random.random() < 0.5 else (rest, factor)))
        return call("neg", self._number(depth - 1))

    def _constant(self) -> Expr:
        if self.numbers == ("i", "j"):
            return Literal(BIGINT, self.random.choice((-2, -1, 0, 1, 2, 3)))
        return Literal(DOUBLE, self.random.choice((-1.0, 0.0, 0.5, 0.98, 1.0, 1.02, 2.0, 3.0, math.inf, math.nan)))


def _compiled(expr: Expr) -> Callable[[Any], Any]:
    return compile_objects(expr, lambda module, part: f"row[0][{module.constant(part.name)}]")


@settings(max_examples=examples(400), deadline=None)
@given(st.randoms(use_true_random=True))
def test_verdicts_are_never_contradicted_by_values(random: Random) -> None:
    maker = _Maker(random)
    p, q = maker.condition(), maker.condition()
    verdicts = {"excludes": excludes(p, q), "implies": implies(p, q), "always": tautology(q)}
    neither = contradictory((), (p, q))
    if not any(verdicts.values()) and not neither:
        return
    names = sorted(columns_of(p) | columns_of(q))
    first, second = _compiled(p), _compiled(q)
    for values in itertools.product(*(_DOMAINS[name] for name in names)):
        row = dict(zip(names, values, strict=True))
        one, two = first([row]) is True, second([row]) is True
        assert not (verdicts["excludes"] and one and two), (p, q, row)
        assert not (verdicts["implies"] and one and not two), (p, q, row)
        assert not (verdicts["always"] and not two), (q, row)
        assert not (neither and not one and not two), (p, q, row)
