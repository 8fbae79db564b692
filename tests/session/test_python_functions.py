"""Scalar functions written in Python, in every place where SQL takes a value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import millstream as ms


@ms.function("plus_one", parameters={"x": "BIGINT"}, returns="BIGINT")
def plus_one(x: pa.Array) -> pa.Array:
    return pc.add(x, 1)


@ms.function("shout", parameters={"text": "VARCHAR", "times": "INTEGER"}, returns="VARCHAR")
def shout(text: pa.Array, times: pa.Array) -> list[str | None]:
    pairs = zip(text.to_pylist(), times.to_pylist(), strict=True)
    return [None if word is None else word.upper() * count for word, count in pairs]


@ms.function("picky", parameters={"x": "BIGINT"}, returns="BIGINT")
def picky(x: pa.Array) -> pa.Array:
    if 2 in x.to_pylist():
        raise ValueError("no twos")
    return x


FUNCTIONS = [plus_one, shout, picky]
ROWS = [(1, "a", 1), (2, "b", 2), (None, None, 3), (4, "d", 4)]


def opened(path: Path | None = None, **settings: Any) -> ms.Database:
    db = ms.connect(path, functions=FUNCTIONS, **settings)
    db.execute("CREATE STREAM IF NOT EXISTS s (n BIGINT, w VARCHAR, t BIGINT) ORDER BY t")
    return db


QUERIES: dict[str, list[tuple[Any, ...]]] = {
    "SELECT plus_one(n) AS a, shout(w, 2) AS b FROM s": [(2, "AA"), (3, "BB"), (None, None), (5, "DD")],
    "SELECT n FROM s WHERE plus_one(plus_one(n)) > 3": [(2,), (4,)],
    # functions that only DuckDB has, below and above one in Python
    "SELECT reverse(shout(w, 1) || w) AS r, plus_one(CAST(levenshtein(w, 'xx') AS BIGINT)) AS l FROM s": [
        ("aA", 3),
        ("bB", 3),
        (None, None),
        ("dD", 3),
    ],
    "SELECT sum(plus_one(n)) OVER (ROWS UNBOUNDED PRECEDING) AS total FROM s": [(2,), (5,), (5,), (10,)],
    "SELECT sum(plus_one(n)) AS total FROM TUMBLE(s, t, 10) GROUP BY window_start": [(10,)],
    "SELECT TRY(picky(n)) AS p, coalesce(TRY(reverse(CAST(picky(n) AS VARCHAR))), '-') AS r FROM s": [
        (1, "1"),
        (None, "-"),
        (None, "-"),
        (4, "4"),
    ],
    "SELECT a FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.n AS a PATTERN (A B) DEFINE B AS plus_one(A.n) = B.n)": [
        (1,)
    ],
}


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("push", [lambda db: db.push("s", ROWS), lambda db: [db.push("s", [row]) for row in ROWS]])
def test_calls(sql: str, push: Callable[[ms.Database], Any]) -> None:
    db = opened()
    q = db.sql(sql, name="q")
    push(db)
    db.finish()
    assert [tuple(row.values()) for row in q.fetch().to_pylist()] == QUERIES[sql]


def test_a_function_that_fails_stops_its_query_or_leaves_the_row_out() -> None:
    db = opened()
    q = db.sql("SELECT picky(n) AS p FROM s", name="q")
    db.execute("SET on_error = 'row'")
    lenient, bad = db.sql("SELECT picky(n) AS p FROM s", name="lenient"), db.sql("SELECT * FROM ERRORS(lenient)")
    db.push("s", ROWS)
    assert q.fetch()["p"].to_pylist() == [1]
    with pytest.raises(ms.DataError, match="function picky failed") as failure:
        q.fetch()
    assert failure.value.detail == "ValueError: no twos"
    assert lenient.fetch()["p"].to_pylist() == [1, None, 4]
    assert bad.fetch().to_pylist() == [{"error": "cannot evaluate picky(n)", "row": '{"n": 2}', "origin": "lenient"}]


def test_a_result_must_fit() -> None:
    @ms.function("short", parameters={"x": "BIGINT"}, returns="BIGINT")
    def short(x: pa.Array) -> list[int]:
        return [1]

    @ms.function("wrong", parameters={"x": "BIGINT"}, returns="BIGINT")
    def wrong(x: pa.Array) -> list[str]:
        return ["a"] * len(x)

    for function, message in ((short, "returned 1 values for 4 rows"), (wrong, "function wrong failed")):
        db = opened()
        db.register_function(function)
        q = db.sql(f"SELECT {function.__name__}(n) AS x FROM s", name="q")
        db.push("s", ROWS)
        with pytest.raises(ms.DataError, match=message):
            q.fetch()


def test_a_session_in_a_directory_needs_the_code(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.sql("SELECT plus_one(n) AS a FROM s", name="q")
        db.push("s", ROWS[:1])
    with pytest.raises(ms.StateError, match="function plus_one is written in Python"):
        ms.connect(tmp_path)
    with opened(tmp_path) as db:
        db.push("s", ROWS[1:])
        assert db.query("q").fetch()["a"].to_pylist() == [2, 3, None, 5]


def test_what_is_refused() -> None:
    db = opened()
    with pytest.raises(ms.BindError, match="plus_one takes 1 arguments, got 2"):
        db.sql("SELECT plus_one(n, 2) FROM s")
    db.execute("CREATE TABLE stored (k BIGINT)")
    with pytest.raises(ms.MillstreamError, match="plus_one is written in Python, and a query over stored tables"):
        db.sql("SELECT plus_one(k) FROM stored")
    with pytest.raises(ms.CatalogError, match="does not take 2 arguments"):
        ms.function("f", parameters={"a": "INT", "b": "INT"}, returns="INT")(lambda a: a)
    with pytest.raises(ms.CatalogError, match="no type NUMBRE"):
        ms.function("f", parameters={"a": "NUMBRE"}, returns="INT")
    untrusted = ms.connect(profile="untrusted")
    with pytest.raises(ms.BindError, match="only the operator may register it"):
        untrusted.register_function(plus_one)
    assert db.sql("SHOW FUNCTIONS").fetch()["body"].to_pylist() == [
        "Python plus_one", "Python shout", "Python picky",
    ]  # fmt: skip
