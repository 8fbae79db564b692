"""Errors of running queries name what fails as the query does, never by names of the engine's own."""

import pytest

import millstream as ms

ROWS = [("a", 2147483647, 1), ("a", 2147483647, 2), ("b", -5, 3), ("a", 7, 4), ("a", 0, 25)]
MATCH = "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY n MEASURES {} PATTERN (A B) DEFINE B AS {})"
SEQUENCE = "FROM s PARTITION BY k AS (X, *Y)"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (MATCH.format("CAST(sum(v) AS INT) AS x", "true"), "SUM(v)"),
        (MATCH.format("CAST(LAST(A.k) AS INT) AS x", "true"), "LAST(A.k)"),
        (MATCH.format("CAST(B.k AS INT) AS x", "true"), "B.k"),
        (MATCH.format("CAST(CLASSIFIER() || k AS INT) AS x", "true"), "(CLASSIFIER() || k)"),
        (MATCH.format("CAST(PREV(CLASSIFIER() || k) AS INT) AS x", "true"), "(PREV(classifier()) || PREV(k))"),
        (MATCH.format("n AS x", "CAST(FIRST(k) AS INT) > 0"), "FIRST(k)"),
        (MATCH.format("n AS x", "CAST(lower(PREV(k)) AS INT) > 0 AND v < FIRST(v)"), "lower(PREV(k))"),
        (MATCH.format("n AS x", "CAST(lower(A.k) AS INT) > v"), "lower(A.k)"),
        (f"SELECT CAST(sum(*Y.v) AS INT) {SEQUENCE}", "SUM(*Y.v)"),
        (f"SELECT X.n {SEQUENCE} WHERE CAST(Y.previous.k AS INT) > X.v", "Y.previous.k"),
        ("SELECT CAST(x AS INT) FROM (" + MATCH.format("sum(v) AS x", "true") + ")", "SUM(v)"),
        ("SELECT CAST(sum(v) OVER (ORDER BY n) AS INT) FROM s", "SUM(v) OVER (ORDER BY n)"),
        ("SELECT CAST(sum(v) AS INT) FROM s WINDOW(RANGE 10) GROUP BY k", "SUM(v)"),
        ("SELECT CAST(k || k AS INT) FROM s WINDOW(RANGE 10) GROUP BY k || k", "(k || k)"),
        ("SELECT CAST(sum(v) AS INT) FROM TUMBLE(s, n, 10) GROUP BY window_start, window_end", "SUM(v)"),
    ],
)
def test_what_cannot_be_computed(query: str, words: str) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k VARCHAR, v INT, n INT) ORDER BY n")
        running = db.sql(query)
        with pytest.raises(ms.MillstreamError) as caught:
            db.push("s", ROWS)
            db.finish()
            while running.fetch().num_rows:
                """rows from before the error come first"""
    assert caught.value.message == f"cannot evaluate CAST({words} AS INTEGER)"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("SELECT date_trunc(n, 'hour') FROM s", "date_trunc takes the unit first", "date_trunc('hour', ts)"),
        ("SELECT to_char(n, 'YYYY') FROM s", "no function to_char(INTEGER, VARCHAR)", "strftime("),
        ("CREATE STREAM z (x ENUM('a'), n INT) ORDER BY n", "ENUM is not supported", "use VARCHAR"),
        ("SELECT v FROM s LIMIT 3", "LIMIT is not supported on a stream", "to end the query, STOP name"),
        ("SELECT k, count(*) FROM s GROUP BY k", "GROUP BY over a whole stream never ends", "[UNBOUNDED]"),
        ("SELECT sum(v) OVER (ROWS BETWEEN 1 PRECEDING AND v FOLLOWING) FROM s", "not a column", "ROWS 10 PRECEDING"),
        (MATCH.format("n AS x", "PREV(v, -1) > 1"), "PREV takes a number of rows from 0", "NEXT(…, 1)"),
        (MATCH.format("n AS x", "arbitrary(v) > 1"), "there is no aggregate arbitrary over streams", "any_value"),
        (
            "SELECT mode(v) AS m FROM s [UNBOUNDED]",
            "there is no aggregate mode over streams",
            "CREATE AGGREGATE mode(…)",
        ),
        (MATCH.replace("PATTERN", "AFTER MATCH SKIP TO C PATTERN").format("n AS x", "true"), "no variable C", "A, B"),
        ("SELECT date_part(n, 'hour') FROM s", "the part of a time comes first", "date_part('hour', ts)"),
        ("SELECT TOP 3 v FROM s", "unexpected '3'", "ORDER BY … LIMIT n"),
        (
            "SELECT a.v FROM TUMBLE(s, n, 9) a JOIN TUMBLE(s, n, 9) b ON a.k = b.k",
            "does not compare the windows",
            "window_end",
        ),
        ("SELECT v = 'x' FROM s", "'x' is not a valid INTEGER", None),
    ],
)
def test_words_of_refusals(text: str, message: str, hint: str | None) -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM s (k VARCHAR, v INT, n INT) ORDER BY n")
        with pytest.raises(ms.MillstreamError) as caught:
            db.execute(text)
    assert message in caught.value.message
    assert hint is None or hint in str(caught.value.hint)


def test_what_had_misleading_errors_works() -> None:
    with ms.connect() as db:
        db.execute("CREATE TABLE t AS SELECT range a FROM range(3)")
        assert db.sql("SELECT string_agg('ä', ',' ORDER BY 'ä') AS x FROM t").fetch()["x"].to_pylist() == ["ä,ä,ä"]
        db.execute("CREATE STREAM s (name VARCHAR, n INT) ORDER BY n")
        q = db.sql("SELECT list_extract(string_split(name, ','), 1) AS first FROM s")
        db.push("s", [("a,b", 1)])
        assert q.fetch()["first"].to_pylist() == ["a"]
