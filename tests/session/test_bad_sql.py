"""Whatever text is given, the answer is a result or an error of ours with its place: never a traceback."""

from __future__ import annotations

import random

import pytest

import millstream as ms

SETUP = """
CREATE STREAM s (k INT, x DOUBLE, d DECIMAL(10, 2), name VARCHAR, ok BOOLEAN, ts TIMESTAMP) ORDER BY ts SLACK 1 SECOND;
CREATE STREAM r (k BIGINT, y DOUBLE, at TIMESTAMP) ORDER BY at;
CREATE STREAM latent (a INT, b VARCHAR);
CREATE TABLE t (k INT, city VARCHAR);
INSERT INTO t VALUES (1, 'Ulm');
CREATE FUNCTION twice(x DOUBLE) RETURNS DOUBLE AS x * 2;
CREATE SINK out WITH (connector = 'memory');
"""

STATEMENTS = [
    "SELECT k, sum(x) OVER (PARTITION BY k RANGE 10 SECONDS PRECEDING) AS total FROM s WHERE x > 1 AND name LIKE 'a%'",
    "SELECT s.k, t.city, upper(s.name) FROM s JOIN t ON s.k = t.k LEFT JOIN t AS u ON u.k = s.k + 1",
    "SELECT k, y FROM r UNION ALL SELECT k, x FROM s",
    "SELECT k FROM s UNION SELECT k FROM r",
    "SELECT CASE WHEN x IS NULL THEN 0 ELSE x END AS x, CAST(name AS INT), ts + INTERVAL '5' MINUTE FROM s",
    "SELECT count(DISTINCT name) OVER w, max(ts) OVER w FROM s WINDOW w AS (PARTITION BY k ROWS 3 PRECEDING)",
    "WITH big AS (SELECT k, x FROM s WHERE x > 10) SELECT k, twice(x) FROM big WHERE k IN (1, 2, NULL)",
    "SELECT a, count(*) OVER (ROWS UNBOUNDED PRECEDING) FROM latent",
    "SELECT * FROM LATE(s)",
    "CREATE STREAM z (a INT, b DECIMAL(10, 2), c TIMESTAMP) ORDER BY c SLACK 5 SECONDS WITH (connector = 'memory')",
    "CREATE STREAM derived AS SELECT k, x * 2 AS x2 FROM s",
    "CREATE TABLE u (a INT, b VARCHAR)",
    "INSERT INTO t VALUES (2, 'Bonn'), (3, NULL)",
    "INSERT INTO out SELECT k FROM s",
    "CREATE FUNCTION f(a INT) AS a + 1",
    "EXPLAIN VERBOSE SELECT k FROM s",
    "SHOW STREAMS",
    "DROP STREAM IF EXISTS nothing",
    "SET batch_rows = 10",
    "SELECT city, count(*) FROM t GROUP BY city HAVING count(*) > 0 ORDER BY 1 LIMIT 3",
]

WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "OVER",
    "(",
    ")",
    ",",
    ".",
    "*",
    "+",
    "-",
    "/",
    "'x'",
    "1",
    "1.5",
    "NULL",
    "x",
    "k",
    "s",
    "t",
    "r",
    "AS",
    "PARTITION",
    "BY",
    "ROWS",
    "RANGE",
    "PRECEDING",
    "UNBOUNDED",
    "UNION",
    "ALL",
    "DISTINCT",
    "AND",
    "NOT",
    "IN",
    "BETWEEN",
    "CASE",
    "WHEN",
    "END",
    "CAST",
    "INTERVAL",
    "TIMESTAMP",
    "'2026-01-01'",
    "::",
    "count",
    "sum",
    ";",
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    "$",
    "é",
    "日",
    "EXCEPT",
    "GROUP",
    "HAVING",
    "ORDER",
    "JOIN",
    "ON",
    "USING",
    "LEFT",
    "LATE",
    "ERRORS",
    "STREAM",
    "CREATE",
    "TABLE",
    "WITH",
    "--",
    "/*",
    "random()",
    "now()",
    "\\",
    "@",
    "#",
    "?",
    "9999999999999999999",
]


def mutate(text: str, rng: random.Random) -> str:
    parts = text.split(" ")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(parts) + 1)
        match rng.randrange(4):
            case 0 if parts:
                del parts[min(at, len(parts) - 1)]
            case 1:
                parts.insert(at, rng.choice(WORDS))
            case 2 if parts:
                parts[min(at, len(parts) - 1)] = rng.choice(WORDS)
            case _:
                other = rng.choice(STATEMENTS).split(" ")
                parts = parts[:at] + other[rng.randrange(len(other)) :]
    return " ".join(parts)


@pytest.mark.parametrize("seed", range(12))
def test_random_text(seed: int) -> None:
    rng = random.Random(seed)
    db = ms.connect()
    db.execute(SETUP)
    refused = 0
    for _ in range(60):
        text = mutate(rng.choice(STATEMENTS), rng)
        try:
            db.execute(text)
        except ms.MillstreamError as error:
            refused += 1
            assert str(error).strip(), text
            if isinstance(error, ms.ParseError):
                assert error.span is not None, text
    assert refused


@pytest.mark.parametrize("text", STATEMENTS)
def test_the_statements_themselves_work(text: str) -> None:
    db = ms.connect()
    db.execute(SETUP)
    db.execute(text)
