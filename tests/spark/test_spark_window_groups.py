"""Groups made of panes on Spark: the rows that the process gives, keys spread over tasks, compiled loops, rows put
together before the exchange."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_cases import stepwise

import millstream as ms
from millstream.hosts.spark import carry
from millstream.hosts.spark.build import PUT_TOGETHER
from millstream.hosts.spark.job.graph import GraphBuilder, JobGraph, JobQuery
from millstream.hosts.spark.job.kept_job import KeptJob
from millstream.hosts.spark.meters import Meters
from millstream.hosts.spark.sources import FILES_PER_TRIGGER
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.contract import PARTIALS, partials_of
from millstream.kernels.window_groups import WindowGroupSpec
from millstream.plan.aggregate_calls import AggregateCall
from millstream.plan.window_tables import Hopping
from millstream.schema import Schema
from millstream.spark import Millstream
from millstream.types import BIGINT

pytestmark = pytest.mark.spark

START = 1_700_000_000_000_000

QUERIES = {
    "overlapping": """
        SELECT k, window_end, count(*) AS n, sum(b) AS total, avg(x) AS mean, min(x) AS low, stddev(x) AS spread
        FROM HOP(s, ts, 2 SECONDS, 10 SECONDS) GROUP BY k, window_end
    """,
    "growing": """
        SELECT window_start, window_end, k, max(b) AS high FROM CUMULATE(s, ts, 5 SECONDS, 20 SECONDS)
        GROUP BY window_start, window_end, k
    """,
    "in one place": "SELECT window_start, count(x) AS n, sum(b) AS t FROM HOP(s, ts, 3 SECONDS, 7 SECONDS) GROUP BY 1",
}


def random_table(rows: int) -> pa.Table:
    draw = np.random.default_rng(3)
    return pa.table(
        {
            "k": pa.array([f"key {i}" for i in draw.integers(0, 200, rows)], mask=draw.random(rows) < 0.02),
            "b": pa.array(draw.integers(-(2**40), 2**40, rows), mask=draw.random(rows) < 0.1),
            "x": pa.array(np.round(draw.normal(0, 50, rows), 2), mask=draw.random(rows) < 0.1),
            "ts": pa.array(START + np.sort(draw.integers(0, 60_000_000, rows))).cast(pa.timestamp("us")),
        }
    )


def answer(db: Any, table: pa.Table, query: str) -> list[str]:
    db.register("s", table, time="ts")
    running = db.sql(query)
    assert "by panes" in running.explain()
    return sorted(map(repr, running.arrow().to_pylist()))


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_same_rows_as_in_process(spark: Any, query: str) -> None:
    table = random_table(8_000)
    with ms.connect() as here:
        expected = answer(here, table, query)
    with ms.connect(spark=spark) as there:
        assert answer(there, table, query) == expected


NATIVE = """
    SELECT k, window_start, window_end, count(*) AS n, count(b) AS known, sum(b) AS total, avg(b) AS mean,
        min(b) AS low, max(at) AS last, sum(i) AS small, avg(i) AS small_mean
    FROM {windows} WHERE i <> 7 GROUP BY k, window_start, window_end HAVING count(*) > 1
"""
WINDOWS = (
    "TUMBLE(s, ts, 5 SECONDS)",
    "HOP(s, ts, 2 SECONDS, 10 SECONDS)",
    "HOP(s, ts, 7 SECONDS, 3 SECONDS)",
    "CUMULATE(s, ts, 5 SECONDS, 20 SECONDS)",
)


def test_spark_groups_registered_frames_itself(spark: Any) -> None:
    """In a batch job over rows of Spark's, with the rows that the process gives, also before 1970."""
    draw = np.random.default_rng(4)
    table = random_table(2_000)
    times = pa.array(np.sort(draw.integers(-30_000_000, 30_000_000, 2_000))).cast(pa.timestamp("us"))
    table = table.set_column(3, "ts", times).drop_columns(["x"])
    table = table.set_column(1, "b", pa.array([2**60, -(2**60), 3, None] * 500, pa.int64()))
    table = table.append_column("i", pa.array(draw.integers(-9, 9, 2_000), pa.int32())).append_column("at", times)
    m = Millstream(spark)
    without_zone = {name: f"CAST({name} AS TIMESTAMP_NTZ) AS {name}" for name in ("ts", "at")}
    frame = spark.createDataFrame(table).selectExpr(*(without_zone.get(name, name) for name in table.column_names))
    m.register("s", frame, time="ts")
    for windows in WINDOWS:
        query = NATIVE.format(windows=windows)
        with ms.connect() as here:
            here.register("s", table, time="ts")
            expected = sorted(map(repr, here.sql(query).arrow().to_pylist()))
        assert "(GROUP BY of the host, by panes)" in m.explain(query)
        assert sorted(map(repr, m.sql(query).toArrow().to_pylist())) == expected


