"""An aggregate gives the same value wherever it stands: OVER, in windows, beside others, and over relations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from tiers import examples

WINDOW = "FROM TUMBLE(s, t, 100) GROUP BY window_start, window_end"
PLACES = {
    "over": "SELECT {call} OVER (ROWS UNBOUNDED PRECEDING) AS a FROM s",
    "tumble": f"SELECT {{call}} AS a {WINDOW}",
    "hop": "SELECT {call} AS a FROM HOP(s, t, 5, 100) WHERE window_start = 0 GROUP BY window_start, window_end",
    "beside an aggregate in SQL": f"SELECT {{call}} AS a, max_by(x, t) AS m {WINDOW}",
    "beside DISTINCT": f"SELECT {{call}} AS a, count(DISTINCT x) AS d {WINDOW}",
    "session": "SELECT {call} AS a FROM SESSION(s, t, 50) GROUP BY window_start, window_end",
    "match": "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES {call} AS a PATTERN (A+ $) DEFINE A AS TRUE)",
    "relation": "SELECT {call} AS a FROM s [RANGE UNBOUNDED]",
    "relation, beside an aggregate in SQL": "SELECT {call} AS a, max_by(x, t) AS m FROM s [RANGE UNBOUNDED]",
}

NEAR = st.floats(-1e6, 1e6).map(lambda x: round(x * 2**20) / 2**20)
NUMBERS = st.lists(st.none() | NEAR | st.sampled_from([1e16, -1e16, 0.1]), min_size=1, max_size=20)


def value(place: str, call: str, numbers: list[float | None]) -> Any:
    """What a call comes to over all numbers."""
    db = ms.connect()
    db.execute("CREATE STREAM s (x DOUBLE, t BIGINT) ORDER BY t")
    query = db.sql(PLACES[place].format(call=call))
    db.push("s", [(x, t) for t, x in enumerate(numbers)])
    db.finish()
    return query.fetch().to_pylist()[-1]["a"]


@pytest.mark.parametrize("place", PLACES)
def test_digits_that_a_large_value_hides_come_back(place: str) -> None:
    assert value(place, "sum(x)", [1e16, 1.0, 1.0, -1e16]) == 2.0
    assert value(place, "avg(x)", [1e16, 1.0, 1.0, -1e16]) == 0.5


@pytest.mark.parametrize("place", [place for place in PLACES if place != "over"])
@pytest.mark.parametrize("call", ["count(x)", "sum(x)", "avg(x)", "min(x)", "max(x)", "var_pop(x)", "stddev_samp(x)"])
@settings(max_examples=examples(8), deadline=None)
@given(numbers=NUMBERS)
def test_equal_to_the_last_digit(place: str, call: str, numbers: list[float | None]) -> None:
    assert value(place, call, numbers) == value("over", call, numbers)
