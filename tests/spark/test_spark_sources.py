"""Declared sources and sinks on Spark: files, generators, part files, the terminal."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from spark_cases import (
    SECOND,
    TRADES,
    apply,
    as_rows,
    in_process,
    over,
    program,
    random_trades,
    source,
    stepwise,
    trades,
)

import millstream as ms
from millstream.catalog import ERRORS_SCHEMA, Clock, SinkDef, StreamDef
from millstream.connectors.ports.source import PortSource
from millstream.connectors.registry import make_source
from millstream.errors import ConnectorError, DataError
from millstream.expressions.nodes import Column
from millstream.hosts.contract import Progress, ReadyQuery
from millstream.hosts.spark.checkpoints import STATE_PLACE
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.job.beside import Notes
from millstream.hosts.spark.sources import FILES_PER_TRIGGER, DriverSource
from millstream.hosts.spark.spool import Spooled
from millstream.physical.nodes import Compute
from millstream.schema import Schema
from millstream.spark import Millstream
from millstream.types import BIGINT, DOUBLE, TIMESTAMP, VARCHAR

pytestmark = pytest.mark.spark


def declared(spark: Any, options: dict[str, Any], schema: Schema = TRADES, **more: Any) -> SparkHost:
    host = SparkHost(spark, lambda node: pa.table({}), **more)
    host.declare(StreamDef("trades", schema, Clock.EXTERNAL, "ts", source=options))
    return host


def read_in_process(options: dict[str, Any], schema: Schema = TRADES) -> tuple[list[tuple[Any, ...]], list[str]]:
    made = make_source(options, schema, "trades")
    assert made is not None
    chunks = list(made.read({}, lambda: False))
    rows = [row for chunk in chunks for row in as_rows(chunk.rows)]
    return rows, [rejected.error for chunk in chunks for rejected in chunk.rejected]


def test_files_with_bad_rows(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c"
    folder.mkdir()
    (folder / "1.csv").write_text(
        "symbol,price,ts\nB,2.5,1970-01-01 00:00:09\nA,x,1970-01-01 00:00:01\nü,1,1970-01-01T00:00:02Z\n"
    )
    (folder / "2.csv").write_text("symbol,price,ts\nC,,1970-01-01 00:00:09\nD,4,\n")
    options = {"connector": "file", "path": str(folder)}
    rows, rejected = read_in_process(options)
    host = declared(spark, options)
    host.start(program(source(), "rows"))
    host.start(program(source(schema=ERRORS_SCHEMA, side="errors"), "errors"))
    host.start(program(apply(over(()), source()), "over"))
    told: list[Progress] = []
    host.run(("rows", "errors", "over"), told.append)
    assert told[-1].rows_in == {"trades": 3} and told[-1].rejected == 2
    timed = [row for row in rows if row[2] is not None]
    assert as_rows(host.fetch("rows")) == [("ü", 1.0, 2 * SECOND), ("B", 2.5, 9 * SECOND), ("C", None, 9 * SECOND)]
    assert as_rows(host.fetch("over")) == in_process(over(()), timed)
    errors = host.fetch("errors").to_pylist()
    assert len(errors) == 2 and errors[0]["error"] == rejected[0] and "1.csv" in errors[0]["origin"]
    assert "NULL" in errors[1]["error"]
    host.finish()
    assert host.fetch("rows").num_rows == 0


def test_no_files_is_an_error_at_declaration(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="no file"):
        declared(spark, {"connector": "file", "path": str(tmp_path / "none.csv")})


def test_a_port_is_spooled_and_followed(spark: Any) -> None:
    host = declared(spark, {"connector": "port", "port": 0})
    entry = host._inputs["trades"]
    assert isinstance(entry, Spooled) and isinstance(entry.source, PortSource)
    host.start(program(source(), "rows"))
    host.start(program(source(schema=ERRORS_SCHEMA, side="errors"), "errors"))
    assert "streaming query" in host.explain(host._queries["rows"].program)
    assert entry.source.server is None
    port = entry.source.listen()

    def talk() -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b'{"symbol": "a", "price": 1.5, "ts": "1970-01-01 00:00:01"}\n{"symbol": 7\n')

    def look(progress: Progress) -> None:
        if all(progress.rows_out.values()):
            host.interrupt()

    threading.Timer(1, talk).start()
    watchdog = threading.Timer(60, host.interrupt)
    watchdog.start()
    host.run(("rows", "errors"), look)
    watchdog.cancel()
    assert as_rows(host.fetch("rows")) == [("a", 1.5, SECOND)]
    assert host.fetch("errors").num_rows == 1
    host.close()


def test_a_port_in_use_is_told(spark: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host = declared(spark, {"connector": "port", "port": taken.getsockname()[1]})
        host.start(program(source()))
        with pytest.raises(ConnectorError, match="cannot listen"):
            host.run(("q",))


def test_rows_may_be_pushed_where_a_port_is_declared_but_not_to_files(spark: Any, tmp_path: Path) -> None:
    host = declared(spark, {"connector": "port", "port": 0})
    host.start(program(source()))
    host.push("trades", trades([("a", 1.0, 1)]))
    host.finish()
    assert as_rows(host.fetch("q")) == [("a", 1.0, 1)]
    (tmp_path / "1.csv").write_text("symbol,price,ts\n")
    with pytest.raises(DataError, match="its own source"):
        declared(spark, {"connector": "file", "path": str(tmp_path)}).push("trades", trades([]))


def test_a_port_that_ends_is_read_once_for_all_queries(spark: Any) -> None:
    host = declared(spark, {"connector": "port", "port": 0, "until": "disconnect", "format": "csv"})
    entry = host._inputs["trades"]
    assert isinstance(entry, DriverSource) and isinstance(entry.source, PortSource)
    port = entry.source.listen()
    for name in ("one", "two"):
        host.start(program(source(), name))
        host.explain(host._queries[name].program)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"symbol,price,ts\na,1.5,1970-01-01 00:00:01\n")
    host.run(("one", "two"))
    assert as_rows(host.fetch("one")) == as_rows(host.fetch("two")) == [("a", 1.5, SECOND)]


def test_files_followed_by_a_streaming_query(spark: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in box"
    inbox.mkdir()
    rows = random_trades(40, 3)
    options = {"connector": "file", "path": str(inbox), "format": "jsonl", "follow": True}
    host = declared(spark, options)
    plan = Compute(
        Schema.of(symbol=VARCHAR, price=DOUBLE),
        source(),
        None,
        (("symbol", Column(VARCHAR, "symbol")), ("price", Column(DOUBLE, "price"))),
    )
    host.start(program(plan, "rows"))
    host.start(program(source(schema=ERRORS_SCHEMA, side="errors"), "errors"))
    for number in range(2):
        lines = [
            json.dumps({"symbol": symbol, "price": price, "ts": f"1970-01-01 00:00:{i:02d}"})
            for i, (symbol, price, _) in enumerate(rows[20 * number : 20 * number + 20])
        ]
        (inbox / f"{number}%20.jsonl").write_text("\n".join([*lines, "{broken"]) + "\n")
    for name in ("rows", "errors"):
        query = host.start_streaming(
            host._queries[name].program, str(tmp_path / f"check-{name}"), {"availableNow": True}
        )
        query.awaitTermination()
    assert sorted(as_rows(host.fetch("rows")), key=repr) == sorted([row[:2] for row in rows], key=repr)
    assert host.fetch("errors").num_rows == 2
    host.start(program(apply(over(()), source()), "bounded"))
    host.finish()
    assert host.fetch("bounded").num_rows == 40


def test_generators_are_spread_over_tasks(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from millstream.connectors.generators import source as generators

    monkeypatch.setattr(generators, "_ROWS_PER_PART", 1000)
    schema = Schema.of(symbol=VARCHAR, price=DOUBLE, ts=TIMESTAMP)
    options = {"connector": "quotes", "rows": 3500, "seed": 5}
    host = declared(spark, options, schema)
    host.start(program(source(schema=schema), "rows"))
    told: list[Progress] = []
    host.run(("rows",), told.append)
    assert told[-1] == Progress({"trades": 3500}, {"rows": 3500}, total=3500)
    assert as_rows(host.fetch("rows")) == read_in_process(options, schema)[0]


def test_a_generator_without_end_runs_until_interrupted(spark: Any) -> None:
    options = {"connector": "quotes", "seed": 5}
    host = declared(spark, options)
    host.start(program(source(), "rows"))
    seen: list[Progress] = []

    def look(progress: Progress) -> None:
        seen.append(progress)
        if progress.rows_out["rows"]:
            host.interrupt()

    watchdog = threading.Timer(60, host.interrupt)
    watchdog.start()
    host.run(("rows",), look)
    watchdog.cancel()
    rows = as_rows(host.fetch("rows"))
    assert seen[-1].rows_in["trades"] >= len(rows) >= 1000
    assert rows[:1000] == read_in_process({**options, "rows": 1000})[0]


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_part_files_hold_all_rows_in_order(spark: Any, tmp_path: Path, form: str) -> None:
    host = SparkHost(spark, lambda node: pa.table({}))
    host.declare(StreamDef("trades", TRADES, Clock.EXTERNAL, "ts", SECOND))
    target = tmp_path / f"out.{form}"
    sink = SinkDef("out", {"connector": "file", "path": str(target), "rows_per_file": 70})
    rows = random_trades(200, 4, disorder=SECOND)
    spec = over()
    plan = apply(spec, source())
    host.start(ReadyQuery("q", plan, ("symbol", "price", "ts", "n", "N", "low"), sink))
    host.push("trades", trades(rows))
    host.finish()
    assert host.fetch("q").num_rows == 0
    parts = sorted(target.glob("part-*"))
    assert len(parts) >= 3 and not list(target.glob(".*"))
    written = Schema.of(symbol=VARCHAR, price=DOUBLE, ts=TIMESTAMP, n=BIGINT, N_2=DOUBLE, low=DOUBLE)
    assert read_in_process({"connector": "file", "path": str(target)}, written)[0] == in_process(spec, rows)
    if form == "parquet":
        assert pq.read_schema(parts[0]).names == list(written.names)


def test_other_sinks_get_ordered_rows(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = SparkHost(spark, lambda node: pa.table({}))
    host.declare(StreamDef("trades", TRADES, Clock.EXTERNAL, "ts", SECOND))
    single = tmp_path / "one.csv"
    file = SinkDef("file", {"connector": "file", "path": str(single), "single_file": True})
    host.start(ReadyQuery("f", source(), TRADES.names, file))
    host.start(ReadyQuery("t", source(), TRADES.names, SinkDef("screen", {"connector": "terminal"})))
    host.push("trades", trades([("späť", 1.0, 2), ("b", 2.0, 1)]))
    host.finish()
    assert single.read_text().splitlines()[1].startswith("b,")
    shown = capsys.readouterr().out
    assert shown.index("b") < shown.index("späť")


def test_an_interrupted_run_ends_without_results(spark: Any, tmp_path: Path) -> None:
    schema = Schema.of(symbol=VARCHAR, price=DOUBLE, ts=TIMESTAMP)
    target = tmp_path / "out"
    host = declared(spark, {"connector": "quotes", "rows": 200_000_000, "symbols": 5}, schema)
    sink = SinkDef("out", {"connector": "file", "path": str(target)})
    host.start(ReadyQuery("q", apply(over(), source()), over().output.names, sink))
    threading.Timer(2, host.interrupt).start()
    host.run(("q",))
    assert host.fetch("q").num_rows == 0
    assert not list(target.glob("part-*"))


@stepwise
def test_history_in_files_is_handed_to_a_streaming_query_at_a_recorded_offset(spark: Any, tmp_path: Path) -> None:
    """The first micro-batch is a batch over the files, and rows that the live source has, too, come once; also if it is
    repeated after a crash, when the directory has other files."""
    schema = Schema.of(symbol=VARCHAR, price=DOUBLE, ts=TIMESTAMP)
    live = {"connector": "quotes", "rate": 10, "start": "2026-01-31 12:00:00"}
    made = make_source({**live, "rows": 4000}, schema, "trades")
    assert made is not None
    rows = pa.Table.from_batches([chunk.rows for chunk in made.read({}, lambda: False)])
    (tmp_path / "old").mkdir()
    for n in range(3):
        pq.write_table(rows.slice(n * 50, 50), tmp_path / "old" / f"{n}.parquet")
    until = rows["ts"][120].as_py()
    past = {"history": str(tmp_path / "old"), "history_until": str(until)}

    def run(least: int) -> list[tuple[Any, ...]]:
        host = declared(spark, {**live, **past}, schema)
        plan = apply(over((), schema), source(schema=schema))
        host.start(ReadyQuery("totals", plan, plan.schema.names, sink=sink))
        job = host.start_job(list(host._queries.values()), str(tmp_path / "check"))
        while not any(out.glob("*.parquet")) or pq.read_table(out).num_rows < least:
            assert not job.wait(0.2)
        job.stop()
        return sorted(as_rows(pq.read_table(out)), key=lambda row: row[3])

    out = tmp_path / "out"
    sink = SinkDef("totals", {"connector": "file", "path": str(out), "format": "parquet"})
    spark.conf.set("spark.millstream.rowsPerTrigger", "200")
    try:
        run(150)
        first = json.loads(json.loads((tmp_path / "check" / "offsets" / "0").read_text().splitlines()[2])["offset"])
        assert len(first["past"]) == 3 and first["from"] == {"row": 0}
        # as if the process had died in its first micro-batch
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / "check" / STATE_PLACE)
        for written in (tmp_path / "check").glob("*/[0-9]*"):
            if written != tmp_path / "check" / "offsets" / "0":
                written.unlink()
        pq.write_table(rows.slice(0, 50), tmp_path / "old" / "3.parquet")
        found = run(250)
    finally:
        spark.conf.unset("spark.millstream.rowsPerTrigger")
    assert found == in_process(over((), schema), as_rows(rows))[: len(found)]


# -- sources that are divided by key -----------------------------------------------------------------------------------

PARTITIONED = """CREATE STREAM s (symbol VARCHAR, venue INT, x DOUBLE, ts TIMESTAMP) ORDER BY ts SLACK 20 SECONDS
    WITH (connector = 'file', path = '{folder}', follow = {follow}, partitioned_by = 'symbol')"""
OF_PARTITIONS = {
    "totals": "SELECT symbol, ts, sum(x) OVER (PARTITION BY symbol RANGE 15 SECONDS PRECEDING) AS total FROM s",
    "groups": "SELECT symbol, venue, count(*) AS n FROM s [RANGE 10 SECONDS] WHERE x > 3 GROUP BY venue, symbol",
    "rises": """SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts MEASURES FIRST(ts) AS since
        PATTERN (A UP+) DEFINE UP AS x > PREV(x)) AS m""",
    "pairs": """SELECT a.symbol, a.x, b.x AS y FROM s [RANGE 2 SECONDS] AS a, s [RANGE 3 SECONDS] AS b
        WHERE a.symbol = b.symbol AND a.x < b.x""",
}
OF_ALL = {
    "peaks": """SELECT venue, max(total) OVER (PARTITION BY venue ROWS 4 PRECEDING) AS peak FROM (SELECT venue, ts,
        sum(x) OVER (PARTITION BY symbol ROWS 3 PRECEDING) AS total FROM s) AS t""",
    "late": "SELECT symbol, count(*) OVER (PARTITION BY symbol ROWS 1 PRECEDING) AS n FROM LATE(s)",
    "venues": "SELECT venue, count(*) OVER (PARTITION BY venue RANGE 5 SECONDS PRECEDING) AS n FROM s",
}
SYMBOLS = ("ACME", "a b", "ü/1", "WILE")


def partition_file(
    folder: Path, number: int, symbol: str, rows: list[tuple[Any, ...]], inside: str | None = None
) -> None:
    """A file in the directory of its symbol, which is a column of the file only if it is given `inside`."""
    place = folder / f"symbol={quote(symbol, safe='')}"
    place.mkdir(parents=True, exist_ok=True)
    venues, xs, times = (list(column) for column in zip(*rows, strict=True))
    table = pa.table({"venue": pa.array(venues, pa.int32()), "x": xs, "ts": pa.array(times, pa.timestamp("us"))})
    if inside is not None:
        table = table.append_column("symbol", pa.array([inside] * len(rows)))
    path = place / f"{number:03}.parquet"
    pq.write_table(table, path.with_name(f".{path.name}"))
    os.utime(path.with_name(f".{path.name}"), (1_700_000_000 + number,) * 2)
    path.with_name(f".{path.name}").rename(path)


def in_time(rng: random.Random, begin: int, count: int) -> list[tuple[Any, ...]]:
    """Rows of ten seconds."""
    times = sorted(rng.randrange(begin * 10_000_000, (begin + 1) * 10_000_000) for _ in range(count))
    return [(rng.randrange(3), float(rng.randrange(20)), 1_700_000_000_000_000 + time) for time in times]


@stepwise
def test_stages_run_where_partitions_are_read(spark: Any, tmp_path: Path) -> None:
    """With state across micro-batches of one file each, and two restarts; then everything at once in a bounded run."""
    rng, folder, queries = random.Random(5), tmp_path / "in", OF_PARTITIONS | OF_ALL
    taken: dict[str, list[Any]] = {name: [] for name in queries}
    spark.conf.set(FILES_PER_TRIGGER, "1")
    number = 0
    try:
        for period in range(3):
            for symbol in rng.sample(SYMBOLS, 3):
                partition_file(folder, number, symbol, in_time(rng, period, 12))
                number += 1
            # others hear in the next micro-batch how far time has come in one
            for symbol in SYMBOLS[:2] if period == 2 else ():
                partition_file(folder, number, symbol, in_time(rng, 1_000, 1))
                number += 1
            m = Millstream(spark)
            m.execute(PARTITIONED.format(folder=folder, follow="TRUE"))
            job = m.start(
                queries,
                checkpoint=str(tmp_path / "checkpoint"),
                trigger={"availableNow": True},
                foreach_batch={
                    name: lambda frame, _, rows=rows: rows.extend(frame.toArrow().to_pylist())
                    for name, rows in taken.items()
                },
            )
            assert job.wait()
            levels = [stage.level for stage in job.graph.stages]
            assert sorted(levels) == [0, 0, 0, 0, 0, 0, 1, 1, 1]
            assert not sum(job.late.values())
            job.stop()
    finally:
        spark.conf.unset(FILES_PER_TRIGGER)

    def answers(db: Any) -> dict[str, list[str]]:
        db.execute(PARTITIONED.format(folder=folder, follow="FALSE"))
        assert ("where the rows are read" in db.sql(queries["totals"]).explain()) == (db is there)
        running = {name: db.sql(text, name=name) for name, text in queries.items()}
        db.run()
        db.finish()
        return {name: sorted(map(repr, query.fetch().to_pylist())) for name, query in running.items()}

    with ms.connect() as here, ms.connect(spark=spark) as there:
        expected = answers(here)
        assert answers(there) == expected
    m = Millstream(spark)
    m.execute(PARTITIONED.format(folder=folder, follow="FALSE"))
    assert sorted(map(repr, m.sql(queries["peaks"]).toArrow().to_pylist())) == expected["peaks"]
    # the rows that let time pass are not final while more may come
    for name, rows in taken.items():
        left = Counter(expected[name])
        left.subtract(map(repr, rows))
        assert min(left.values(), default=0) >= 0, name
        assert sum(left.values()) <= 4, name


def test_a_key_in_two_partitions_is_an_error(spark: Any, tmp_path: Path) -> None:
    folder, told = tmp_path / "in", "a row with symbol 'WILE' is in the directory symbol=ACME"
    partition_file(folder, 0, "ACME", [(1, 1.0, 0)], inside="ACME")
    partition_file(folder, 1, "ACME", [(1, 1.0, 1), (1, 2.0, 2)], inside="WILE")
    for db in (ms.connect(), ms.connect(spark=spark)):
        db.execute(PARTITIONED.format(folder=folder, follow="FALSE"))
        query = db.sql(OF_PARTITIONS["totals"])
        with pytest.raises(DataError, match=told):
            query.arrow()
        db.close()
    (tmp_path / "flat").mkdir()
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "flat" / "a.parquet")
    db = ms.connect()
    db.execute(PARTITIONED.format(folder=tmp_path / "flat", follow="FALSE"))
    with pytest.raises(ConnectorError, match="is in no directory symbol=value"):
        db.sql(OF_PARTITIONS["totals"]).arrow()


def test_time_is_heard_in_a_later_micro_batch_whatever_ran_between(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.leave(0, {"a": [5]})
    notes.leave(0, {"a": [7], "b": [1, 2]})
    assert notes.heard(0) == {}
    assert notes.heard(1) == {"a": [7], "b": [1, 2]}
    for number in range(1, 9):
        notes.beat(number, {"a": [10 + number]})
    assert notes.heard(9) == {"a": [18], "b": [1, 2]}
    notes.leave(9, {"a": [20], "b": [3, 2]})
    assert notes.heard(10) == {"a": [20], "b": [3, 2]}
    # what nobody will ask for is gone
    assert sorted(path.name[:6] for path in (tmp_path / "time").iterdir()) == ["7-beat", "8-beat", "9-read"]
