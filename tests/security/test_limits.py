"""Limits of time, memory and rows, cancel, and statements that are too large: clear errors, soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import millstream as ms

ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) AS n FROM r, t"
COUNTED = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < {}) SELECT n FROM r, t"
STREAM = "CREATE STREAM s (k VARCHAR, v BIGINT, at BIGINT) ORDER BY at"


@pytest.fixture
def db() -> Iterator[ms.Database]:
    with ms.connect(jit="off") as session:
        session.execute(f"CREATE TABLE t (i INT); INSERT INTO t VALUES (1), (2); {STREAM}")
        yield session


def in_thread(db: ms.Database, text: str) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            db.execute(text)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        f"INSERT INTO t SELECT n FROM ({ENDLESS})",
        f"UPDATE t SET i = ({ENDLESS})",
        f"DELETE FROM t WHERE i = ({ENDLESS})",
        f"CREATE TABLE u AS {ENDLESS}",
    ],
)
def test_an_endless_statement_ends_at_its_limit(db: ms.Database, statement: str) -> None:
    db.execute("SET statement_timeout = 0.3")
    begin = time.perf_counter()
    with pytest.raises(ms.LimitError, match="statement_timeout"):
        db.execute(statement)
    assert time.perf_counter() - begin < 5
    db.execute("RESET statement_timeout")
    assert db.sql("SELECT count(*) AS n FROM t").fetch().to_pylist() == [{"n": 2}]


def test_an_endless_query_blocks_nobody_and_is_cancelled(db: ms.Database) -> None:
    thread, errors = in_thread(db, ENDLESS)
    while not db.guard._working:
        time.sleep(0.01)
    time.sleep(0.2)
    assert db.sql("SELECT i FROM t").fetch().num_rows == 2
    db.execute("INSERT INTO t VALUES (3)")
    q = db.sql("SELECT v, i FROM s, t WHERE v = i")
    db.push("s", [("a", 3, 1)])
    db.finish()
    assert q.fetch().num_rows == 1
    assert db.cancel() == 1
    thread.join(10)
    assert [type(error) for error in errors] == [ms.CancelledError]


def test_closing_ends_what_runs() -> None:
    db = ms.connect()
    db.execute("CREATE TABLE t (i INT); INSERT INTO t VALUES (1)")
    thread, errors = in_thread(db, ENDLESS)
    while not db.tables._running:
        time.sleep(0.01)
    time.sleep(0.1)
    db.close()
    thread.join(10)
    assert not thread.is_alive() and isinstance(errors[0], ms.MillstreamError)


def test_rows_of_a_statement_are_bounded(db: ms.Database) -> None:
    db.execute("SET max_output_rows = 1000")
    assert db.sql(COUNTED.format(500)).fetch().num_rows == 1000
    with pytest.raises(ms.LimitError, match="max_output_rows"):
        db.sql(COUNTED.format(501))


def test_rows_of_a_query_are_bounded_and_others_go_on(db: ms.Database) -> None:
    db.execute(f"INSERT INTO t {COUNTED.format(300)}")
    many = db.sql("SELECT v, i FROM s, t")
    few = db.sql("SELECT v FROM s")
    db.execute("SET max_output_rows = 100")
    db.push("s", [("a", 1, 1), ("a", 2, 2)])
    assert few.fetch().num_rows == 2
    with pytest.raises(ms.LimitError, match="max_output_rows"):
        many.fetch()
    db.push("s", [("a", 3, 3)])
    assert few.fetch().num_rows == 1


def test_the_state_of_a_query_is_bounded_and_others_go_on(db: ms.Database) -> None:
    db.execute("SET memory_limit = '1 MB'")
    keys = db.sql("SELECT k, count(*) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS n FROM s")
    few = db.sql("SELECT v FROM s WHERE v < 2")
    rows = 40_000
    for start in range(0, 3 * rows, rows):
        db.push("s", [(f"key number {i}", i, i) for i in range(start, start + rows)])
    with pytest.raises(ms.LimitError, match="memory_limit"):
        keys.fetch()
    assert few.fetch().num_rows == 2


def test_the_memory_of_tables_is_bounded() -> None:
    with ms.connect(memory_limit="50 MB") as db:
        db.execute("CREATE TABLE t (i INT); INSERT INTO t VALUES (1)")
        with pytest.raises(ms.DataError, match=r"(?i)memory"):
            db.execute(f"CREATE TABLE u AS SELECT repeat('x', 10000) || n AS x FROM ({COUNTED.format(100_000)}) AS y")


def test_a_cancelled_query_tells_its_readers(db: ms.Database) -> None:
    q, other = db.sql("SELECT v FROM s"), db.sql("SELECT v FROM s WHERE v > 0")
    q.cancel()
    db.push("s", [("a", 1, 1)])
    with pytest.raises(ms.CancelledError):
        q.fetch()
    assert other.fetch().num_rows == 1
    q.stop()


@pytest.mark.parametrize(
    ("name", "value"), [("statement_timeout", -1), ("memory_limit", "much"), ("max_output_rows", 1.5)]
)
def test_limits_are_numbers(db: ms.Database, name: str, value: object) -> None:
    with pytest.raises(ms.BindError, match=name):
        ms.connect(**{name: value})
    with pytest.raises(ms.BindError, match=name):
        db.execute(f"SET {name} = '{value}'")


MATCH = "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY at"
HUGE = [
    "SELECT sum(v) OVER (ROWS 9000000000000000000 PRECEDING) AS x FROM s",
    "SELECT sum(v) OVER (ROWS 9223372036854775807 PRECEDING) AS x FROM s",
    "SELECT sum(v) OVER (ROWS 99999999999999999999 PRECEDING) AS x FROM s",
    "SELECT sum(v) OVER (ROWS 1000000000 PRECEDING) AS x FROM s",
    "SELECT sum(v) OVER (RANGE 9223372036854775807 PRECEDING) AS x FROM s",
    "SELECT sum(v) OVER (ROWS 99999999999 PRECEDING SLIDE 9223372036854775808) AS x FROM s",
    "SELECT v FROM s [ROWS 9223372036854775807]",
    "SELECT v FROM s [RANGE 9223372036854775807 SLIDE 9223372036854775808]",
    "SELECT sum(v) OVER (RANGE 10 PRECEDING SLIDE 9223372036854775808) AS x FROM s",
    "SELECT lead(v, 1000000000) OVER (ORDER BY at) AS x FROM s",
    "SELECT lag(v, 1000000000) OVER (ORDER BY at) AS x FROM s",
    "SELECT lag(v, 9223372036854775808) OVER (ORDER BY at) AS x FROM s",
    "SELECT nth_value(v, 1000000000) OVER (ROWS 10 PRECEDING) AS x FROM s",
    "SELECT ntile(1000000000) OVER (ORDER BY i) FROM t",
    "SELECT lead(i, 1000000000) OVER (ORDER BY i) FROM t",
    "SELECT sum(i) OVER (ORDER BY i ROWS 9000000000000000000 PRECEDING) FROM t",
    f"{MATCH} MEASURES LAST(B.v, 10000) AS m PATTERN (B+) DEFINE B AS v > 0) AS p",
    f"{MATCH} MEASURES B.v AS m PATTERN (B+) DEFINE B AS PREV(B.v, 100000) > 0) AS p",
    f"{MATCH} MEASURES B.v AS m PATTERN (B{{1000000}}) DEFINE B AS v > 0) AS p",
    f"{MATCH} MEASURES B.v AS m PATTERN (((B{{99}}){{99}}){{99}}) DEFINE B AS v > 0) AS p",
    "SELECT v FROM s LIMIT 9223372036854775808",
    "SELECT repeat('x', 9223372036854775807) AS x FROM s",
    "SELECT repeat('x', 10000000000) AS x FROM s",
    "SELECT lpad('x', 2147483647) AS x FROM s",
    "SELECT v << 1000000000 AS x FROM s",
    "SELECT round(1.5, 1000000000) AS x FROM s",
    "SELECT 1e999 AS x FROM s",
    "SELECT 99999999999999999999999999999999999999999999999 AS x FROM s",
    "SELECT CAST('9' AS DECIMAL(38, 38)) AS x FROM s",
]


@pytest.mark.parametrize("statement", HUGE)
def test_huge_constants_are_cheap_or_refused(statement: str) -> None:
    with ms.connect(jit="off") as db:
        db.execute(f"CREATE TABLE t (i INT); INSERT INTO t VALUES (1), (2); {STREAM}")
        begin = time.process_time()
        try:
            result = db.execute(statement)
            for number in range(4):
                db.push("s", [("a", number, number)])
            db.finish()
            assert result is not None
            result.fetch()
        except ms.MillstreamError as error:
            assert "internal error" not in str(error)
        assert time.process_time() - begin < 3


def test_a_list_of_ten_thousand_constants_is_cheap(db: ms.Database) -> None:
    listed = ", ".join(map(str, range(10_000)))
    begin = time.process_time()
    q = db.sql(f"SELECT v FROM s WHERE v IN ({listed})")
    db.push("s", [("a", 9_999, 1), ("a", 10_000, 2)])
    db.finish()
    assert q.fetch().num_rows == 1
    assert db.sql(f"SELECT i FROM t WHERE i IN ({listed})").fetch().num_rows == 2
    assert time.process_time() - begin < 5


DEEP = ["(", "abs(", "NOT ", "- ", "(SELECT ", "CASE WHEN ", "CAST(", "1 + (", "x.", "f(x, ", "[", "{", "'a' || "]


@pytest.mark.parametrize("opening", DEEP)
@pytest.mark.parametrize("depth", [10, 25, 100, 5_000])
def test_deep_statements_are_refused(db: ms.Database, opening: str, depth: int) -> None:
    begin = time.process_time()
    for close in (0, depth):
        for template in ("SELECT {} FROM s", "SELECT {} FROM t", "SELECT v FROM s WHERE {}", "{}"):
            try:
                db.execute(template.format(opening * depth + "v" + ")" * close))
            except ms.MillstreamError as error:
                assert "internal error" not in str(error)
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("joined", [" + ", " OR ", " AND ", " || ", " UNION ALL ", ", ", " JOIN s ", "; "])
@pytest.mark.parametrize("count", [100, 1_000])
def test_wide_statements_are_taken_or_refused(db: ms.Database, joined: str, count: int) -> None:
    db.execute("SET statement_timeout = 10")
    part = "SELECT v FROM s" if "UNION" in joined or ";" in joined else "s" if "JOIN" in joined else "v"
    text = joined.join([part] * count)
    if part == "s":
        text = f"SELECT 1 AS one FROM {text}"
    elif part == "v":
        text = f"SELECT {text} FROM s"
    try:
        db.execute(text)
    except ms.MillstreamError as error:
        assert "internal error" not in str(error)


def test_a_text_that_is_too_long_is_refused(db: ms.Database) -> None:
    with pytest.raises(ms.LimitError, match="characters"):
        db.execute("SELECT '" + "x" * 5_000_000 + "' FROM t")
    # words of a text are read in one go, so it must fit the time that a statement has
    with ms.connect(statement_timeout=1) as limited, pytest.raises(ms.LimitError, match="at most 200,000 are allowed"):
        limited.execute("NOT " * 60_000)


SLOW = "SELECT a.v FROM s [RANGE 1000000] AS a, s [RANGE 1000000] AS b WHERE a.v + b.v = -1"
"""of n rows, n * n pairs"""


def many(rows: int) -> pa.Table:
    return pa.table({"k": ["a"] * rows, "v": range(rows), "at": range(rows)})


def test_a_batch_that_takes_too_long_ends_at_the_limit_and_others_get_their_rows(db: ms.Database) -> None:
    slow, others = db.sql(SLOW), db.sql("SELECT v FROM s")
    db.execute("SET statement_timeout = 0.5")
    begin = time.process_time()
    db.push("s", many(100_000))
    assert time.process_time() - begin < 3
    assert others.fetch().num_rows == 100_000
    with pytest.raises(ms.LimitError, match="statement_timeout"):
        slow.fetch()


def test_a_batch_that_emits_too_much_ends_before_memory_does(db: ms.Database) -> None:
    db.execute("INSERT INTO t SELECT unnest(range(20000)) FROM t LIMIT 20000")
    pairs, others = db.sql("SELECT v, i FROM s, t"), db.sql("SELECT v FROM s")
    db.execute("SET max_output_rows = 100000")
    begin = time.process_time()
    db.push("s", many(100_000))  # 2,000,000,000 pairs
    assert time.process_time() - begin < 3
    assert others.fetch().num_rows == 100_000
    with pytest.raises(ms.LimitError, match="max_output_rows"):
        pairs.fetch()


def test_a_batch_that_keeps_too_much_ends_within_it(db: ms.Database) -> None:
    db.execute("SET memory_limit = '1 MB'")
    kept, others = db.sql("SELECT k, count(*) AS n FROM s [RANGE 1000000] GROUP BY k"), db.sql("SELECT v FROM s")
    rows = 300
    db.push("s", pa.table({"k": [f"{i:010000}" for i in range(rows)], "v": range(rows), "at": range(rows)}))
    assert others.fetch().num_rows == rows
    with pytest.raises(ms.LimitError, match="memory_limit"):
        kept.fetch()


def test_a_query_is_cancelled_within_a_batch(db: ms.Database) -> None:
    slow, twin, others = db.sql(SLOW), db.sql(SLOW), db.sql("SELECT v FROM s")
    pushing = threading.Thread(target=db.push, args=("s", many(100_000)))
    pushing.start()
    time.sleep(0.3)
    slow.cancel()
    time.sleep(0.1)
    assert pushing.is_alive(), "another query still needs the work"
    twin.cancel()
    pushing.join(20)
    assert not pushing.is_alive()
    assert others.fetch().num_rows == 100_000
    for query in (slow, twin):
        with pytest.raises(ms.CancelledError):
            query.fetch()
    again = db.sql(SLOW.replace("-1", "1"))
    db.push("s", [("a", 0, 100_000), ("a", 1, 100_001)])
    db.finish()
    assert again.fetch().num_rows == 2


def test_a_query_like_one_that_failed_starts_anew(db: ms.Database) -> None:
    failed = db.sql("SELECT CAST(k AS INT) AS n FROM s")
    db.push("s", [("x", 1, 1)])
    with pytest.raises(ms.DataError):
        failed.fetch()
    again = db.sql("SELECT CAST(k AS INT) AS n FROM s")
    db.push("s", [("7", 1, 2)])
    assert again.fetch().to_pylist() == [{"n": 7}]


@pytest.mark.parametrize(
    "text", ["SELECT x {", "SELECT x {'a': 1} FROM s", "SELECT x[1] { FROM s", "SELECT f(x) {y} FROM s"]
)
def test_a_brace_behind_a_value_is_an_error(text: str) -> None:
    """The parser went round and round."""
    with ms.connect() as db, pytest.raises(ms.ParseError):
        db.sql(text)


def test_functions_that_double_the_work_of_others_end_at_the_limit() -> None:
    with ms.connect(profile="untrusted", statement_timeout=0.3) as db:
        db.execute("CREATE FUNCTION f0(a INT) RETURNS INT AS a + 1")
        begun = time.monotonic()
        with pytest.raises(ms.LimitError, match="took longer"):
            for level in range(1, 40):
                db.execute(f"CREATE FUNCTION f{level}(a INT) RETURNS INT AS f{level - 1}(a) + f{level - 1}(a)")
        assert time.monotonic() - begun < 30
