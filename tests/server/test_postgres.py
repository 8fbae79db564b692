"""PostgreSQL's protocol, with the clients that people have: psql, psycopg, SQLAlchemy and ADBC."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import re
import shutil
import struct
import subprocess
import threading
import time
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from millstream.server.postgres import copying
from tests.server.conftest import TOKEN, ServerProcess

DECLARED = """
    CREATE STREAM s (v INT, name VARCHAR, ts TIMESTAMP) ORDER BY ts KEEP ALL;
    CREATE TABLE t (a INT, b DECIMAL(10, 2), c BOOLEAN, d DATE, e DOUBLE, f VARCHAR, g BLOB, h TIMESTAMPTZ, i INT[]);
    INSERT INTO t VALUES
        (1, 2.50, true, DATE '2026-01-02', 0.5, 'ü''x', 'ab'::BLOB, TIMESTAMPTZ '2026-01-02 03:04:05Z', [1, 2]),
        (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CREATE VIEW busy AS SELECT count(*) AS n FROM s [RANGE 10 SECONDS];
"""
FIRST = (
    1, decimal.Decimal("2.50"), True, dt.date(2026, 1, 2), 0.5, "ü'x", b"ab",
    dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), [1, 2],
)  # fmt: skip


@pytest.fixture
def declared(server: ServerProcess) -> ServerProcess:
    server.client().execute(DECLARED)
    return server


def connected(server: ServerProcess, **given: str) -> psycopg.Connection[Any]:
    return psycopg.connect(server.conninfo(**given), autocommit=True)


def test_psycopg_reads_values_of_all_types_in_both_forms(declared: ServerProcess) -> None:
    with connected(declared) as db:
        for binary in (False, True):
            rows = db.execute("SELECT * FROM t ORDER BY a", binary=binary).fetchall()
            assert rows == [FIRST, (2, *[None] * 8)], binary
        asked = "SELECT a FROM t WHERE a = %s AND f = %s AND d = %s AND b = %s AND c = %s"
        given = (1, "ü'x", FIRST[3], FIRST[1], True)
        assert db.execute(asked, given).fetchall() == [(1,)]
        assert db.execute(asked, given, binary=True).fetchall() == [(1,)]
        assert db.execute("SELECT 1e300 AS x, -0.001::DECIMAL(6,3) AS y").fetchone() == (
            1e300,
            decimal.Decimal("-0.001"),
        )
        with db.cursor("named") as cursor:  # DECLARE and FETCH
            cursor.itersize = 1
            assert [row[0] for row in cursor.execute("SELECT a FROM t ORDER BY a")] == [1, 2]


def test_errors_have_codes_places_and_hints(declared: ServerProcess) -> None:
    with connected(declared) as db:
        with pytest.raises(psycopg.errors.SyntaxError) as caught:
            db.execute("SELEC 1")
        assert caught.value.diag.statement_position == "1"
        with pytest.raises(psycopg.Error) as unknown:
            db.execute("CREATE VIEW w AS SELECT nope FROM s [RANGE 5 SECONDS]")
        assert unknown.value.diag.statement_position is not None
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="never ends"):
            db.execute("SELECT v FROM s")
        assert db.execute("SELECT 1 AS one").fetchone() == (1,)
        with db.transaction():
            db.execute("SELECT 1")
        db.execute("BEGIN")
        with pytest.raises(psycopg.Error):
            db.execute("SELECT nope FROM t")
        with pytest.raises(psycopg.Error, match="has failed"):
            db.execute("SELECT 1")
        db.execute("ROLLBACK")
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_waiting_for_rows_can_be_cancelled(declared: ServerProcess) -> None:
    with connected(declared) as db:
        db.execute("DECLARE c CURSOR FOR SUBSCRIBE TO (SELECT v FROM s)")
        threading.Timer(0.5, db.cancel).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            db.execute("FETCH ALL FROM c WITH (timeout = '3600s')")
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_rows_go_in_and_come_out_while_a_query_runs(declared: ServerProcess) -> None:
    got: list[tuple[Any, ...]] = []
    began = threading.Event()

    def listen() -> None:
        with connected(declared) as db, db.cursor() as cursor:
            db.execute("DECLARE c CURSOR FOR SUBSCRIBE TO (SELECT v, name FROM s WHERE v > 1)")
            began.set()
            until = time.monotonic() + 30
            while len(got) < 3 and time.monotonic() < until:
                got.extend(cursor.execute("FETCH ALL FROM c WITH (timeout = '1s')").fetchall())

    listening = threading.Thread(target=listen)
    listening.start()
    assert began.wait(30)
    with connected(declared) as db, db.cursor() as cursor:
        with cursor.copy("COPY s (ts, v, name) FROM STDIN") as copy:
            for row in (("2026-01-01 10:00:00", 1, "a"), ("2026-01-01 10:00:01", 2, "tab\there\\"), ("x", 9, "b")):
                copy.write_row(row)
        assert cursor.rowcount == 2
        with cursor.copy("COPY s FROM STDIN WITH (FORMAT csv, HEADER)") as copy:
            copy.write('v,name,ts\n3,"two\nlines, ""quoted""",2026-01-01 10:00:02\n')
        with cursor.copy("COPY s FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "timestamp"])
            copy.write_row((4, None, dt.datetime(2026, 1, 1, 10, 0, 3)))
        db.execute("INSERT INTO s VALUES (0, 'last', TIMESTAMP '2026-01-01 10:00:04')")
        assert db.execute("SELECT n FROM busy").fetchone() == (5,)
        listening.join(30)
        assert got == [(2, "tab\there\\"), (3, 'two\nlines, "quoted"'), (4, None)]
        for form, rows in (("text", b"1\ta\n"), ("csv", b"1,a\n")):
            with cursor.copy(f"COPY (SELECT v, name FROM HISTORY(s) WHERE v = 1) TO STDOUT (FORMAT {form})") as copy:
                assert b"".join(map(bytes, copy)) == rows
        with cursor.copy("COPY (SELECT v, name, ts FROM HISTORY(s) ORDER BY ts) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int4", "text", "timestamp"])
            assert [row[0] for row in copy.rows()] == [1, 2, 3, 4, 0]
        names = [row[0] for row in db.execute("SHOW QUERIES").fetchall()]
        assert not [name for name in names if name.startswith("pg")], "what was started for a client has ended"


def test_a_subscription_streams_until_it_is_cancelled(declared: ServerProcess) -> None:
    with connected(declared) as db, connected(declared) as other:
        other.execute("CREATE VIEW all_rows AS SELECT v FROM s [RANGE 1 SECOND]")
        with db.cursor() as cursor, cursor.copy("COPY (SUBSCRIBE TO (SELECT v FROM s)) TO STDOUT") as copy:
            other.execute("INSERT INTO s VALUES (7, 'x', TIMESTAMP '2026-01-01 10:00:00')")
            assert bytes(copy.read()) == b"7\n"
            db.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled):
                while copy.read():
                    pass
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_accounts_may_do_what_their_role_and_grants_say(server: ServerProcess) -> None:
    server.client().execute(DECLARED)
    server.end()
    for name, role, streams in (("rita", "reader", ["t", "busy"]), ("will", "writer", ["s"])):
        more = [part for stream in streams for part in ("--stream", stream)]
        command = [
            server.python,
            "-m",
            "millstream",
            "account",
            "add",
            str(server.directory),
            name,
            "--role",
            role,
            *more,
        ]
        subprocess.run([*command, "--password", f"{name} secret"], check=True)
    server.start()
    with connected(server, user="rita", password="rita secret") as rita:
        assert rita.execute("SELECT count(*) FROM t").fetchone() == (2,)
        for refused in (
            "CREATE TABLE z (a INT)",
            "INSERT INTO t (a) VALUES (9)",
            "SELECT * FROM HISTORY(s)",
            "SUBSCRIBE TO (SELECT v FROM s)",
        ):
            with pytest.raises(psycopg.Error, match=r"is a reader|may not use"):
                rita.execute(refused)
        assert rita.execute("SELECT relname FROM pg_class ORDER BY relname").fetchall() == [("busy",), ("t",)]
    with connected(server, user="will", password="will secret") as will:
        will.execute("INSERT INTO s VALUES (1, 'a', TIMESTAMP '2026-01-01 10:00:00')")
        with pytest.raises(psycopg.Error, match="may not use t"):
            will.execute("SELECT * FROM t")
    for user, password in (("rita", "wrong"), ("nobody", "rita secret"), ("admin", "x" * 300)):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connected(server, user=user, password=password)
    audit = (server.directory / "audit.log").read_text()
    assert '"what": "refused"' in audit and "rita secret" not in audit and TOKEN not in audit
    assert (server.directory / "accounts.json").stat().st_mode & 0o777 == 0o600
    assert b"secret" not in (server.directory / "accounts.json").read_bytes()


