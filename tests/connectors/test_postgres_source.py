"""Tables of a real PostgreSQL as streams of changes."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server, running

import millstream as ms
from millstream.catalog import Clock, StreamDef
from millstream.connectors.contract import Offset
from millstream.connectors.postgres import source as reading
from millstream.connectors.registry import make_source
from millstream.schema import Schema
from millstream.types import BIGINT, INTEGER, VARCHAR

psycopg = pytest.importorskip("psycopg")

CHANGES = Schema.of(id=INTEGER, v=VARCHAR, op=VARCHAR, ts_ms=BIGINT)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


class Reader:
    """Reads a table until so many rows have come, again and again."""

    def __init__(self, server: Server, table: str, schema: Schema = CHANGES, **options: Any) -> None:
        given: dict[str, Any] = {
            "connector": "postgres",
            "url": server.url,
            "table": table,
            "slot": f"of_{table}",
            "poll_ms": 10,
        }
        self.source: Any = make_source({**given, **options}, schema, table)
        self.offset: Offset = {}
        self.errors: list[str] = []

    def rows(self, count: int) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        limit = time.monotonic() + 30

        def stop() -> bool:
            return len(found) + len(self.errors) >= count

        for chunk in self.source.read(self.offset, stop):
            found += [tuple(row.values()) for row in chunk.rows.to_pylist()]
            self.errors += [row.error for row in chunk.rejected]
            self.offset = chunk.offset
            assert time.monotonic() < limit, found
        return found


def declared(server: Server, name: str) -> str:
    return f"WITH (connector = 'postgres', url = '{server.url}', table = '{name}', slot = '{name}', poll_ms = 10)"


def fetched(query: Any, into: list[Any]) -> list[Any]:
    into += query.fetch().to_pylist()
    return into


def ends(found: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not found():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_rows_and_changes_of_every_type(server: Server) -> None:
    server.ask(
        'CREATE TABLE types (b boolean, i smallint, big bigint, d float8, x numeric(10, 2), "Te""xt" text, bin bytea,'
        " ts timestamp, tz timestamptz, day date, tm time, span interval, j jsonb, u uuid)"
    )
    values = (
        "(true, -5, 1099511627776, 1.5, 12.25, E'a \"b\",\\n\\\\.\\\\N', '\\x00ff', '2024-01-01 01:02:03.000004', "
        "'2024-01-01 01:02:03+02', '2024-02-29', '01:02:03.5', '1 day 02:03:04', '{\"a\": 1}', "
        "'5f0c7c4e-6a3f-4b5e-8f5e-000000000001'), (NULL, NULL, NULL, 'NaN', NULL, '', '', " + "NULL, " * 6 + "NULL)"
    )
    server.ask(f"INSERT INTO types VALUES {values}")
    with ms.connect() as db:
        db.execute(
            'CREATE STREAM s (b BOOLEAN, i TINYINT, big BIGINT, d DOUBLE, x DECIMAL(10, 2), "te""xt" VARCHAR, bin BLOB,'
            " ts TIMESTAMP, tz TIMESTAMPTZ, day DATE, tm TIME, span INTERVAL, j JSON, u UUID, op VARCHAR,"
            f" ts_ms TIMESTAMP) ORDER BY ts_ms {declared(server, 'types')}"
        )
        rows = db.sql("SELECT * FROM s")
        found: list[dict[str, Any]] = []
        ends(lambda: len(fetched(rows, found)) == 2)
        server.ask(f"INSERT INTO types VALUES {values}")
        ends(lambda: len(fetched(rows, found)) == 4)
    *first, op, at = found[0].values()
    assert first[:7] == [True, -5, 2**40, 1.5, pytest.approx(12.25), 'a "b",\n\\.\\N', b"\x00\xff"]
    assert first[7:9] == [dt.datetime(2024, 1, 1, 1, 2, 3, 4), dt.datetime(2023, 12, 31, 23, 2, 3, tzinfo=dt.UTC)]
    assert first[9:11] == [dt.date(2024, 2, 29), dt.time(1, 2, 3, 500_000)]
    assert first[11:] == [dt.timedelta(1, 7384), '{"a": 1}', "5f0c7c4e-6a3f-4b5e-8f5e-000000000001"]
    second = list(found[1].values())
    assert second[3] != second[3] and second[5:7] == ["", b""] and {*second[:3], *second[7:14]} == {None}
    assert [row["op"] for row in found] == ["r", "r", "c", "c"] and op == "r"
    assert list(found[2].values())[:14] == first and abs(
        at - dt.datetime.now(dt.UTC).replace(tzinfo=None)
    ) < dt.timedelta(1)
    assert found[0]["ts_ms"] <= found[2]["ts_ms"] == found[3]["ts_ms"]


def test_updates_deletions_and_what_cannot_be_told(server: Server) -> None:
    server.ask("CREATE TABLE t (other int, v text, id int PRIMARY KEY)")
    server.ask("ALTER TABLE t ALTER v SET STORAGE EXTERNAL; INSERT INTO t VALUES (0, 'a', 1)")
    reader = Reader(server, "t")
    assert [row[:3] for row in reader.rows(1)] == [(1, "a", "r")]
    long = "x" * 10_000
    server.ask(
        f"INSERT INTO t VALUES (1, '{long}', 2); UPDATE t SET v = 'b' WHERE id = 1; UPDATE t SET id = 3 WHERE id = 1"
    )
    server.ask("UPDATE t SET other = 7 WHERE id = 2; DELETE FROM t WHERE id = 3")
    assert [row[:3] for row in reader.rows(6)] == [
        (2, long, "c"), (1, "b", "u"), (1, None, "d"), (3, "b", "c"), (3, None, "d"),
    ]  # fmt: skip
    assert len(reader.errors) == 1 and reader.errors[0].startswith("v: a large value that the update left as it was")
    reader.errors.clear()
    server.ask("ALTER TABLE t REPLICA IDENTITY FULL; UPDATE t SET other = 8 WHERE id = 2; DELETE FROM t WHERE id = 2")
    server.ask(
        "ALTER TABLE t ADD more int, DROP other; INSERT INTO t VALUES ('c', 4, 1); UPDATE t SET id = 5; TRUNCATE t"
    )
    assert [row[:3] for row in reader.rows(6)] == [
        (2, long, "u"), (2, long, "d"), (4, "c", "c"), (4, "c", "d"), (5, "c", "c"),
    ]  # fmt: skip
    assert reader.errors[0].startswith("TRUNCATE says nothing about single rows")
    server.ask("ALTER TABLE t DROP v; INSERT INTO t VALUES (9)")
    with pytest.raises(ms.ConnectorError, match=r"the table public.t has no column v\n"):
        reader.rows(10)


def test_the_table_is_read_as_of_one_instant(server: Server) -> None:
    """Transactions that the slot has too are read once, and those that were under way come after."""
    server.ask("CREATE TABLE once (id int PRIMARY KEY, v text); CREATE PUBLICATION of_once FOR TABLE once")
    server.ask("SELECT pg_create_logical_replication_slot('of_once', 'pgoutput')")
    with psycopg.connect(server.url) as under_way:
        under_way.execute("INSERT INTO once VALUES (1, 'late')")
        server.ask("INSERT INTO once VALUES (2, 'early')")
        reader = Reader(server, "once")
        assert [row[:3] for row in reader.rows(1)] == [(2, "early", "r")]
        server.ask("UPDATE once SET v = 'next' WHERE id = 2")
        assert "seen" in reader.offset
        under_way.commit()
    server.ask("INSERT INTO once VALUES (3, 'last')")
    found = reader.rows(3)
    assert [row[:3] for row in found] == [(2, "next", "u"), (1, "late", "c"), (3, "last", "c")]
    assert [row[3] for row in found] == sorted(row[3] for row in found) and "seen" not in reader.offset


def test_reading_goes_on_at_any_offset(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long transaction comes in pieces; the slot moves on when rows are kept, and a reading cannot go back there."""
    monkeypatch.setattr(reading, "_MESSAGES", 7)
    monkeypatch.setattr(reading, "_MORE", 1)
    server.ask("CREATE TABLE long (id int PRIMARY KEY, v text); CREATE TABLE beside (x int)")
    server.ask("CREATE PUBLICATION two FOR TABLE beside, long")
    reader = Reader(server, "long", snapshot=False, publication="two")
    # the slot is made
    next(reader.source.read({}, lambda: False))
    for first in range(0, 60, 20):
        rows = f"SELECT g, g FROM generate_series({first}, {first + 19}) g"
        server.ask(f"INSERT INTO beside VALUES (1); INSERT INTO long {rows}; INSERT INTO beside VALUES (2)")
    found: list[tuple[list[int], Offset]] = []
    for chunk in reader.source.read({}, lambda: sum(len(ids) for ids, _ in found) == 60):
        if chunk.rows.num_rows:
            found.append((chunk.rows.column("id").to_pylist(), chunk.offset))
    assert [number for ids, _ in found for number in ids] == list(range(60)) and len(found) > 8
    for (ids, offset), (following, _) in itertools.pairwise(found):
        rest = next(chunk.rows for chunk in reader.source.read(offset, lambda: False) if chunk.rows.num_rows)
        assert rest.column("id").to_pylist()[: len(following)] == following[: rest.num_rows] != ids
    offsets = [offset for _, offset in found]
    reader.source.kept(offsets[-1])
    reader.offset = offsets[-1]
    server.ask("INSERT INTO long VALUES (60, '')")
    assert [row[0] for row in reader.rows(1)] == [60]
    reader.offset = offsets[0]
    with pytest.raises(ms.ConnectorError, match="no longer has the changes from"):
        reader.rows(1)
    server.ask("SELECT pg_drop_replication_slot('of_long')")
    with pytest.raises(ms.ConnectorError, match="has no replication slot of_long any more"):
        reader.rows(1)


