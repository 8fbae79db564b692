"""The profile untrusted on Spark: SQL reaches what the operator has named, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.spark import Millstream

pytestmark = pytest.mark.spark
COLUMNS = "(v int, at int) ORDER BY at"
REFUSED = [
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'file', path = '{{place}}/secret.csv')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'file', location = 'data', path = '../secret.csv')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'kafka', topic = 'x', brokers = 'other:9092')",
    f"CREATE STREAM f {COLUMNS} WITH (connector = 'port', port = 22, mode = 'connect')",
    "CREATE TABLE f (v int) WITH (connector = 'file', path = '{place}/secret.csv')",
    "CREATE SINK f WITH (connector = 'file', path = '{place}/x')",
    "CREATE SINK f WITH (connector = 'file', location = 'data', path = 'x')",
    "CREATE SINK f WITH (connector = 'terminal')",
    "SELECT * FROM read_text('{place}/secret.csv')",
    "SELECT * FROM secret_view",
    "SELECT v FROM secret_view, s",
    'SELECT * FROM csv."{place}/secret.csv"',
    "SELECT reflect('java.lang.System', 'getenv', 'HOME') AS x FROM s",
    "SELECT java_method('java.lang.System', 'exit', 0) AS x FROM s",
    "SELECT input_file_name() AS x FROM s",
    "SET LOCATION root = '/'",
    "SET statement_timeout = 0",
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("v,at\n1,1\n2,2\n3,3\n")
    (tmp_path / "secret.csv").write_text("v,at\n42,1\n")
    (tmp_path / "in" / "link.csv").symlink_to(tmp_path / "secret.csv")
    return tmp_path


def locations(place: Path) -> dict[str, Any]:
    return {"data": ms.Location(place / "in", read_only=True), "out": place / "out"}


def test_sql_reaches_locations_and_nothing_else(spark: Any, place: Path) -> None:
    spark.createDataFrame([(42,)], "v int").createOrReplaceTempView("secret_view")
    with ms.connect(spark=spark, profile="untrusted", locations=locations(place)) as db:
        db.execute(
            f"CREATE STREAM s {COLUMNS} WITH (connector = 'file', location = 'data', path = 'a.csv');"
            "CREATE SINK o WITH (connector = 'file', location = 'out', path = 'x', format = 'csv');"
            "INSERT INTO o SELECT v, sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s"
        )
        for attempt in REFUSED:
            with pytest.raises(ms.MillstreamError) as caught:
                db.execute(attempt.replace("{place}", str(place)))
            assert "internal error" not in str(caught.value), attempt
        with pytest.raises(ms.MillstreamError, match="leads out"):
            db.execute(f"CREATE STREAM l {COLUMNS} WITH (connector = 'file', location = 'data', path = 'link.csv')")
            db.sql("SELECT v FROM l").arrow()
        db.finish()
    written = "".join(path.read_text() for path in sorted((place / "out" / "x").glob("part-*")))
    assert sorted({*written.split()}) == ["1,1", "2,3", "3,6", "v,n"]


def test_statements_have_limits(spark: Any) -> None:
    with ms.connect(spark=spark, profile="untrusted", statement_timeout=5, max_output_rows=10) as db:
        db.execute("CREATE TABLE t (i INT); INSERT INTO t VALUES (1), (2), (3), (4)")
        with pytest.raises(ms.LimitError, match="statement_timeout"):
            db.sql("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) AS n FROM r, t")
        with pytest.raises(ms.LimitError, match="max_output_rows"):
            db.sql("SELECT a.i FROM t AS a, t AS b")


def test_dataframes_that_were_registered_are_reached_and_views_are_not(spark: Any, place: Path) -> None:
    m = Millstream(spark, profile="untrusted", locations=locations(place))
    m.register("s", spark.createDataFrame([(1, 1), (2, 2)], "v int, at int"), time="at")
    spark.createDataFrame([(42,)], "v int").createOrReplaceTempView("secret_view")
    sums = m.sql("SELECT sum(v) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s")
    assert sorted(row.n for row in sums.collect()) == [1, 3]
    for attempt in REFUSED:
        with pytest.raises(ms.MillstreamError) as caught:
            m.execute(attempt.replace("{place}", str(place)))
        assert "internal error" not in str(caught.value), attempt
    with m.as_operator():
        assert m.sql("SELECT s.v FROM s, secret_view WHERE s.v < secret_view.v").count() == 2
    m.execute(
        "CREATE SINK o WITH (connector = 'file', location = 'out', path = 'y', format = 'jsonl');"
        "INSERT INTO o SELECT v FROM s"
    )
    assert sum(len(path.read_text().split()) for path in (place / "out" / "y").glob("part-*")) == 2
    m.close()


SLOW = "SELECT k, median(v) OVER (PARTITION BY k ROWS 100000 PRECEDING) AS m FROM s"
PAIRS = "SELECT a.v FROM s [RANGE UNBOUNDED] AS a, s [RANGE UNBOUNDED] AS b WHERE a.k = b.k AND a.v < 300"
LONG = "SELECT k, sum(v) OVER (PARTITION BY k ROWS 100000 PRECEDING) AS m FROM s"
BOUNDED = [("max_output_rows", 500, PAIRS), ("statement_timeout", 0.5, SLOW), ("memory_limit", 100_000, LONG)]


def test_operators_have_limits_in_tasks(spark: Any, tmp_path: Path) -> None:
    """In bounded runs, beside a query that stays within them, and in streaming queries."""
    rows = [(i % 2, float(i), i) for i in range(20_000)]
    open_ended: dict[str, Any] = {"profile": "untrusted", "max_output_rows": 0, "memory_limit": 0}
    for setting, most, text in BOUNDED:
        with ms.connect(spark=spark, **open_ended) as db:
            db.execute("CREATE STREAM s (k INT, v DOUBLE, at BIGINT) ORDER BY at")
            query = db.sql(text)
            other = db.sql("SELECT k FROM s WHERE v < 3") if setting == "max_output_rows" else None
            db.push("s", rows)
            with db.as_operator():
                db.execute(f"SET {setting} = {most}")
            db.finish()
            assert other is None or other.fetch().num_rows == 3
            with pytest.raises(ms.LimitError, match=setting):
                query.fetch()
    frame = spark.createDataFrame(rows, "k int, v double, at long").coalesce(1)
    frame.write.parquet(str(tmp_path / "in"))
    m = Millstream(spark, **open_ended | {"memory_limit": 100_000})
    m.register("s", spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")), time="at")
    writer = m.sql(LONG).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=r"LimitError: the query keeps more than 100,000 bytes"):
        writer.trigger(availableNow=True).start().awaitTermination(120)
    m.close()
