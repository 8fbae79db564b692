"""Every node knows the characters it was read from, counted in the whole text."""

import pytest
from sqlglot import exp

from millstream.sql import parse, span_of
from millstream.sql.nodes import CreateStream, Option, SideStream

BEFORE = "SHOW STREAMS; -- ünïcode\n"


def written(kind: type[exp.Expr], text: str) -> list[str]:
    """The texts of all nodes of a kind, from the second statement of a longer text."""
    whole = BEFORE + text + "; SELECT 1"
    root = parse(whole)[1].ast
    spans = [span_of(node) for node in root.find_all(kind)]
    return [whole[span.start : span.end] for span in spans if span is not None]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (exp.Add, "a.b + 1"),
        (exp.Neg, "-x"),
        (exp.Not, "NOT x"),
        (exp.Paren, "( a + b )"),
        (exp.Column, 's."two words"'),
        (exp.Column, "current_time"),
        (exp.Star, "*"),
        (exp.Literal, "'it''s'"),
        (exp.Literal, "1.5e3"),
        (exp.Null, "null"),
        (exp.Boolean, "TRUE"),
        (exp.Case, "CASE WHEN a THEN 1 ELSE 2 END"),
        (exp.Cast, "CAST(a AS DECIMAL(10, 2))"),
        (exp.Cast, "a::int"),
        (exp.DataType, "a::VARCHAR(10)"),
        (exp.Cast, "TIMESTAMP '2020-01-01'"),
        (exp.Anonymous, "myFunc ( a, 2 )"),
        (exp.Sum, "sum(DISTINCT x)"),
        (exp.Substring, "substring(a FROM 1 FOR 2)"),
        (exp.Window, "sum(x) OVER (PARTITION BY k ROWS 3 PRECEDING)"),
        (exp.Interval, "INTERVAL '5' MINUTES"),
        (exp.In, "a IN (1, 2)"),
        (exp.Between, "a BETWEEN 1 AND 2"),
        (exp.Is, "a IS NOT NULL"),
        (exp.Exists, "EXISTS (SELECT 1)"),
        (exp.Subquery, "(SELECT max(x) FROM t)"),
        (exp.CurrentDate, "CURRENT_DATE"),
        (exp.Alias, "a + 1 AS b"),
    ],
)
def test_expressions(kind: type[exp.Expr], text: str) -> None:
    expected = text.removeprefix("a::") if kind is exp.DataType else text
    assert written(kind, f"SELECT {text} FROM s")[0] == expected


def test_calls_inside_windows_and_calls() -> None:
    text = "SELECT f(g(a)), count(*) OVER (RANGE 10 SECONDS PRECEDING) FROM s"
    assert written(exp.Anonymous, text) == ["f(g(a))", "g(a)"]
    assert written(exp.Count, text) == ["count(*)"]
    assert written(exp.WindowSpec, text) == ["RANGE 10 SECONDS PRECEDING"]
    assert written(exp.Interval, text) == ["10 SECONDS"]


def test_from() -> None:
    text = "SELECT 1 FROM LATE(s) AS l JOIN t u ON l.a = u.a, (SELECT 2) AS v"
    assert written(exp.Table, text) == ["LATE(s) AS l", "t u"]
    assert written(SideStream, text) == ["LATE(s)"]
    assert written(exp.EQ, text) == ["l.a = u.a"]
    assert written(exp.Subquery, text) == ["(SELECT 2) AS v"]


def test_declarations() -> None:
    text = "CREATE STREAM s (x int, y char(10)) ORDER BY x SLACK 5 SECONDS SOURCE f('a') WITH (a.b = 'c')"
    assert written(CreateStream, text) == [text]
    assert written(exp.ColumnDef, text) == ["x int", "y char(10)"]
    assert written(exp.DataType, text) == ["int", "char(10)"]
    assert written(exp.Interval, text) == ["5 SECONDS"]
    assert written(exp.Anonymous, text) == ["f('a')"]
    assert written(Option, text) == ["a.b = 'c'"]


def test_every_named_thing_has_a_place() -> None:
    text = "INSERT INTO t (a, b) SELECT x AS a, y FROM s WHERE x > 1 GROUP BY x HAVING sum(z) > 2 ORDER BY a LIMIT 3"
    names = written(exp.Identifier, text)
    assert sorted(names) == sorted(["t", "a", "b", "x", "a", "y", "s", "x", "x", "z", "a"])


def test_nodes_made_otherwise_have_none() -> None:
    assert span_of(exp.column("a")) is None