def test_every_change_once_whatever_happens(server: Server, tmp_path: Path) -> None:
    """Over crashes at any moment, checkpoints or none, and a server that restarts."""
    draw = random.Random(7)
    server.ask("CREATE TABLE counted (id int PRIMARY KEY, v int); INSERT INTO counted VALUES (0, 0)")
    db = ms.connect(tmp_path / "0", checkpoint_seconds=3600)
    db.execute(
        "CREATE STREAM counted (id INT, v INT, op VARCHAR, ts_ms TIMESTAMP) ORDER BY ts_ms "
        f"{declared(server, 'counted')}"
    )
    db.sql("SELECT id, v, op FROM counted", name="all")
    db.sql("SELECT id, v FROM counted [PARTITION BY id ROWS 1 DELETE WHEN op = 'd']", name="now")
    numbers = itertools.count(1)
    for turn in range(4):
        for _ in range(draw.randrange(3, 9)):
            v, key = next(numbers), draw.randrange(5)
            server.ask(f"INSERT INTO counted VALUES ({key}, {v}) ON CONFLICT (id) DO UPDATE SET v = {v}")
            if draw.random() < 0.3:
                server.ask(f"DELETE FROM counted WHERE id = {key}")
            time.sleep(draw.choice((0, 0.03)))
            if draw.random() < 0.2:
                db.checkpoint()
        if turn == 2:
            server.stop()
            server.start()
        # the process dies here: what it has on disk is all that is left
        shutil.copytree(tmp_path / str(turn), tmp_path / str(turn + 1))
        db.close()
        db = ms.connect(tmp_path / str(turn + 1), checkpoint_seconds=3600)
    last = next(numbers)
    server.ask(f"INSERT INTO counted VALUES (77, {last})")
    rows: list[dict[str, Any]] = []
    ends(lambda: fetched(db.query("all"), rows)[-1:] == [{"id": 77, "v": last, "op": "c"}])
    assert [row["v"] for row in rows if row["op"] != "d"] == list(range(last + 1))
    content = db.query("now").snapshot().select(["id", "v"]).to_pylist()
    assert sorted(tuple(row.values()) for row in content) == sorted(server.ask("SELECT id, v FROM counted"))
    db.checkpoint()
    (before,) = server.ask("SELECT pg_current_wal_lsn()")[0]
    server.ask("INSERT INTO counted VALUES (78, 0)")
    ends(lambda: db.query("all").fetch().num_rows == 1)
    db.checkpoint()
    slot = "SELECT confirmed_flush_lsn > %s FROM pg_replication_slots WHERE slot_name = 'counted'"
    ends(lambda: bool(server.ask(slot % f"'{before}'")[0][0]))
    db.close()


