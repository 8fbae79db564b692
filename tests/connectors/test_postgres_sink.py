"""Rows into tables of PostgreSQL, against a real server."""

from __future__ import annotations

import datetime as dt
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from postgres_server import Server, running

import millstream as ms
from millstream.connectors.contract import Sink
from millstream.connectors.registry import make_sink
from millstream.schema import Schema
from millstream.types import INTEGER, VARCHAR

psycopg = pytest.importorskip("psycopg")

STREAM = "CREATE STREAM s (id INT, v INT, op VARCHAR, t INT) ORDER BY t"
CONTENT = "s [PARTITION BY id ROWS 1 DELETE WHEN op = 'd']"
SCHEMA = Schema.of(n=INTEGER, s=VARCHAR)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


def sink(server: Server, table: str, more: str = "", name: str = "o") -> str:
    options = f"connector = 'postgres', url = '{server.url}', table = '{table}', retry_ms = 50{more}"
    return f"CREATE SINK {name} WITH ({options})"


def opened(server: Server, table: str, committed: dict[str, Any], **options: Any) -> Sink:
    made = make_sink({"connector": "postgres", "url": server.url, "table": table, "retry_ms": 50, **options}, "o")
    made.open(SCHEMA, committed)
    return made


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": n, "s": str(n)} for n in numbers], schema=SCHEMA.arrow)


def numbers(server: Server, table: str) -> list[int]:
    return [row[0] for row in server.ask(f"SELECT n FROM {table} ORDER BY n")]


def test_every_type_arrives(server: Server) -> None:
    with ms.connect() as db:
        db.execute(
            'CREATE STREAM s (b BOOLEAN, i TINYINT, big BIGINT, d DOUBLE, x DECIMAL(10, 2), "Te""xt" VARCHAR, bin BLOB,'
            " ts TIMESTAMP, tz TIMESTAMPTZ, day DATE, tm TIME, l INT[], j JSON, u UUID) ORDER BY ts"
        )
        db.execute(f"{sink(server, 'types')}; INSERT INTO o SELECT *, ts - TIMESTAMP '2024-01-02' AS span FROM s")
        at, uuid = dt.datetime(2024, 1, 1, 1, 2, 3, 4), "5f0c7c4e-6a3f-4b5e-8f5e-000000000001"
        full = (True, -5, 2**40, 1.5, 12.25, 'a "b",\n\\.\\N', b"\x00\xff", at, at, at.date(), at.time(), [1, None],
                '{"a": 1}', uuid)  # fmt: skip
        db.push("s", [full, (None, None, None, float("nan"), None, "", b"", at, *[None] * 6)])
        db.finish()
    first, second = server.ask("SELECT * FROM types ORDER BY b")
    utc = at.replace(tzinfo=dt.UTC)
    assert first[:6] == (True, -5, 2**40, 1.5, pytest.approx(12.25), full[5])
    assert first[6:11] == (b"\x00\xff", at, utc, at.date(), at.time()) and first[11:13] == ([1, None], {"a": 1})
    assert str(first[13]) == uuid and first[14] == at - dt.datetime(2024, 1, 2)
    assert second[0] is None and second[3] != second[3] and second[5:7] == ("", b"") and second[8:14] == (None,) * 6


