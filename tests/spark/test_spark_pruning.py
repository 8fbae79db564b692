"""Declared files on Spark: values in paths, and only what a query wants is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.hosts.contract import Progress

pytestmark = pytest.mark.spark

COLUMNS = "region VARCHAR, day DATE, k INTEGER, v DOUBLE, spare BIGINT, ts TIMESTAMP"


def write(base: Path) -> None:
    second = 1_000_000
    for i, region in enumerate(("eu", "n%2F%C3%B6 漢", "__HIVE_DEFAULT_PARTITION__")):
        for day in (1, 2):
            folder = base / f"region={region}" / f"day=2024-05-0{day}"
            folder.mkdir(parents=True)
            at = [((day - 1) * 86_400 + 10 * n + i) * second for n in range(12)]
            at[5] = None if region == "eu" else at[5]
            columns = {
                "k": pa.array([n // 3 for n in range(12)], pa.int32()),
                "v": pa.array([None if n % 5 == 2 else n + i / 2 for n in range(12)]),
                "spare": pa.array(range(12), pa.int64()),
                "ts": pa.array(at, pa.int64()).view(pa.timestamp("us")),
            }
            pq.write_table(pa.table(columns), folder / "part.parquet", row_group_size=3)
    odd = base / "region=eu" / "day=sometime"
    odd.mkdir()
    (odd / "x.csv").write_text("k,v,spare,ts\n1,2,3,1970-01-01 00:00:07\n")
    (base / "region=eu" / "day=2024-05-01" / "y.csv").write_text("k,v,spare,ts\n1,2,3,1970-01-01 00:00:08\n1,2,x,\n")


QUERIES = {
    "path": "SELECT region, k, v FROM s WHERE region = 'eu' AND day < '2024-05-02'",
    "nowhere": "SELECT k FROM s WHERE region IS NULL AND day > '2025-01-01'",
    "escaped": "SELECT day, v FROM s WHERE region LIKE '%ö%'",
    "groups": "SELECT region, v FROM s WHERE k >= 3 AND v < 100",
    "time": "SELECT k FROM s WHERE ts < TIMESTAMP '1970-01-01 00:00:20'",
    "over": "SELECT k, sum(v) OVER (PARTITION BY k RANGE 9 SECONDS PRECEDING) t FROM s WHERE region = 'eu' AND k > 1",
    "both": "SELECT v FROM s WHERE k = 0 UNION ALL SELECT v FROM s WHERE k = 3",
    "all": "SELECT region, day, k, v, spare, ts FROM s",
    "errors": "SELECT error FROM errors(s)",
}  # fmt: skip


def declare(db: Any, path: Path, more: str = "") -> None:
    db.execute(
        f"CREATE STREAM s ({COLUMNS}) ORDER BY ts SLACK 10 DAYS WITH (connector = 'file', path = '{path}'{more})"
    )


def answers(db: Any, path: Path) -> dict[str, list[str]]:
    declare(db, path)
    queries = {name: db.sql(text) for name, text in QUERIES.items()}
    return {name: sorted(map(str, query.arrow().to_pylist())) for name, query in queries.items()}


def test_both_hosts_give_the_same_rows(spark: Any, tmp_path: Path) -> None:
    write(tmp_path)
    expected = answers(ms.connect(), tmp_path)
    assert len(expected["path"]) == 12 and len(expected["errors"]) == 4 and len(expected["all"]) == 71
    assert answers(ms.connect(spark=spark), tmp_path) == expected


@pytest.mark.parametrize(
    ("where", "read", "rejected"),
    [
        ("", 71, 4),
        # of the other files, that with a bad value in its path is read, as no row of it is known
        ("WHERE region = 'eu' AND day < '2024-05-02'", 12, 3),
        # row groups with a row to refuse are read, and so is text
        ("WHERE k = 3", 4 * 3 + 2 * 3 + 2 * 2 + 1, 4),
        ("WHERE CAST(k AS VARCHAR) = '3'", 71, 4),
    ],
)
def test_only_what_is_wanted_is_read(spark: Any, tmp_path: Path, where: str, read: int, rejected: int) -> None:
    write(tmp_path)
    db = ms.connect(spark=spark)
    declare(db, tmp_path)
    query = db.sql(f"SELECT v FROM s {where}")
    told: list[Progress] = []
    db.run(query.name, report=told.append)
    assert told[-1].rows_in == {"s": read} and told[-1].rejected == rejected


def test_followed_directories_give_values(spark: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in box"
    write(inbox)
    db = ms.connect()
    declare(db, inbox)
    expected = db.sql(QUERIES["all"]).arrow().to_pylist()
    host = ms.connect(spark=spark)
    declare(host, inbox, ", follow = true")
    program = host.prepare(QUERIES["all"])
    spark_host = host._host
    spark_host.start(program)
    query = spark_host.start_streaming(program, str(tmp_path / "check"), {"availableNow": True})
    query.awaitTermination()
    assert sorted(map(str, spark_host.fetch(program.name).to_pylist())) == sorted(map(str, expected))