def test_an_idle_table_lets_the_log_go(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOVE_SECONDS", 0.0)
    server.ask("CREATE TABLE idle (id int, v text); CREATE TABLE busy (x int)")
    with ms.connect() as db:
        db.execute(f"CREATE STREAM idle (id INT) {declared(server, 'idle')}")
        db.sql("SELECT id FROM idle")
        ends(lambda: bool(server.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'idle'")))
        server.ask("INSERT INTO busy SELECT generate_series(1, 1000)")
        (at,) = server.ask("SELECT pg_current_wal_lsn()")[0]

        def moved() -> bool:
            server.ask("INSERT INTO busy VALUES (1)")
            slot = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE slot_name = 'idle'"
            return bool(server.ask(slot % f"'{at}'")[0][0])

        ends(moved)


def test_a_spool_goes_on_after_its_last_file(server: Server, tmp_path: Path) -> None:
    """What the Spark host reads in the driver."""
    from millstream.hosts.spark.spool import Spooled

    server.ask("CREATE TABLE spooled (id int PRIMARY KEY, v text); INSERT INTO spooled VALUES (1, 'a')")
    stream = StreamDef("spooled", CHANGES, Clock.EXTERNAL, "ts_ms")
    for count in (1, 2):
        spool = Spooled(stream, Reader(server, "spooled").source, tmp_path)
        spool.begin()
        ends(lambda count=count: len(list(tmp_path.glob("*.arrow"))) == count)  # type: ignore[misc]
        spool.close()
        spool.check()
        server.ask(f"INSERT INTO spooled VALUES ({count + 1}, '')")
    import pyarrow as pa

    files = sorted(tmp_path.glob("*.arrow"))
    assert [pa.ipc.open_file(file.read_bytes()).read_all().column("id").to_pylist() for file in files] == [[1], [2]]


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({"slot": "of_nowhere"}, CHANGES, "there is no table nowhere at postgresql://127.0.0.1"),
        ({}, Schema.of(id=INTEGER, prise=INTEGER), "the table public.known has no column prise\n.*did you mean price"),
        ({"publication": "empty"}, Schema.of(id=INTEGER), "the publication empty has not the table public.known"),
        ({"slot": "of ours"}, Schema.of(id=INTEGER), "replication slot name .* contains invalid character"),
        ({"slot": "physical"}, Schema.of(id=INTEGER), "physical is not a slot of this database"),
        ({"slot": "taken", "retries": 0}, Schema.of(id=INTEGER), "the slot taken is being read by another session"),
    ],
)
def test_what_is_wrong_is_said(server: Server, options: dict[str, Any], columns: Schema, message: str) -> None:
    server.ask("CREATE TABLE IF NOT EXISTS known (id int, price int)")
    if not server.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'physical'"):
        server.ask("CREATE PUBLICATION empty; SELECT pg_create_physical_replication_slot('physical')")
    with psycopg.connect(server.url) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('millstream slot taken', 0))")
        table = "nowhere" if columns is CHANGES else "known"
        reader = Reader(server, table, columns, **{"retries": 0, **options})
        with pytest.raises(ms.ConnectorError, match=f"(?s){message}"):
            reader.rows(1)


def test_wrong_declarations() -> None:
    def declare(schema: Schema = CHANGES, **options: Any) -> None:
        make_source(
            {"connector": "postgres", "url": "postgresql://u@localhost/d", "table": "t", **options}, schema, "s"
        )

    with pytest.raises(ms.ConnectorError, match="needs the option slot"):
        declare()
    with pytest.raises(ms.ConnectorError, match="has no option start"):
        declare(slot="s", start="latest")
    with pytest.raises(ms.ConnectorError, match="the column ts_ms is BIGINT or TIMESTAMP"):
        declare(Schema.of(id=INTEGER, ts_ms=INTEGER), slot="s")
    with (
        ms.connect(profile="untrusted") as db,
        pytest.raises(ms.MillstreamError, match=r"connecting to .* is not allowed"),
    ):
        db.execute(
            "CREATE STREAM s (id INT) WITH (connector = 'postgres', url = 'postgresql://u@10.0.0.1/d', table = 't', "
            "slot = 's')"
        )
