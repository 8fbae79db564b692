"""An aggregate gives the same value wherever it stands: OVER, in windows, beside others, and over relations."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.types import parse_type
from tiers import examples

WINDOW = "FROM TUMBLE(s, t, 100) GROUP BY window_start, window_end"
PLACES = {
    "over": "SELECT {call} OVER (ROWS UNBOUNDED PRECEDING) AS a FROM s",
    "tumble": f"SELECT {{call}} AS a {WINDOW}",
    "hop": "SELECT {call} AS a FROM HOP(s, t, 5, 100) WHERE window_start = 0 GROUP BY window_start, window_end",
    "beside an aggregate in SQL": f"SELECT {{call}} AS a, median(x) AS m {WINDOW}",
    "beside DISTINCT": f"SELECT {{call}} AS a, count(DISTINCT x) AS d {WINDOW}",
    "session": "SELECT {call} AS a FROM SESSION(s, t, 50) GROUP BY window_start, window_end",
    "match": "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES {call} AS a PATTERN (A+ $) DEFINE A AS TRUE)",
    "relation": "SELECT {call} AS a FROM s [RANGE UNBOUNDED]",
    "relation, beside an aggregate in SQL": "SELECT {call} AS a, median(x) AS m FROM s [RANGE UNBOUNDED]",
}

NEAR = st.floats(-1e6, 1e6).map(lambda x: round(x * 2**20) / 2**20)
NUMBERS = st.lists(st.none() | NEAR | st.sampled_from([1e16, -1e16, 0.1]), min_size=1, max_size=20)


X = re.compile(r"\bx\b")
CALLS = ("count(x)", "sum(x)", "avg(x)", "min(x)", "max(x)", "var_pop(x)", "stddev_samp(x)")


def everywhere(calls: tuple[str, ...], numbers: list[float | None]) -> dict[str, dict[str, Any]]:
    """What each call comes to over all numbers: by call, by place. Each is a query of its own, all of one session."""
    db = ms.connect()
    db.execute("CREATE STREAM s (x DOUBLE, t BIGINT) ORDER BY t")
    queries = {call: {place: db.sql(text.format(call=call)) for place, text in PLACES.items()} for call in calls}
    db.push("s", [(x, t) for t, x in enumerate(numbers)])
    db.finish()
    return {
        call: {place: query.fetch().to_pylist()[-1]["a"] for place, query in places.items()}
        for call, places in queries.items()
    }


def test_digits_that_a_large_value_hides_come_back() -> None:
    found = everywhere(("sum(x)", "avg(x)"), [1e16, 1.0, 1.0, -1e16])
    assert found == {"sum(x)": dict.fromkeys(PLACES, 2.0), "avg(x)": dict.fromkeys(PLACES, 0.5)}


@settings(max_examples=examples(8), deadline=None)
@given(numbers=NUMBERS)
def test_equal_to_the_last_digit(numbers: list[float | None]) -> None:
    for call, places in everywhere(CALLS, numbers).items():
        assert places == dict.fromkeys(PLACES, places["over"]), call


# -- every built-in aggregate, over values of every type, in every place ---------------------------------------------

OF_ANY = (
    "count(x)", "count(DISTINCT x)", "min(x)", "max(x)", "max_by(x, x)", "max_by(t, x)",
    "min_by(x, t % 4) FILTER (WHERE t > 0)", "count_if(x IS NULL)", "count(x) FILTER (WHERE t > 0)",
)  # fmt: skip
OF_ORDER = ("first_value(x)", "last_value(x)", "first_value(x IGNORE NULLS)", "last_value(x IGNORE NULLS)")
OF_NUMBERS = (
    "sum(x)", "avg(x)", "var_pop(x)", "var_samp(x)", "stddev_pop(x)", "stddev_samp(x)", "sum(DISTINCT x)",
    "avg(DISTINCT x)", "var_pop(DISTINCT x)", "stddev_samp(DISTINCT x)", "median(x)", "quantile_cont(x, 0.3)",
)  # fmt: skip
OF_TYPES = {"BOOLEAN": ("bool_and(x)", "bool_or(x)"), "VARCHAR": ("string_agg(x, '|')",)}
VALUES: dict[str, list[Any]] = {
    "DOUBLE": [math.nan, math.inf, -math.inf, -0.0, 0.0, 1e16, 1.0, -1e16, 1e308, 5e-324, 1e-200, 0.1, 1e150, -7.25],
    "INTEGER": [0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "BIGINT": [0, 1, -7, 2**53 + 1, 2**59, -(2**59)],
    "DECIMAL(18, 2)": [Decimal("0.00"), Decimal("0.01"), Decimal("-5.10"), Decimal("12345678901234.56")],
    "VARCHAR": ["", "a", "ab", "B", "é", "zz", "|"],
    "TIMESTAMP": [dt.datetime(2020, 1, 1), dt.datetime(1969, 1, 1, 3), dt.datetime(9999, 12, 31)],
    "BOOLEAN": [True, False],
}


def _lists(values: list[Any]) -> list[tuple[Any, ...]]:
    """Lists of values, NULLs among them; the first has no infinities, whose sums are all alike."""
    draw = Random(5)
    finite = [value for value in values if not isinstance(value, float) or math.isfinite(value)]
    return [
        tuple(draw.choice([None, *(values if i else finite)]) for _ in range(draw.choice([2, 4, 6, 9])))
        for i in range(80)
    ]


LISTS = {type_: _lists(values) for type_, values in VALUES.items()}
NUMERIC = ("DOUBLE", "INTEGER", "BIGINT", "DECIMAL(18, 2)")
STATEMENTS = {
    "count(x)": "BIGINT", "count(DISTINCT x)": "BIGINT", "min(x)": "", "max(x)": "", "max_by(x, x)": "",
    "sum(x)": "SUM",
    "avg(x)": "DOUBLE",
    "var_pop(x)": "DOUBLE", "stddev_samp(x)": "DOUBLE", "sum(DISTINCT x)": "SUM", "var_pop(DISTINCT x)": "DOUBLE",
}  # fmt: skip
"""calls in the statements of an aggregate, with the type of what they return: that of x if it is empty"""
WIDE = "SELECT {calls} FROM s WINDOW w AS (ORDER BY t "
WIDE_PLACES = {
    "rows": WIDE + "ROWS 99 PRECEDING)",
    "range": WIDE + "RANGE 1000 PRECEDING)",
    "unbounded range": WIDE + "RANGE UNBOUNDED PRECEDING)",
    "slots": WIDE + "ROWS {before} PRECEDING SLIDE {size})",
    "panes": WIDE + "ROWS 99 PRECEDING SLIDE {part})",
    "tumble": f"SELECT {{calls}} {WINDOW}",
    "hop": "SELECT {calls} FROM HOP(s, t, 5, 100) WHERE window_start = 0 GROUP BY window_start, window_end",
    "cumulate": "SELECT {calls} FROM CUMULATE(s, t, 10, 100) GROUP BY window_start, window_end",
    "session": "SELECT {calls} FROM SESSION(s, t, 50) GROUP BY window_start, window_end",
    "match": "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES {calls} PATTERN (A+ $) DEFINE A AS TRUE)",
    "relation": "SELECT {calls} FROM s [RANGE UNBOUNDED]",
    "relation that ends": "SELECT {calls} FROM s [RANGE 1000]",
}


def calls_of(type_: str) -> tuple[str, ...]:
    return (*OF_ANY, *(OF_NUMBERS if type_ in NUMERIC else ()), *OF_TYPES.get(type_, ()))


def values_in(place: str, type_: str, calls: tuple[str, ...], values: list[Any], **settings: Any) -> list[Any]:
    """What calls come to over all values."""
    db = ms.connect(**settings)
    db.execute(f"CREATE STREAM s (x {type_}, t BIGINT) ORDER BY t")
    text, size = WIDE_PLACES[place], len(values)
    over = " OVER w" if text.startswith(WIDE) else ""
    part = next(part for part in range(2, size + 2) if size % part == 0 or part > size)
    named = ", ".join(f"{call}{over} AS a{i}" for i, call in enumerate(calls))
    query = db.sql(text.format(calls=named, before=size - 1, size=size, part=min(part, size)))
    db.push("s", [(x, t) for t, x in enumerate(values)])
    db.finish()
    rows = [row for row in query.fetch().to_pylist() if row.get("valid_from", 0) < size]
    return [rows[-1][f"a{i}"] for i in range(len(calls))]


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right) or (left != left and right != right)


@cache
def wanted_of(type_: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """What all calls come to over the rows so far."""
    calls = (*calls_of(type_), *OF_ORDER)
    return dict(zip(calls, values_in("rows", type_, calls, [*values]), strict=True))


@pytest.mark.parametrize("type_", VALUES)
@pytest.mark.parametrize("place", [place for place in WIDE_PLACES if place != "rows"])
def test_every_aggregate_of_every_type(place: str, type_: str) -> None:
    forms = [{"relations": form} for form in ("intervals", "changes")] if place.startswith("relation") else [{}]
    calls = calls_of(type_) if place.startswith("relation") else (*calls_of(type_), *OF_ORDER)
    # doubles have most values that are special
    for values in LISTS[type_][: examples(4 if type_ == "DOUBLE" else 2)]:
        wanted = wanted_of(type_, values)
        for form in forms:
            for call, mine in zip(calls, values_in(place, type_, calls, [*values], **form), strict=True):
                assert same(mine, wanted[call]), (call, values, mine, wanted[call])


@pytest.mark.parametrize("type_", VALUES)
def test_in_statements_and_conditions(type_: str) -> None:
    values = [*LISTS[type_][0]]
    calls = tuple(call for call in STATEMENTS if call in calls_of(type_))
    wanted = values_in("rows", type_, calls, values)
    total = {"DOUBLE": "DOUBLE", "DECIMAL(18, 2)": type_}.get(type_, "BIGINT")
    db = ms.connect()
    db.execute("CREATE STREAM ended (t BIGINT) ORDER BY t")
    queries = []
    for i, (call, value) in enumerate(zip(calls, wanted, strict=True)):
        result = {"": type_, "SUM": total}.get(STATEMENTS[call], STATEMENTS[call])
        db.execute(f"CREATE STREAM s{i} (x {type_}, wanted {result}, t BIGINT) ORDER BY t")
        db.execute(
            f"CREATE AGGREGATE inside{i}(x {type_}) : {result} {{ TABLE kept(v {type_});"
            " INITIALIZE: ITERATE: { INSERT INTO kept VALUES (x); }"
            f" TERMINATE: {{ INSERT INTO RETURN SELECT {X.sub('v', call)} FROM kept; }} }}"
        )
        inside = db.sql(f"SELECT inside{i}(x) AS a FROM TUMBLE(s{i}, t, 100) GROUP BY window_start, window_end")
        condition = f"B.t = {len(values)} AND {X.sub('A.x', call)} IS NOT DISTINCT FROM B.wanted"
        found = db.sql(
            f"SELECT * FROM s{i} MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (^ A+ B) DEFINE"
            f" A AS A.t < {len(values)}, B AS {condition})"
        )
        queries.append((call, value, inside, found))
        db.push(f"s{i}", [*((x, None, t) for t, x in enumerate(values)), (None, value, len(values))])
    db.finish()
    for call, value, inside, found in queries:
        # the last row of the statement's window is NULL, which counts for none of these
        assert same(inside.fetch().to_pylist()[-1]["a"], value), call
        assert found.fetch().num_rows == 1, (call, value)


@pytest.mark.parametrize("type_", VALUES)
def test_over_stored_tables(type_: str) -> None:
    """DuckDB adds doubles up in its own way, takes either zero for the least, and has wider integers for sums."""
    values = [*LISTS[type_][0]]
    calls = tuple(call for call in calls_of(type_) if call in ("count(x)", "count(DISTINCT x)", "min(x)", "max(x)"))
    if type_ in ("INTEGER", "BIGINT", "DECIMAL(18, 2)"):
        calls = (*calls, "sum(x)", "sum(DISTINCT x)")
    wanted = values_in("rows", type_, calls, values)
    db = ms.connect()
    arrow = parse_type(type_)
    assert arrow is not None
    db.register("kept", pa.table({"x": pa.array(values, arrow.arrow)}))
    named = ", ".join(f"{call} AS a{i}" for i, call in enumerate(calls))
    (row,) = db.execute(f"SELECT {named} FROM kept").arrow().to_pylist()  # type: ignore[union-attr]
    for i, (call, value) in enumerate(zip(calls, wanted, strict=True)):
        mine = row[f"a{i}"]
        assert same(mine, value) or mine == value, (call, mine, value)