def test_sqlalchemy_and_adbc_see_the_catalog(declared: ServerProcess) -> None:
    import adbc_driver_postgresql.dbapi as adbc
    import sqlalchemy as sa

    declared.client()
    address = f"127.0.0.1:{declared.postgres}/millstream"
    engine = sa.create_engine(f"postgresql+psycopg://admin:{TOKEN.replace(' ', '%20')}@{address}")
    inspector = sa.inspect(engine)
    assert sorted(inspector.get_table_names()) == ["s", "t"] and inspector.get_view_names() == ["busy"]
    columns = {each["name"]: str(each["type"]) for each in inspector.get_columns("t")}
    assert columns["b"] == "NUMERIC(10, 2)" and columns["d"] == "DATE" and columns["i"] == "ARRAY"
    table = sa.Table("t", sa.MetaData(), autoload_with=engine)
    with engine.connect() as db:
        assert db.execute(sa.select(table.c.a, table.c.b).where(table.c.c.is_(True))).all() == [FIRST[:2]]
    with adbc.connect(f"postgresql://admin:{TOKEN.replace(' ', '%20')}@{address}") as db, db.cursor() as cursor:
        cursor.execute("SELECT a, e, f, d FROM t ORDER BY a")
        assert cursor.fetch_arrow_table().to_pylist()[0] == {"a": 1, "e": 0.5, "f": "ü'x", "d": FIRST[3]}