# -- rows put together before the exchange -----------------------------------------------------------------------------

DECLARED = "CREATE STREAM s (k VARCHAR, b BIGINT, x DOUBLE, ts TIMESTAMP) ORDER BY ts SLACK 2 SECONDS"
IN_ORDER = "CREATE STREAM r (k VARCHAR, b BIGINT, x DOUBLE, ts TIMESTAMP) ORDER BY ts"
SLIDING = """
    SELECT k, count(*) AS n, sum(b) AS total, avg(x) AS mean, min(x) AS low, max(k) AS name, stddev(x) AS spread
    FROM r [RANGE 10 SECONDS SLIDE 4 SECONDS] GROUP BY k
"""
NOW = {"availableNow": True}


@pytest.fixture
def settings(spark: Any) -> Iterator[Any]:
    spark.conf.set(FILES_PER_TRIGGER, "1")
    yield spark.conf
    spark.conf.unset(FILES_PER_TRIGGER)
    spark.conf.unset(PUT_TOGETHER)


def disordered_parts() -> list[pa.Table]:
    """Parts of a stream: times up to two seconds out of order, and in each but the first some rows that are late, also
    in panes that have others in time. The last row makes all before it final."""
    table = random_table(3_000)
    draw = np.random.default_rng(5)
    times = table["ts"].cast(pa.int64()).to_numpy() - draw.integers(0, 2_000_000, 3_000)
    parts = []
    for begin in range(0, 3_000, 750):
        own = times[begin : begin + 750].copy()
        if begin:
            reached = int(times[:begin].max()) - 2_000_000
            own[own < reached] = reached
            own[::75] = reached - draw.integers(1, 1_500_000, 10)
        parts.append(table.slice(begin, 750).set_column(3, "ts", pa.array(own).cast(pa.timestamp("us"))))
    last = pa.table(
        {"k": ["end"], "b": [1], "x": [1.0], "ts": pa.array([START + 600_000_000]).cast(pa.timestamp("us"))}
    )
    return [*parts, last]


def put(folder: Path, number: int, table: pa.Table) -> None:
    pq.write_table(table, folder / f".{number}")
    os.utime(folder / f".{number}", (1_700_000_000 + number,) * 2)
    (folder / f".{number}").rename(folder / f"{number}.parquet")