def test_rows_once_whatever_happens(server: Server, tmp_path: Path) -> None:
    """Appended and upserted, over crashes at any moment and a server that restarts."""
    draw = random.Random(4)
    rows = [(draw.randrange(6), draw.randrange(3), draw.choice("uuud"), time // 2) for time in range(120)]
    db = ms.connect(tmp_path / "0", checkpoint_seconds=3600)
    db.execute(f"{STREAM}; {sink(server, 'seen', ', flush_ms = 1')}")
    upserts = ", batch_rows = 5, mode = 'upsert', key = 'ID'"
    db.execute(sink(server, "held", upserts, "h"))
    db.execute("INSERT INTO o SELECT id, v, t FROM s")
    db.execute(f"INSERT INTO h SELECT id, v FROM {CONTENT}")
    for turn in range(6):
        db.push("s", rows[20 * turn : 20 * turn + 10])
        if turn % 2:
            db.checkpoint()
        db.push("s", rows[20 * turn + 10 : 20 * turn + 20])
        # the process dies here: what it has on disk is all that is left
        if turn % 3 == 0:
            time.sleep(0.1)
        shutil.copytree(tmp_path / str(turn), tmp_path / str(turn + 1))
        if turn == 3:
            server.stop()
        dead, db = db, ms.connect(tmp_path / str(turn + 1), checkpoint_seconds=3600)
        if turn == 3:
            server.start()
        dead.close()
    db.finish()
    db.close()
    assert sorted(server.ask("SELECT id, v, t FROM seen")) == sorted((i, v, t) for i, v, _, t in rows)
    latest: dict[int, int] = {}
    for i, v, op, _ in rows:
        latest.pop(i, None)
        if op != "d":
            latest[i] = v
    assert dict(server.ask("SELECT id, v FROM held")) == latest
    assert [n for (n,) in server.ask("SELECT rows FROM millstream_sinks WHERE target = 'seen'")] == [120]


def test_a_sink_that_reopens_passes_over_what_is_there(server: Server) -> None:
    first = opened(server, "again", {})
    first.write(batch(1, 2))
    known = first.commit()
    first.write(batch(3, 4))
    first.commit()  # the host crashed before it noted this one
    second = opened(server, "again", known)
    second.write(batch(3))
    second.write(batch(4, 5, 6))
    second.close()
    first.write(batch(5))  # one that does not know that it is dead writes nothing twice
    first.close()
    assert numbers(server, "again") == [1, 2, 3, 4, 5, 6]
    server.ask("DELETE FROM millstream_sinks WHERE target = 'again'")
    third = opened(server, "again", second.commit())
    third.write(batch(7))
    with pytest.raises(ms.ConnectorError, match="has 0 rows of the query, but 6 were written"):
        third.commit()
    third.release()


def test_a_lost_connection_is_tried_again(server: Server) -> None:
    out = opened(server, "lost", {})
    out.write(batch(1))
    out.commit()
    server.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'millstream'")
    out.write(batch(2))
    out.close()
    assert numbers(server, "lost") == [1, 2]


def test_a_table_of_somebody_else(server: Server) -> None:
    """Columns that are not written keep their values, and what the table refuses stops the query alone."""
    server.ask("CREATE SCHEMA mine")
    server.ask("CREATE TABLE mine.t (note text DEFAULT 'new', v numeric CHECK (v < 10), id bigint PRIMARY KEY)")
    server.ask("INSERT INTO mine.t VALUES ('kept', 1, 1)")
    with ms.connect() as db:
        db.execute(f"{STREAM}; {sink(server, 'mine.t', ', mode = ' + repr('upsert') + ', key = ' + repr('id'))}")
        query = db.sql("INSERT INTO o SELECT id, v FROM s", name="q")
        other = db.sql("SELECT id FROM s")
        assert isinstance(other, ms.Query) and isinstance(query, ms.Query)
        db.push("s", [(1, 5, "", 1), (2, 6, "", 2)])
        until = time.monotonic() + 30
        while len(held := sorted(server.ask("SELECT id, v, note FROM mine.t"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert held == [(1, 5, "kept"), (2, 6, "new")]
        db.push("s", [(3, 1, "", 6), (4, 60, "", 6)])
        db.finish()
        assert other.fetch().num_rows == 4
        with pytest.raises(ms.ConnectorError, match=r"cannot write to the table mine\.t .*check constraint"):
            query.fetch()
    assert len(server.ask("SELECT id FROM mine.t")) == 2, "all rows of a part or none"


@pytest.mark.parametrize(
    ("table", "more", "message"),
    [
        ("none.t", "", 'schema "none" does not exist'), ("a.b.c", "", "not a table"),
        ("wrong", "", "column .* does not"),
        ("t1", ", mode = 'upsert', key = 'x'", "key x of the sink is not a column"),
        ("t1", ", key = 'id'", "no option key"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_the_start(server: Server, table: str, more: str, message: str) -> None:
    server.ask("CREATE TABLE IF NOT EXISTS wrong (x int)")
    with ms.connect() as db, pytest.raises(ms.MillstreamError, match=message) as told:
        db.execute(f"{STREAM}; {sink(server, table, more)}; INSERT INTO o SELECT id, v FROM s")
    assert "pass" not in told.value.message


def test_nobody_there_and_secrets(server: Server) -> None:
    with ms.connect() as db:
        db.execute(f"{STREAM}; {sink(server, 'x')}")
        assert "pass" not in str(db.execute("SHOW SINKS"))
        db.execute(
            "CREATE SINK n WITH (connector = 'postgres', url = 'postgresql://u:pass@127.0.0.1:1/d', table = 't')"
        )
        with pytest.raises(ms.ConnectorError, match="cannot write to the table t at postgresql://127") as told:
            db.execute("INSERT INTO n SELECT id FROM s")
        assert "pass" not in told.value.message
        # what the place is called, not what a parameter says; and parameters of libpq only
        for number, parameter in enumerate(("host=other.invalid", "sslmode=disable", "autocommit=1", "sslmode=wrong")):
            url = f"{server.url}?{parameter}"
            db.execute(f"CREATE SINK p{number} WITH (connector = 'postgres', url = '{url}', table = 'given')")
            if number < 2:
                db.execute(f"INSERT INTO p{number} SELECT id FROM s")
            else:
                with pytest.raises(ms.ConnectorError, match=r"autocommit|sslmode"):
                    db.execute(f"INSERT INTO p{number} SELECT id FROM s")


def test_untrusted_sessions_reach_allowed_hosts(server: Server) -> None:
    host = f"127.0.0.1:{server.port}"
    with ms.connect(profile="untrusted", hosts=[host]) as db:
        db.execute(f"{STREAM}; {sink(server, 'reached')}; INSERT INTO o SELECT id FROM s")
        db.push("s", [(1, 1, "", 1)])
        db.finish()
        assert server.ask("SELECT id FROM reached") == [(1,)]
        for url in ("postgresql://127.0.0.1/d", f"postgresql://{host}/d?hostaddr=10.0.0.1", f"postgresql://{host},other/d",
                    f"postgresql://{host}/d?host=other", f"postgresql://{host}/d?sslkey=/etc/x", f"postgresql://other@{host}@evil/d",
                    f"postgresql://{host}/d?passfile=/etc/x", "postgresql:///d", "host=other"):  # fmt: skip
            with pytest.raises(ms.MillstreamError):
                db.execute(f"CREATE SINK x WITH (connector = 'postgres', url = '{url}', table = 't')")


def test_a_busy_table_is_waited_for(server: Server) -> None:
    out = opened(server, "busy", {}, timeout_ms=100)
    with psycopg.connect(server.url) as other:
        other.execute("LOCK TABLE busy IN ACCESS EXCLUSIVE MODE")
        out.write(batch(1))
        time.sleep(0.3)
        other.rollback()
    out.close()
    assert numbers(server, "busy") == [1]