def test_statements_as_other_clients_write_them(declared: ServerProcess) -> None:
    """As dbt, DuckDB and Java tools send them."""
    with connected(declared) as db:
        db.execute('CREATE TABLE keyed (id INT, "a kind" VARCHAR, n INT NOT NULL, PRIMARY KEY (id, "a kind"))')
        query = "(select count(*) as n from public.s [range 9 seconds])"
        said = f'/* {{"app": "dbt"}} */ -- x\n create view "millstream"."public"."w" as {query};'
        assert db.execute(said).statusmessage == "CREATE VIEW"
        with pytest.raises(psycopg.Error, match="busy is used by"):
            db.execute("CREATE VIEW x AS SELECT n FROM busy; DROP VIEW busy CASCADE")
        assert db.execute('drop view if exists "millstream"."public"."w" cascade').statusmessage == "DROP VIEW"
        asked = """SELECT "public"."t"."a", 'public.x' FROM "public"."t" WHERE "f" >= 'ü' COLLATE "C" ORDER BY 1"""
        assert db.execute(asked).fetchall() == [(1, "public.x")]
        with pytest.raises(psycopg.Error) as failed:
            db.execute("  /* here */ SUBSCRIBE TO (SELECT v, nothing FROM public.s)")
        assert "no column nothing" in str(failed.value)
        keys = db.execute("SELECT conname, pg_get_constraintdef(oid), conkey FROM pg_catalog.pg_constraint").fetchall()
        assert keys == [("keyed_pkey", 'PRIMARY KEY (id, "a kind")', [1, 2])]
        never_null = "SELECT column_name FROM information_schema.columns WHERE is_nullable = 'NO' ORDER BY 1"
        assert db.execute(never_null).fetchall() == [("a kind",), ("id",), ("n",)]
        assert "count(*)" in db.execute("SELECT definition FROM pg_views WHERE viewname = 'busy'").fetchone()[0].lower()
        with db.cursor().copy('COPY (SELECT "a" FROM "public"."t") TO STDOUT (FORMAT "binary")') as copy:
            assert b"".join(map(bytes, copy)).startswith(b"PGCOPY")


