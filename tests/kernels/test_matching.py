"""The index of a table join finds the pairs that its condition lets through, whatever came and went."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.expressions.nodes import Call, Column, Expr, conjunction
from millstream.kernels.jit import using
from millstream.kernels.matching import MatchIndex, split_condition
from millstream.schema import Field, Schema
from millstream.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR
from tests.tiers import examples

STREAM = Schema((Field("sym", VARCHAR), Field("price", DOUBLE), Field("vol", BIGINT)))
TABLE = Schema((Field("id", BIGINT), Field("s", VARCHAR), Field("lo", DOUBLE), Field("hi", DOUBLE), Field("v", BIGINT)))
BOTH = {field.name: field.type for field in (*STREAM, *TABLE)}


def compare(mine: str, op: str, theirs: str) -> Expr:
    return Call(BOOLEAN, op, (Column(BOTH[mine], mine), Column(BOTH[theirs], theirs)))


PAIR = ((Column(VARCHAR, "sym"), Column(VARCHAR, "s")),)
CONDITIONS: dict[str, tuple[Any, tuple[Expr, ...]]] = {
    "equality": (PAIR, ()),
    "above": ((), (compare("price", ">", "lo"),)),
    "not below": ((), (compare("lo", "<=", "price"),)),
    "below": ((), (compare("price", "<", "hi"),)),
    "between": ((), (compare("price", ">", "lo"), compare("price", "<=", "hi"))),
    "all": (PAIR, (compare("price", ">=", "lo"), compare("price", "<", "hi"), compare("v", "<=", "vol"))),
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


def holds(op: str, mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None:
        return False
    a, b = order(mine), order(theirs)
    return bool({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "=": a == b}[op])


def matches(pairs: Any, parts: tuple[Expr, ...], event: dict[str, Any], row: dict[str, Any]) -> bool:
    both = event | row
    asked = [("=", mine.name, theirs.name) for mine, theirs in pairs]
    for part in parts:
        assert isinstance(part, Call)
        left, right = part.args
        assert isinstance(left, Column) and isinstance(right, Column)
        asked.append((part.fn, left.name, right.name))
    return all(holds(op, both[mine], both[theirs]) for op, mine, theirs in asked)


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
    index = MatchIndex(condition, STREAM, TABLE)
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
