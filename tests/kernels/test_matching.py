"""The index of a table join finds the pairs that its condition lets through, whatever came and went."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.expressions.nodes import Call, Column, Expr, Literal, conjunction
from millstream.kernels.jit import using
from millstream.kernels.matching import MatchIndex, index_of, split_condition
from millstream.kernels.matching.condition import alternatives
from millstream.schema import Field, Schema
from millstream.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR
from tests.tiers import examples

STREAM = Schema((Field("sym", VARCHAR), Field("price", DOUBLE), Field("vol", BIGINT)))
TABLE = Schema((Field("id", BIGINT), Field("s", VARCHAR), Field("lo", DOUBLE), Field("hi", DOUBLE), Field("v", BIGINT)))
BOTH = {field.name: field.type for field in (*STREAM, *TABLE)}


def compare(mine: str, op: str, theirs: str) -> Expr:
    return Call(BOOLEAN, op, (Column(BOTH[mine], mine), Column(BOTH[theirs], theirs)))


def negated(part: Expr) -> Expr:
    return Call(BOOLEAN, "not", (part,))


def either(*parts: Expr) -> Expr:
    return Call(BOOLEAN, "or", parts)


def both(*parts: Expr) -> Expr:
    return Call(BOOLEAN, "and", parts)


def one_of(mine: str, *theirs: str) -> Expr:
    return Call(BOOLEAN, "in", (Column(BOTH[mine], mine), *(Column(BOTH[name], name) for name in theirs)))


PAIR = ((Column(VARCHAR, "sym"), Column(VARCHAR, "s")),)
CONDITIONS: dict[str, tuple[Any, tuple[Expr, ...]]] = {
    "equality": (PAIR, ()),
    "above": ((), (compare("price", ">", "lo"),)),
    "not below": ((), (compare("lo", "<=", "price"),)),
    "below": ((), (compare("price", "<", "hi"),)),
    "between": ((), (compare("price", ">", "lo"), compare("price", "<=", "hi"))),
    "all": (PAIR, (compare("price", ">=", "lo"), compare("price", "<", "hi"), compare("v", "<=", "vol"))),
    "not": (PAIR, (negated(compare("price", "<", "lo")), negated(compare("hi", "<=", "price")))),
    "or": ((), (either(compare("sym", "=", "s"), compare("price", "=", "lo"), compare("vol", ">", "v")),)),
    "or of ands": (
        (),
        (
            either(both(compare("sym", "=", "s"), compare("price", ">", "lo")), compare("vol", "=", "v")),
            compare("price", "<=", "hi"),
        ),
    ),
    "not of and": ((), (negated(both(compare("price", ">", "lo"), compare("price", "<=", "hi"))),)),
    "two or": (
        (),
        (
            either(compare("price", "<", "lo"), compare("price", ">", "hi")),
            negated(both(compare("vol", ">", "v"), compare("price", ">=", "lo"))),
        ),
    ),
    "one of": ((), (one_of("price", "lo", "hi"), compare("vol", ">=", "v"))),
    "one of constants": ((), (Call(BOOLEAN, "in", (Column(BIGINT, "vol"), Column(BIGINT, "v"), Literal(BIGINT, 1))),)),
    "everything": ((), ()),
}
DOUBLES = st.sampled_from([None, 0.0, -0.0, 1.0, 2.0, -1.0, 1e300, -1e300, math.inf, -math.inf, math.nan])
INTS = st.sampled_from([None, -(2**63), -1, 0, 1, 2**63 - 1])
TEXTS = st.sampled_from([None, "a", "b", ""])
ROWS = st.lists(st.tuples(TEXTS, DOUBLES, DOUBLES, INTS), max_size=30)
STEPS = st.lists(st.tuples(ROWS, st.integers(0, 2**32), ROWS), min_size=1, max_size=6)


def order(value: Any) -> Any:
    """NaN is the greatest number."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def holds(op: str, mine: Any, theirs: Any) -> bool | None:
    if mine is None or theirs is None:
        return None
    a, b = order(mine), order(theirs)
    return bool({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "=": a == b}[op])


def value(part: Expr, row: dict[str, Any]) -> Any:
    """What an expression is for a row, by the rules of SQL; None is unknown."""
    match part:
        case Column(name=name):
            return row[name]
        case Literal(value=constant):
            return constant
    assert isinstance(part, Call)
    args = [value(arg, row) for arg in part.args]
    match part.fn:
        case "not":
            return None if args[0] is None else not args[0]
        case "and":
            return False if False in args else None if None in args else True
        case "or":
            return True if True in args else None if None in args else False
        case "in":
            found = [holds("=", args[0], item) for item in args[1:]]
            return True if True in found else None if None in found else False
    return holds(part.fn, *args)


def matches(pairs: Any, parts: tuple[Expr, ...], event: dict[str, Any], row: dict[str, Any]) -> bool:
    equal = (Call(BOOLEAN, "=", (mine, theirs)) for mine, theirs in pairs)
    return all(value(part, event | row) for part in (*equal, *parts))