def test_rows_of_a_statement_are_taken_bit_by_bit_within_a_transaction(declared: ServerProcess) -> None:
    """A portal is there until its transaction ends, as fetch sizes of JDBC need it."""
    declared.client()
    with connected(declared) as db:
        raw = db.pgconn.socket
        os.set_blocking(raw, True)

        def ask(*messages: bytes) -> bytes:
            os.write(raw, b"".join(messages) + message(b"S"))
            told = b""
            while not re.search(rb"Z\x00\x00\x00\x05[ITE]$", told):
                told += os.read(raw, 65_536)
            return told

        def message(kind: bytes, *parts: bytes) -> bytes:
            return kind + struct.pack("!i", 4 + len(b"".join(parts))) + b"".join(parts)

        begin = (
            message(b"P", b"\0BEGIN\0", b"\0\0") + message(b"B", b"\0\0", b"\0" * 6) + message(b"E", b"\0", b"\0" * 4)
        )
        asked = message(b"P", b"p\0SELECT i FROM range(5) r(i) ORDER BY i\0", b"\0\0")
        bound = message(b"B", b"c\0p\0", b"\0" * 6)
        two = message(b"E", b"c\0", struct.pack("!i", 2))
        ask(begin)
        first, second, last = ask(asked, bound, two), ask(two), ask(two)
        found = [re.findall(rb"D\x00\x00\x00\x0b\x00\x01\x00\x00\x00\x01(.)", each) for each in (first, second, last)]
        assert found == [[b"0", b"1"], [b"2", b"3"], [b"4"]] and b"SELECT 5" in last and b"s\0\0\0\4" in second
        ask(message(b"P", b"\0COMMIT\0", b"\0\0") + message(b"B", b"\0\0", b"\0" * 6) + message(b"E", b"\0", b"\0" * 4))
        assert b"no portal c" in ask(two)
        # not more than so many at a time
        ask(begin)
        many = b"".join(message(b"B", b"c%d\0p\0" % at, b"\0" * 6) for at in range(101))
        assert b"100 portals are open" in ask(many)


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_psql_describes_and_copies(declared: ServerProcess) -> None:
    declared.client()
    place = ["-h", "127.0.0.1", "-p", str(declared.postgres), "-U", "admin", "-d", "millstream", "-X", "-At"]
    environment = {**os.environ, "PGPASSWORD": TOKEN}
    declared.client().execute("CREATE TABLE keyed (id INT PRIMARY KEY, n INT)")
    said = [r"\d", r"\d s", r"\dt", r"\dv", r"\dn", r"\l", r"\du", "SELECT a FROM t ORDER BY a"]
    command = ["psql", *place, *(part for each in said for part in ("-c", each))]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert not told.stderr and "public|busy|view|" in told.stdout and "ts|timestamp without time zone" in told.stdout
    assert told.stdout.endswith("1\n2\n")
    shown = subprocess.run(["psql", *place[:-1], "-c", r"\d keyed"], env=environment, capture_output=True, text=True)
    assert '"keyed_pkey" PRIMARY KEY, btree (id)' in shown.stdout and "| not null |" in shown.stdout


def test_bytes_that_are_no_protocol_end_their_connection_only(declared: ServerProcess) -> None:
    import random
    import socket

    declared.client()
    drawn = random.Random(7)
    start = struct.pack("!ii", 8 + 11, 3 << 16) + b"user\0admin\0"[:11]
    for case in range(60):
        with socket.create_connection(("127.0.0.1", declared.postgres), timeout=10) as raw:
            noise = drawn.randbytes(drawn.randrange(1, 200))
            raw.sendall((start if case % 2 else b"") + noise)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
    with connected(declared) as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_rows_of_one_length_are_written_as_others_are() -> None:
    times = [dt.datetime(1999, 1, 1, 1), dt.datetime(2026, 1, 1)]
    columns = {"a": pa.array([1, -2], pa.int16()), "t": pa.array(times, pa.timestamp("us")), "x": [1.5, float("nan")]}
    batch = pa.RecordBatch.from_pydict({**columns, "d": pa.array([each.date() for each in times])})
    encode = copying._binary_encoder(batch.schema)
    assert encode is not None
    assert copying._fixed(batch) == copying.framed(encode(batch), copying._binary_sizes(batch))
    for other in (pa.array([1, None]), pa.array(["a", "b"])):
        assert copying._fixed(pa.RecordBatch.from_pydict({"a": other})) is None
