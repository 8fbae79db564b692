"""Streaming queries on Spark give the in-process rows, however they are cut, restarted, killed and rescaled."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kill_runs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_cases import SECOND, as_rows, stepwise

import millstream as ms
from millstream.catalog import StreamDef
from millstream.config import Config
from millstream.errors import StateError
from millstream.hosts.spark.host import SparkHost
from millstream.hosts.spark.sources import FILES_PER_TRIGGER
from millstream.hosts.tables import TableStore
from millstream.session.database import Database
from millstream.spark import Millstream
from tiers import THOROUGH

pytestmark = pytest.mark.spark

CASES = int(os.environ.get("MILLSTREAM_EXACTNESS_CASES", "3"))
"""How many random cases are tried."""

LAST = -1
"""The number of rows that only let time pass."""

COLUMNS = "(number BIGINT, symbol VARCHAR, venue VARCHAR, price DOUBLE, ts TIMESTAMP) ORDER BY ts SLACK 3 SECONDS"

ONE_KERNEL = """
SELECT number, symbol, ts, sum(price) OVER (PARTITION BY symbol RANGE 10 SECONDS PRECEDING) AS total,
       min(price) OVER (PARTITION BY symbol ROWS 2 PRECEDING) AS low,
       count(*) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING) AS n
FROM trades
"""
TWO_KERNELS = """
SELECT number, ts, total, sum(total) OVER (PARTITION BY {key} RANGE 4 SECONDS PRECEDING) AS again,
       max(number) OVER (PARTITION BY {key} ROWS 2 PRECEDING) AS last