@stepwise
def test_partials_change_nothing(spark: Any, settings: Any, tmp_path: Path) -> None:
    """A job of all queries, resumed twice, at last without partials, gives the rows that the process gives. Groups of a
    relation are among them, over rows without late ones: these are others where windows have a slide."""
    from pyspark import SparkFiles

    parts, table = disordered_parts(), random_table(3_000)
    in_order = [*(table.slice(begin, 750) for begin in range(0, 3_000, 750)), parts[-1]]
    texts = [*QUERIES.values(), SLIDING]
    with ms.connect() as here:
        here.execute(f"{DECLARED}; {IN_ORDER}")
        queries = {f"q{i}": here.sql(text) for i, text in enumerate(texts)}
        late = sum(here.push("s", part).late for part in parts)
        for part in in_order:
            here.push("r", part)
        expected = {name: sorted(map(repr, query.fetch().to_pylist())) for name, query in queries.items()}
    assert late == 30
    folders = tmp_path / "in", tmp_path / "in order"
    for folder in folders:
        folder.mkdir()
    taken: dict[str, list[str]] = {name: [] for name in queries}
    late = 0
    for begin, end, together in ((0, 2, "true"), (2, 4, "true"), (4, 5, "false")):
        settings.set(PUT_TOGETHER, together)
        for number in range(begin, end):
            for folder, own in zip(folders, (parts, in_order), strict=True):
                put(folder, number, own[number])
        m = Millstream(spark)
        for folder, declared in zip(folders, (DECLARED, IN_ORDER), strict=True):
            m.execute(f"{declared} WITH (connector = 'file', path = '{folder}', follow = TRUE)")
        assert ("Partial count(*)" in m.explain(SLIDING)) == (together == "true")
        job = m.start(
            {f"q{i}": text for i, text in enumerate(texts)},
            checkpoint=str(tmp_path / "checkpoint"),
            trigger=NOW,
            foreach_batch={
                name: lambda frame, _, rows=rows: rows.extend(repr(row) for row in frame.toArrow().to_pylist())
                for name, rows in taken.items()
            },
        )
        job.wait()
        late += sum(job.late.values())
        job.stop()
        noted = list(Path(SparkFiles.getRootDirectory()).glob(f"millstream-{job.query.runId}-*"))
        assert len(noted) == len(queries)
    assert {name: sorted(rows) for name, rows in taken.items()} == expected
    assert late == 3 * 30


def test_only_rows_that_are_in_time_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema.of(k=BIGINT)
    call = AggregateCall.builtin("n", "count", None, BIGINT)
    spec = WindowGroupSpec(schema, ("k",), Hopping(10, 10), BIGINT, ("k", "end"), (), ("end",), (call,))
    time = np.arange(100)

    def carried(bound: int | None, keys: Any, fresh: bool = True) -> list[tuple[int, int, int]]:
        monkeypatch.setattr(carry, "bound_of", lambda stage: bound)
        batch = Batch(pa.RecordBatch.from_arrays([pa.array(keys)], schema=schema.arrow), time, time, BEGIN)
        found = carry.Carrier(0, schema, spec.partials, PARTIALS, 0, fresh)(batch)
        return [(part.port, len(part.batch), part.counted) for part in found]

    few, many = np.zeros(100, dtype=np.int64), np.arange(100)
    assert carried(BEGIN, few) == [(PARTIALS, 10, 100)]
    assert carried(35, few) == [(0, 35, 35), (PARTIALS, 7, 65)]
    assert carried(None, few) == [(0, 100, 100)]
    assert carried(None, few, fresh=False) == [(PARTIALS, 10, 100)]
    # too many partials: rows travel for a while, then partials are tried again
    assert carried(BEGIN, many) == [(0, 100, 100)]
    tries = [carried(BEGIN, few)[0][0] for _ in range(carry.ROWS_FOR_A_WHILE + 1)]
    assert tries == [0] * carry.ROWS_FOR_A_WHILE + [PARTIALS]


def test_older_checkpoints_go_on_with_rows(spark: Any) -> None:
    """Groups of a job that was kept before they had records have none when it is resumed, so they find their state."""
    db: Any = ms.connect(spark=spark)
    db.execute(IN_ORDER)
    asked = JobQuery(db.prepare(SLIDING, "q"), db._host.inputs(Meters({}), streaming=True))

    def built(query: JobQuery) -> JobGraph:
        return GraphBuilder(streaming=True, buckets=2).build([query])

    now = KeptJob.of(built(asked), [], None)
    text = json.loads(now.text)
    fields = [part for part in parts_of(text) if "records" in part]
    assert [part.pop("records") for part in fields] == [True]
    older = KeptJob.loads(json.dumps(text), [])
    (new,), (old,) = (built(kept.resumed(asked)).stages for kept in (now, older))
    assert [partials_of(stage.stage.spec) != (None,) for stage in (new, old)] == [True, False]
    assert new.stage.signature == now.queries[0].stages[0].signature != old.stage.signature


def parts_of(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in JSON."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts_of(part)
