"""Values given beside the text of a statement, and sessions that were closed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import BindError, ParseError, StateError

VALUES = [
    (5, pa.int32()),
    (-5, pa.int32()),
    (2**40, pa.int64()),
    (-(2**63) + 1, pa.int64()),
    (2**63, pa.decimal128(38, 0)),
    (1.5, pa.float64()),
    (-1e300, pa.float64()),
    (float("inf"), pa.float64()),
    ("it's; DROP TABLE t --", pa.string()),
    ("$x ?", pa.string()),
    ("", pa.string()),
    (True, pa.bool_()),
    (None, pa.null()),
    (b"\x00\\x'", pa.binary()),
    (Decimal("-12.50"), pa.decimal128(4, 2)),
    (dt.datetime(2024, 2, 3, 4, 5, 6, 7), pa.timestamp("us")),
    (dt.datetime(2024, 2, 3, 4, 5, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
    (dt.date(2024, 2, 29), pa.date32()),
    (dt.time(4, 5, 6), pa.time64("us")),
    (dt.timedelta(days=-1, microseconds=3), pa.duration("us")),
]


@pytest.fixture
def db() -> ms.Database:
    db = ms.connect()
    db.execute("CREATE STREAM s (name VARCHAR, v INT, t INT) ORDER BY t")
    return db


@pytest.mark.parametrize(("value", "type_"), VALUES, ids=repr)
def test_a_value_keeps_its_type(db: ms.Database, value: Any, type_: pa.DataType) -> None:
    query = db.sql("SELECT $x AS x FROM s", params={"x": value})
    db.push("s", [("a", 1, 1)])
    result = query.fetch()
    assert result.schema.field("x").type == type_
    expected = Decimal(value) if type_ == pa.decimal128(38, 0) else value
    assert result.column("x").to_pylist() == [expected]


def test_values_stand_wherever_literals_do(db: ms.Database) -> None:
    query = db.sql(
        "SELECT v, sum(v) OVER (ROWS ? PRECEDING) AS s FROM s WHERE name LIKE ? AND v IN (?, ?)", params=[1, "a%", 1, 2]
    )
    window = db.sql("SELECT count(*) AS n FROM s [RANGE $span]", params={"span": 5})
    db.push("s", [("ab", 1, 1), ("ab", 2, 2), ("ab", 3, 3), ("b", 1, 4)])
    db.finish()
    assert query.fetch().to_pylist() == [{"v": 1, "s": 1}, {"v": 2, "s": 3}]
    assert window.fetch().column("n").to_pylist() == [1, 2, 3, 4, 3, 2, 1]


def test_statements_on_tables_take_values(db: ms.Database) -> None:
    db.execute("CREATE TABLE t (a INT, b VARCHAR); INSERT INTO t VALUES ($a, $b)", params={"a": 1, "b": "'"})
    assert db.sql("SELECT * FROM t WHERE b = ? LIMIT ?", params=["'", 3]).fetch().to_pylist() == [{"a": 1, "b": "'"}]


def test_what_is_kept_as_text_has_the_values(tmp_path: Path) -> None:
    with ms.connect(tmp_path) as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t")
        db.execute("CREATE FUNCTION more(x INT) AS x + $by", params={"by": 10})
        db.sql("SELECT v FROM s WHERE v > $least", name="q", params={"least": 1})
    with ms.connect(tmp_path) as db:
        again = db.sql("SELECT more(v) AS v FROM s")
        db.push("s", [(1, 1), (2, 2)])
        assert db.query("q").fetch().to_pylist() == [{"v": 2}]
        assert again.fetch().to_pylist() == [{"v": 11}, {"v": 12}]


HINT = "hint: give values: sql(text, params={'name': value}) for $name, params=[value, …] for ?"


@pytest.mark.parametrize(
    ("text", "params", "printed"),
    [
        ("SELECT $x FROM s", None, f"no value for the parameter $x\n  1 | SELECT $x FROM s\n    |        ^^\n{HINT}"),
        ("SELECT ? FROM s", None, f"no value for the parameter ?\n  1 | SELECT ? FROM s\n    |        ^\n{HINT}"),
        (
            "SELECT $name FROM s",
            {"nam": 1},
            "no value for the parameter $name\n  1 | SELECT $name FROM s\n    |        ^^^^^\nhint: did you mean $nam?",
        ),
        ("SELECT 1 FROM s", {"x": 1}, "no parameter $x in the statement\nhint: leave it out of params"),
        ("SELECT ? FROM s", [1, 2], "2 values for 1 parameters"),
        (
            "SELECT $x FROM s",
            {"x": object()},
            "the parameter $x has the Python type object, which has no SQL type\n"
            "  1 | SELECT $x FROM s\n    |        ^^",
        ),
        ("SELECT 1 FROM s", "x", f"params is a dict or a list, this is str\n{HINT}"),
    ],
)
def test_mistakes(db: ms.Database, text: str, params: Any, printed: str) -> None:
    with pytest.raises((ParseError, BindError)) as caught:
        db.sql(text, params=params)
    assert str(caught.value) == printed


def test_a_closed_session_raises(db: ms.Database) -> None:
    query = db.sql("SELECT v FROM s")
    db.push("s", [("a", 1, 1)])
    db.close()
    db.close()
    for call in (
        lambda: db.push("s", [("a", 2, 2)]),
        lambda: db.sql("SHOW STREAMS"),
        lambda: db.execute("CREATE TABLE t (a INT)"),
        lambda: db.advance("s", 5),
        db.finish,
        db.run,
        lambda: db.explain("SELECT v FROM s"),
        lambda: db.stop("q1"),
    ):
        with pytest.raises(StateError, match="this session is closed"):
            call()
    # what it produced can still be fetched
    assert query.fetch().to_pylist() == [{"v": 1}]