def batch(rows: list[tuple[Any, ...]], schema: Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(list(column), field.type.arrow) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


@pytest.mark.parametrize("name", CONDITIONS)
@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS)
def test_what_is_found_is_what_matches(name: str, steps: list[Any]) -> None:
    pairs, parts = CONDITIONS[name]
    condition = split_condition(pairs, conjunction(parts) if parts else None, set(STREAM.names), set(TABLE.names))
    assert not condition.rest
    index = index_of(condition, STREAM, TABLE)
    known: dict[int, dict[str, Any]] = {}
    fresh = 0
    for added, chosen, events in steps:
        rows = batch([(fresh + i, *row) for i, row in enumerate(added)], TABLE)
        index.add(rows, np.arange(fresh, fresh + len(added)))
        known |= {row["id"]: row for row in rows.to_pylist()}
        fresh += len(added)
        gone = [key for i, key in enumerate(sorted(known)) if chosen >> i % 32 & 1]
        index.drop(np.array(gone, dtype=np.int64))
        known = {key: row for key, row in known.items() if key not in gone}
        stream = batch([(name, price, volume) for name, price, _, volume in events], STREAM)
        left, right = index.match(stream)
        assert list(left) == sorted(left)
        got = sorted(zip(left.tolist(), right.column("id").to_pylist(), strict=True))
        want = sorted(
            (i, key)
            for i, event in enumerate(stream.to_pylist())
            for key, row in known.items()
            if matches(pairs, parts, event, row)
        )
        assert got == want
        assert np.flatnonzero(index.matched(stream)).tolist() == sorted({i for i, _ in want})
        sizes, right = index.lists(stream)
        rows_of = np.repeat(np.arange(stream.num_rows), sizes).tolist()
        assert sorted(zip(rows_of, right.column("id").to_pylist(), strict=True)) == want


def test_compiled_and_python_find_the_same() -> None:
    draw = np.random.default_rng(3)
    pairs, parts = CONDITIONS["all"]
    condition = split_condition(pairs, conjunction(parts), set(STREAM.names), set(TABLE.names))
    names = np.array(["a", "b", "c"])
    low = draw.integers(0, 50, 3_000).astype(float)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(3_000)),
            pa.array(names[draw.integers(0, 3, 3_000)]),
            pa.array(low),
            pa.array(low + draw.integers(-1, 20, 3_000)),
            pa.array(draw.integers(0, 5, 3_000)),
        ],
        schema=TABLE.arrow,
    )
    events = pa.RecordBatch.from_arrays(
        [
            pa.array(names[draw.integers(0, 3, 300)]),
            pa.array(draw.integers(0, 60, 300).astype(float)),
            pa.array(draw.integers(0, 5, 300)),
        ],
        schema=STREAM.arrow,
    )
    found = []
    for mode in ("off", "on"):
        with using(mode):
            index = MatchIndex(condition, STREAM, TABLE)
            for start in range(0, 3_000, 700):
                part = rows.slice(start, 700)
                index.add(part, np.arange(start, start + part.num_rows))
            index.drop(np.arange(0, 3_000, 7))
            left, right = index.match(events)
            found.append(list(zip(left.tolist(), right.column("id").to_pylist(), strict=True)))
    assert len(found[0]) > 1_000
    assert sorted(found[0]) == sorted(found[1])


def test_the_range_that_leaves_fewest_rows_is_searched() -> None:
    """Whichever the condition has first: measured on rows that came, and again when they change."""
    draw = np.random.default_rng(4)
    count = 20_000
    parts = (compare("price", ">", "lo"), compare("price", "<", "hi"), compare("vol", ">=", "v"))
    condition = split_condition((), conjunction(parts), set(STREAM.names), set(TABLE.names))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(count)), pa.array(["a"] * count), pa.array(draw.uniform(0, 1, count)),
            pa.array(draw.uniform(99, 100, count)), pa.array(draw.permutation(count)),
        ],
        schema=TABLE.arrow,
    )  # fmt: skip

    def events(prices: tuple[float, float], volumes: tuple[int, int]) -> pa.RecordBatch:
        price, volume = draw.uniform(*prices, 600), draw.integers(*volumes, 600)
        return pa.RecordBatch.from_arrays(
            [pa.array(["a"] * 600), pa.array(price), pa.array(volume)], schema=STREAM.arrow
        )

    index = MatchIndex(condition, STREAM, TABLE)
    index.add(rows, np.arange(count))
    firsts = []
    for prices, volumes in [((1.0, 99.0), (0, 20))] * 4 + [((-1.0, 0.001), (0, count))] * 40:
        asked = events(prices, volumes)
        left, right = index.match(asked)
        firsts.append(index._first)
        if len(firsts) % 6 == 1:
            mine, theirs = asked.to_pydict(), rows.to_pydict()
            lo, hi, v = (np.array(theirs[name]) for name in ("lo", "hi", "v"))
            want = [
                (i, int(key))
                for i, (price, volume) in enumerate(zip(mine["price"], mine["vol"], strict=True))
                for key in np.flatnonzero((price > lo) & (price < hi) & (volume >= v))
            ]
            assert sorted(zip(left.tolist(), right.column("id").to_pylist(), strict=True)) == want
    assert (firsts[0], firsts[3], firsts[-1]) == (0, 1, 0)


def test_a_condition_with_very_many_alternatives_is_left_as_it_is() -> None:
    pairs = [both(compare("price", ">", "lo"), compare("vol", "=", "v")) for _ in range(100)]
    part = negated(either(*pairs))
    assert alternatives(part) == [(part,)]
    nested = both(either(*pairs[:2]), *(either(compare("vol", "=", "v"), each) for each in pairs))
    assert alternatives(nested) == [(nested,)]