FROM (
    SELECT number, symbol, venue, ts, sum(price) OVER (PARTITION BY symbol ROWS 3 PRECEDING) AS total FROM trades
) AS t
WHERE total IS NOT NULL
"""
SHAPES = {
    "one kernel": ONE_KERNEL,
    "two exchanges": TWO_KERNELS.format(key="venue"),
    "fused": TWO_KERNELS.format(key="symbol"),
    "union": """
        SELECT number, symbol, ts, count(*) OVER (PARTITION BY symbol ROWS UNBOUNDED PRECEDING) AS n,
               sum(price) OVER (PARTITION BY symbol RANGE 5 SECONDS PRECEDING) AS total
        FROM (SELECT * FROM trades UNION ALL SELECT * FROM others) AS both_streams
    """,
    "distinct": "SELECT number, venue, ts FROM trades WHERE price > 20 UNION SELECT number, venue, ts FROM others",
}
RELATIONS = {
    "relation of pairs": """
        SELECT trades.symbol, trades.number AS a, others.number AS b
        FROM trades [RANGE 3 SECONDS] LEFT JOIN others [RANGE 2 SECONDS] ON trades.symbol = others.symbol
    """,
    "groups of a sliding window": """
        SELECT symbol, count(*) AS n, sum(price) AS total, max(price) AS high, count(DISTINCT venue) AS venues
        FROM trades [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY symbol
    """,
    "what the last rows changed": """
        SELECT ISTREAM(symbol, count(venue)) FROM trades [PARTITION BY symbol ROWS 2] GROUP BY symbol
    """,
    "groups that are joined": """
        SELECT t.symbol, t.venue, t.window_start, n
        FROM (SELECT symbol, venue, window_start, window_end FROM TUMBLE(trades, ts, 4 SECONDS)
              GROUP BY symbol, venue, window_start, window_end) AS t
        JOIN (SELECT symbol, window_start, window_end, count(*) AS n FROM TUMBLE(others, ts, 4 SECONDS)
              GROUP BY symbol, window_start, window_end) AS o
        ON t.symbol = o.symbol AND t.window_start = o.window_start AND t.window_end = o.window_end
    """,
    "what one has and the other has not": """
        SELECT symbol, venue FROM trades [RANGE 5 SECONDS] EXCEPT ALL SELECT symbol, venue FROM others [RANGE 5 SECONDS]
    """,
}
"""Queries over relations; their rows begin with the symbol."""

ALL = 1000
"""More files than there are."""

Row = tuple[Any, ...]


def random_rows(draw: np.random.Generator, count: int, first: int, ties: bool) -> list[Row]:
    """Rows out of order by less than the slack, with NULL keys and values; the last one only lets time pass."""
    step = SECOND // 2
    order = np.arange(count) // 3 * 3 if ties else np.arange(count)
    times = 100 * SECOND + order * step - draw.integers(0, 5 if ties else 1, count) * step
    if not ties:
        times = times[np.argsort(order + draw.uniform(0, 5, count))]
    rows = [
        (
            first + i,
            None if draw.random() < 0.1 else f"S{draw.integers(5)}",
            None if draw.random() < 0.1 else f"V{draw.integers(3)}",
            None if draw.random() < 0.1 else float(draw.integers(100)),
            int(times[i]),
        )
        for i in range(count)
    ]
    return [*rows, (LAST, "end", "end", 1.0, int(times.max()) + 3600 * SECOND)]


def as_table(rows: list[Row]) -> pa.Table:
    names = ["number", "symbol", "venue", "price", "ts"]
    types = [pa.int64(), pa.string(), pa.string(), pa.float64(), pa.timestamp("us")]
    columns = [pa.array(list(values), type_) for values, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.table(columns, names=names)


@dataclass
class Files:
    """A stream's rows, cut into files that are put into a folder one after the other."""

    folder: Path
    rows: list[Row]
    cuts: list[int]
    written: int = 0

    def put(self, upto: int) -> None:
        self.folder.mkdir(exist_ok=True)
        places = [0, *self.cuts, len(self.rows)]
        for number in range(self.written, min(upto, len(places) - 1)):
            path = self.folder / f"{number:03d}.parquet"
            pq.write_table(as_table(self.rows[places[number] : places[number + 1]]), path)
            os.utime(path, (number, number))
            self.written = number + 1


@dataclass
class Case:
    """A query, its input and how it runs, all random."""

    seed: int
    folder: Path
    spark: Any
    shape: str = ""
    streams: dict[str, Files] = field(default_factory=dict)
    config: Config = field(default_factory=Config)

    def __post_init__(self) -> None:
        rng, draw = random.Random(self.seed), np.random.default_rng(self.seed)
        self.shape = self.shape or list(SHAPES)[self.seed % len(SHAPES)]
        self.text = {**SHAPES, **RELATIONS}[self.shape]
        self.buckets = rng.randint(1, 5)
        self.registered = rng.random() < 0.5
        # which of several files of one micro-batch came first is not known, so then no two rows have the same time
        self.per_trigger = rng.choice([1, 1, 2])
        for number, name in enumerate(("trades", "others") if "others" in self.text else ("trades",)):
            rows = random_rows(draw, 60, number * 1000, ties=self.per_trigger == 1)
            cuts = sorted(rng.sample(range(1, 60), rng.randint(2, 4)))
            self.streams[name] = Files(self.folder / name, rows, cuts)
        # both streams go on after it: Spark forgets at a restart how far a stream that brings no more rows had come
        self.restart = rng.randint(1, min(len(stream.cuts) for stream in self.streams.values()))

    def __str__(self) -> str:
        source = "registered" if self.registered else "declared"
        return (
            f"{self.shape}, {source}, {self.buckets} buckets, restart at {self.restart}, {self.per_trigger} a trigger"
        )

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def in_process(self) -> list[Row]:
        db = ms.connect()
        for name in self.streams:
            db.execute(f"CREATE STREAM {name} {COLUMNS}")
        query = db.sql(self.text)
        for name, stream in self.streams.items():
            db.push(name, as_table(stream.rows))
        db.finish()
        return [row for row in as_rows(query.fetch()) if row[0] not in (LAST, "end")]

    def run(self, text: str | None = None) -> list[Row]:
        """A new session resumes the query and reads all files that are there."""
        self.spark.conf.set(FILES_PER_TRIGGER, str(self.per_trigger))
        tables = TableStore()
        host = SparkHost(
            self.spark,
            tables.read,
            buckets=self.buckets,
            checkpoint=str(self.checkpoint),
            trigger={"availableNow": True},
            follow=True,
        )
        db = Database(host, tables, self.config)
        for name, stream in self.streams.items():
            source = f"connector = 'file', path = '{stream.folder}', format = 'parquet'"
            db.execute(f"CREATE STREAM {name} {COLUMNS} WITH ({source})")
            if self.registered:
                reader = self.spark.readStream.schema(
                    "number BIGINT, symbol STRING, venue STRING, price DOUBLE, ts TIMESTAMP_NTZ"
                )
                df = reader.option("maxFilesPerTrigger", self.per_trigger).parquet(str(stream.folder))
                host.register_stream(db.catalog.get(name, StreamDef), df)
        query = db.sql(text or self.text, name="q")
        db.run()
        return as_rows(query.fetch())

    def put(self, upto: int) -> None:
        for stream in self.streams.values():
            stream.put(upto)


@pytest.fixture
def settings(spark: Any) -> Iterator[Callable[[str, str], None]]:
    """Sets something for the session until the test ends."""
    before: dict[str, str | None] = {}

    def set_(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield set_
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.fixture
def case_of(spark: Any, tmp_path: Path, settings: Callable[[str, str], None]) -> Callable[..., Case]:
    settings(FILES_PER_TRIGGER, "1")
    return lambda seed, **more: Case(seed, tmp_path, spark, **more)


@pytest.mark.parametrize("seed", range(CASES))
def test_any_micro_batches_buckets_and_restart_give_the_same_rows(case_of: Callable[..., Case], seed: int) -> None:
    case = case_of(seed)
    expected = case.in_process()
    case.put(case.restart)
    delivered = case.run()
    case.put(ALL)
    delivered += case.run()
    assert delivered == expected, str(case)
    assert len(expected) >= 40


@pytest.mark.parametrize("shape", RELATIONS)
def test_relations_give_the_same_rows(case_of: Callable[..., Case], shape: str) -> None:
    case = case_of(len(shape), shape=shape)
    expected = case.in_process()
    case.put(case.restart)
    delivered = case.run()
    case.put(ALL)
    delivered += [row for row in case.run() if row[0] != "end"]
    assert sorted(delivered, key=str) == sorted(expected, key=str), str(case)
    assert len(expected) >= 10


@stepwise
def test_another_query_is_refused_and_the_right_one_goes_on(case_of: Callable[..., Case]) -> None:
    case = case_of(3, shape="union")
    expected = case.in_process()
    case.put(1)
    delivered = case.run()
    case.put(2)
    another_window = SHAPES["union"].replace("5 SECONDS", "6 SECONDS")
    a_stage_more = f"SELECT number, ts, sum(n) OVER (RANGE 4 SECONDS PRECEDING) AS again FROM ({SHAPES['union']}) AS t"
    an_input_less = ONE_KERNEL
    for other in (another_window, a_stage_more, an_input_less):
        with pytest.raises(StateError, match="the checkpoint belongs to another query") as refused:
            case.run(other)
        assert refused.value.hint == "start with a new checkpoint directory"
        # what differs: what a stage keeps, or how many follow one another
        assert re.search("stage |2 exchanges .* the checkpoint has 1", str(refused.value.detail))
    case.put(ALL)
    assert delivered + case.run() == expected


EDITS: dict[str, Callable[[str], str]] = {
    "a comment": lambda text: f"/* what it is for */ {text} -- and how",
    "another alias": lambda text: text.replace("total", "subtotal").replace(" AS t", " AS u").replace("again", "more"),
    "one more column": lambda text: text.replace(" AS last", " AS last, number + 1 AS next"),
}


@pytest.mark.parametrize("shape", ["two exchanges", "fused"])
def test_an_edited_query_goes_on(case_of: Callable[..., Case], shape: str) -> None:
    case = case_of(3, shape=shape)
    case.put(1)
    delivered, width = case.run(), 5
    assert {len(row) for row in delivered} <= {width}
    for number, edit in enumerate(EDITS.values(), 2):
        assert edit(case.text) != case.text
        case.put(ALL if number == len(EDITS) + 1 else number)
        last = case.run(edit(case.text))
        delivered += last
    assert {len(row) for row in last} == {width + 1}
    assert [row[:width] for row in delivered] == case.in_process()


def test_other_settings_go_on_with_the_plan_that_ran(case_of: Callable[..., Case]) -> None:
    case = case_of(0, shape="groups of a sliding window")
    expected = case.in_process()
    case.put(1)
    delivered = case.run()
    case.put(ALL)
    case.config = Config().with_setting("rules", False).with_setting("relations", "changes")
    assert sorted(delivered + case.run(), key=repr) == sorted(expected, key=repr)


@stepwise
def test_a_checkpoint_goes_on_with_more_tasks(
    case_of: Callable[..., Case], settings: Callable[[str, str], None], spark: Any
) -> None:
    settings("spark.millstream.state", "variables")
    case = case_of(3, shape="two exchanges")
    case.buckets = 4
    m = Millstream(spark)
    with pytest.raises(StateError, match="no checkpoint of a streaming query"):
        m.rescale(str(case.checkpoint / "job"), 3)
    expected = case.in_process()
    case.put(2)
    delivered = case.run()
    assert tasks_of(case) == {"0", "1"}
    # another number of tasks in the session alone changes nothing
    settings("spark.sql.shuffle.partitions", "5")
    case.put(3)
    delivered += case.run()
    assert tasks_of(case) == {"0", "1"}
    m.rescale(str(case.checkpoint / "job"), 3)
    m.rescale(str(case.checkpoint / "job"), 3)
    assert tasks_of(case) == {"0", "1", "2"}
    case.put(ALL)
    assert delivered + case.run() == expected
    with pytest.raises(StateError, match="cannot be split over 0 tasks"):
        m.rescale(str(case.checkpoint / "job"), 0)
    (case.checkpoint / "job/commits" / max(kill_runs.names(case.checkpoint / "job/commits"), key=int)).unlink()
    with pytest.raises(StateError, match=r"last micro-batch in .* is not complete"):
        m.rescale(str(case.checkpoint / "job"), 2)


@stepwise
def test_a_running_query_is_not_rescaled(spark: Any, tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    rows = spark.readStream.format("rate").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(place)).start()
    try:
        with pytest.raises(StateError, match="is running"):
            Millstream(spark).rescale(str(place), 3)
    finally:
        query.stop()


def tasks_of(case: Case) -> set[str]:
    """The tasks that the state in a checkpoint is divided over."""
    return {path.name for path in (case.checkpoint / "job/state/0").iterdir() if path.name.isdigit()}


@stepwise
@pytest.mark.slow
def test_a_killed_driver_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rng = random.Random(1)
    difference, rows = kill_runs.run_job(tmp_path, ["writing", "moving"] if THOROUGH else ["writing"], rng, files=4)
    assert difference == kill_runs.Difference(lost=0, doubled=0, wrong=0) and rows == 40


@stepwise
@pytest.mark.slow
def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    rng = random.Random(2)
    kill_runs.write_input(tmp_path, files=5, rows=20, rng=rng)
    kill_runs.finish(tmp_path, during=lambda driver: kill_runs.kill_workers(tmp_path, driver, rng))
    assert "Lost task" in (tmp_path / "log").read_text(), "no task met the kill"
    assert kill_runs.written(tmp_path) == kill_runs.in_process(tmp_path)
