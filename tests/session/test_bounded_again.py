"""A bounded stream is read again from its start for each query that comes later, also while earlier ones are there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms

QUERIES = (
    "SELECT v FROM a",
    "SELECT sum(v) OVER (ROWS 2 PRECEDING) AS s FROM a",
    "SELECT window_end, count(*) AS n FROM TUMBLE(a, ts, 1 SECOND) GROUP BY window_end",
)


def rows(count: int) -> pa.Table:
    return pa.table({"ts": pa.array(np.arange(count) * 1000).cast(pa.timestamp("us")), "v": np.arange(count)})


@pytest.mark.parametrize("stopped", [False, True])
def test_the_same_query_again(stopped: bool) -> None:
    with ms.connect() as db:
        db.register("a", rows(3000), time="ts")
        for text in QUERIES:
            first = db.sql(text)
            expected = first.arrow()
            assert expected.num_rows
            if stopped:
                first.stop()
            assert db.sql(text).arrow().equals(expected)


def test_queries_that_were_read_before_stay_as_they_are(tmp_path: Path) -> None:
    pq.write_table(rows(3000), tmp_path / "a.parquet")
    with ms.connect(tmp_path / "session") as db:
        db.execute(
            "CREATE STREAM a (ts TIMESTAMP, v BIGINT) ORDER BY ts"
            f" WITH (connector = 'file', path = '{tmp_path / 'a.parquet'}')"
        )
        for name in ("x", "y"):
            assert db.sql(QUERIES[0], name=name).arrow().num_rows == 3000
    with ms.connect(tmp_path / "session") as db:
        assert db.sql(QUERIES[0], name="z").arrow().num_rows == 3000
        assert [db.query(name).fetch().num_rows for name in ("x", "y")] == [0, 0]


def test_a_query_in_the_middle_of_reading_is_refused() -> None:
    with ms.connect(batch_rows=1000) as db:
        db.register("a", rows(100_000), time="ts")
        first = db.sql(QUERIES[0], name="first")
        batches = iter(first)
        count = next(batches).num_rows
        try:
            second = db.sql("SELECT v + 1 AS w FROM a")
        except ms.MillstreamError as error:
            assert "stream a is being read for first" in str(error) and error.hint
        else:  # the first one has been read to its end meanwhile
            assert second.arrow().num_rows == 100_000
        assert count + sum(batch.num_rows for batch in batches) == 100_000
        assert db.sql("SELECT v + 2 AS w FROM a").arrow().num_rows == 100_000


@pytest.mark.parametrize("time", ["ts", None])
def test_registered_data_is_replaced_when_asked(time: str | None) -> None:
    with ms.connect() as db:
        db.register("a", rows(3), time=time)
        with pytest.raises(ms.MillstreamError, match="a already exists") as refused:
            db.register("a", rows(4), time=time)
        assert "replace=True" in str(refused.value.hint)
        query = db.sql(QUERIES[0])
        assert query.arrow().num_rows == 3
        if time is not None:
            with pytest.raises(ms.MillstreamError, match="used by q1"):
                db.register("a", rows(4), time=time, replace=True)
            db.stop("q1")
        db.register("a", rows(4), time=time, replace=True)
        assert db.sql(QUERIES[0]).arrow().num_rows == 4
