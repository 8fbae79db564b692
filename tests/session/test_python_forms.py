"""Rows in the forms that Python users expect: text, HTML, polars, Arrow's C stream, PEP 249 cursors; and counters."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

import millstream as ms
from millstream import dbapi


def filled() -> ms.Database:
    db = ms.connect()
    db.execute("CREATE TABLE t (k INT, name VARCHAR); INSERT INTO t VALUES (1, 'a<b'), (20, NULL)")
    db.execute("CREATE STREAM s (k INT, t INT) ORDER BY t")
    return db


def test_a_result_prints_and_displays_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with filled() as db:
        result = db.sql("SELECT * FROM t ORDER BY k")
        result.show(1)
        assert capsys.readouterr().out == "k | name\n--+-----\n1 | a<b\n… 1 more rows\n"
        html = result._repr_html_()
    assert "<th>name</th>" in html
    assert "<td>a&lt;b</td>" in html
    assert "<td>NULL</td>" in html


def test_showing_a_query_takes_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with filled() as db:
        query = db.sql("SELECT k FROM s WHERE k > 1", name="big")
        db.push("s", [(1, 1), (2, 2)])
        query.show()
        assert capsys.readouterr().out == "k\n-\n2\n"
        assert "<b>big</b> (k int32)" in query._repr_html_()
        assert query.fetch().to_pylist() == [{"k": 2}]


def test_other_libraries_read_the_rows() -> None:
    with filled() as db:
        assert pa.table(db.sql("SELECT k FROM t ORDER BY k")).to_pydict() == {"k": [1, 20]}
        polars = pytest.importorskip("polars")
        frame = db.sql("SELECT k FROM t ORDER BY k").pl()
        assert isinstance(frame, polars.DataFrame)
        assert frame["k"].to_list() == [1, 20]
        query = db.sql("SELECT k FROM s", name="all")
        db.push("s", [(7, 1)])
        assert pa.table(query).to_pydict() == {"k": [7]}


def test_metrics_count_rows() -> None:
    with filled() as db:
        query = db.sql("SELECT k FROM s WHERE k > 1", name="big")
        db.push("s", [(1, 10), (2, 11), (3, 2), ("x", 12)])
        assert query.metrics() == {"emitted": 1, "accepted": 2, "late": 1, "rejected": 1}
        assert db.metrics() == {"big": query.metrics()}


def test_only_a_continuous_query_has_a_name() -> None:
    with filled() as db, pytest.raises(ms.BindError, match="only a continuous query has a name"):
        db.sql("SELECT * FROM t", name="q")


def test_queries_log_that_they_start_stop_and_fail(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "millstream"), filled() as db:
        query = db.sql("SELECT 10 // (k - 1) AS x, CAST('x' || k AS INT) AS y FROM s", name="q")
        db.push("s", [(1, 1)])
        with pytest.raises(ms.DataError):
            query.fetch()
        query.stop()
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "query q started"
    assert said[1].startswith("query q failed: cannot evaluate")
    assert said[2] == "query q stopped"


def test_cursors() -> None:
    assert (dbapi.apilevel, dbapi.paramstyle) == ("2.0", "qmark")
    with dbapi.connect() as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (k INTEGER, name VARCHAR)")
        assert cursor.description is None
        cursor.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b"), (3, "c")])
        cursor.execute("SELECT k, name FROM t WHERE k >= ? ORDER BY k", (1,))
        assert [column[0] for column in cursor.description or ()] == ["k", "name"]
        assert cursor.rowcount == 3
        assert cursor.fetchone() == (1, "a")
        assert cursor.fetchmany(1) == [(2, "b")]
        assert cursor.fetchall() == [(3, "c")]
        assert cursor.fetchone() is None
        assert cursor.rowcount == 3
        codes = [column[1] for column in cursor.description or ()]
        assert codes[0] == dbapi.NUMBER != codes[1] and codes[1] == dbapi.STRING
        assert list(cursor.execute("SELECT k FROM t ORDER BY k")) == [(1,), (2,), (3,)]
        with pytest.raises(dbapi.Error):
            cursor.execute("SELECT nothing FROM t")
        with pytest.raises(dbapi.NotSupportedError):
            connection.rollback()
        cursor.close()
        with pytest.raises(dbapi.ProgrammingError):
            cursor.fetchone()
    with pytest.raises(dbapi.Error, match="this connection is closed"):
        connection.cursor()


def test_cursors_over_streams() -> None:
    with dbapi.connect() as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE STREAM s (k INT, t INT) ORDER BY t; SELECT k FROM s WHERE k > 1")
        assert cursor.rowcount == -1
        assert cursor.fetchall() == []
        connection.cursor().execute("INSERT INTO s VALUES (1, 1), (2, 2), (3, 3)")
        assert cursor.fetchall() == [(2,), (3,)]
