"""What checkpoints of every version hold: one session in a directory, one streaming query on Spark."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms
from millstream import plan_form
from millstream.catalog import Clock, StreamDef
from millstream.config import Config
from millstream.hosts.spark import stage
from millstream.kernels.saving import snapshots
from millstream.schema import Schema
from millstream.session import journal
from millstream.session.database import Database
from millstream.types import DOUBLE, INTEGER, TIMESTAMP, VARCHAR

HERE = Path(__file__).parent
CURRENT = (
    f"journal{journal.FORMAT}-state{snapshots.FORMAT}-plan{plan_form.FORMAT}-spark{stage.FORMAT}"
    f"-files{stage.FILE_FORMAT}"
)
"""The folder of the formats that this version writes."""

STREAM = "CREATE STREAM s (k int, name varchar, v int, x double, t int) ORDER BY t SLACK 2"
QUERIES = {
    "filtered": "SELECT k, v FROM s WHERE v > 3",
    "over": "SELECT k, v, sum(x) OVER (PARTITION BY k RANGE 6 PRECEDING) AS s, "
    "max(name) OVER (ROWS 3 PRECEDING) AS m FROM s",
    "ahead": "SELECT k, avg(v) OVER (PARTITION BY k ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS around FROM s",
    "tumbled": "SELECT k, sum(x) AS s, min(name) AS low, count(*) AS n, window_end FROM TUMBLE(s, t, 7) "
    "GROUP BY k, window_start, window_end",
    "sessions": "SELECT k, count(*) AS n, window_end FROM SESSION(s PARTITION BY k, t, 4) "
    "GROUP BY k, window_start, window_end",
    "programmed": "SELECT k, max_by(name, v) AS best, window_end FROM TUMBLE(s, t, 7) "
    "GROUP BY k, window_start, window_end",
    "median": "SELECT median(x) OVER (PARTITION BY k ROWS 4 PRECEDING) AS m FROM s",
    "rising": "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES first(v) AS low, last(v) AS high, "
    "count(*) AS n PATTERN (A UP+) DEFINE UP AS v > prev(v))",
    "wild": "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.v AS a, B.v AS b PATTERN (A X*? B) "
    "DEFINE A AS v > 5, B AS v < 3 AND name <> A.name) WHERE a > b",
    "grouped": "SELECT k, sum(v) AS s, max(name) AS m FROM s [RANGE 5] GROUP BY k",
    "joined": "SELECT a.k, a.v, b.name FROM s [RANGE 5] AS a LEFT JOIN s [ROWS 2] AS b ON a.k = b.k AND a.v < b.v",
    "changed": "ISTREAM (SELECT k, count(*) AS n FROM s [PARTITION BY k ROWS 3] GROUP BY k)",
    "without": "SELECT k FROM s [RANGE 6] EXCEPT SELECT v FROM s [RANGE 3]",
    "distinct": "SELECT k FROM s UNION SELECT v FROM few",
}  # fmt: skip
DEFINITIONS = f"""
{STREAM};
CREATE STREAM few AS SELECT k, v, t FROM s WHERE v < 4;
CREATE VIEW held AS SELECT k, count(*) AS n FROM s [RANGE 9] GROUP BY k;
CREATE FUNCTION twice(a INT) AS 2 * a;
"""
ROWS = [(i % 3, f"n{i * 5 % 7}", i * 7 % 11, i / 4, i + (i * 3) % 2) for i in range(1, 41)]
CHECKPOINTED, NOTED = 15, 25
"""rows of which the state is saved, and those behind them that only the journal has"""


def start(path: Path | None = None) -> Database:
    db = ms.connect(path)
    db.execute(DEFINITIONS)
    for name, text in QUERIES.items():
        db.sql(text, name=name)
    return db


def outcome(db: Database) -> dict[str, list[str]]:
    """All rows of all queries; those of relations in any order."""
    return {name: sorted(map(repr, db.query(name).fetch().to_pylist())) for name in QUERIES}


def make_embedded(folder: Path, scratch: Path) -> None:
    """The directory of a session that ended without a word, after its checkpoint and some more rows."""
    db = start(scratch)
    db.push("s", ROWS[:CHECKPOINTED])
    db.checkpoint()
    db.push("s", ROWS[CHECKPOINTED:NOTED])
    shutil.copytree(scratch, folder, ignore=shutil.ignore_patterns("lock", "tables.duckdb*"))
    db.close()


SPARK_QUERY = """
SELECT symbol, total, count(*) OVER (PARTITION BY symbol RANGE 9 SECONDS PRECEDING) AS n
FROM (SELECT symbol, sum(price) OVER (PARTITION BY symbol ROWS 3 PRECEDING) AS total FROM trades) AS t
"""
TRADES = Schema.of(symbol=VARCHAR, number=INTEGER, price=DOUBLE, ts=TIMESTAMP)


def trades(first: int, last: int) -> pa.Table:
    rows = [(f"S{i % 3}", i, i / 2, i * 1_000_000) for i in range(first, last)]
    columns = [pa.array(list(values)) for values in zip(*rows, strict=True)]
    return pa.table(columns, names=list(TRADES.names)).cast(TRADES.arrow)


def run_on_spark(spark: Any, folder: Path, checkpoint: Path) -> list[dict[str, Any]]:
    """What a streaming query delivers that reads all files of a folder, resuming from a checkpoint."""
    from millstream.hosts.spark.host import SparkHost
    from millstream.hosts.tables import TableStore

    tables = TableStore()
    host = SparkHost(spark, tables.read, buckets=1, checkpoint=str(checkpoint), trigger={"availableNow": True})
    db = Database(host, tables, Config())
    stream = StreamDef("trades", TRADES, Clock.EXTERNAL, "ts")
    db.catalog.add(stream)
    reader = spark.readStream.schema("symbol STRING, number INT, price DOUBLE, ts TIMESTAMP_NTZ")
    host.register_stream(stream, reader.parquet(str(folder)))
    query = db.sql(SPARK_QUERY, name="q")
    db.run()
    rows: list[dict[str, Any]] = query.fetch().to_pylist()
    return rows


def pack(folder: Path, target: Path, inputs: Path) -> None:
    """A checkpoint as one file; of the places that Spark notes in texts, the input's and its own may be elsewhere."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".crc":
                data = _replaced(path, {str(inputs): "@input@", str(folder): "@checkpoint@"})
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), data, zipfile.ZIP_DEFLATED)


def unpack(source: Path, folder: Path, inputs: Path) -> None:
    with zipfile.ZipFile(source) as archive:
        archive.extractall(folder)
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_bytes(_replaced(path, {"@input@": str(inputs), "@checkpoint@": str(folder)}))


def _replaced(path: Path, places: dict[str, str]) -> bytes:
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    for old, new in places.items():
        text = text.replace(old, new)
    return text.encode()


def put(folder: Path, name: str, first: int, last: int) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(trades(first, last), folder / f"{name}.parquet")
