"""Rows into real Delta tables."""

from __future__ import annotations

import datetime as dt
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.connectors.contract import Sink
from millstream.connectors.registry import make_sink
from millstream.schema import Schema
from millstream.types import INTEGER, VARCHAR

deltalake = pytest.importorskip("deltalake")

STREAM = "CREATE STREAM s (v INT, at TIMESTAMP, tags VARCHAR[], price DECIMAL(10, 2)) ORDER BY at"
SCHEMA = Schema.of(n=INTEGER, s=VARCHAR)
START = dt.datetime(2024, 1, 1)


def sink(path: object, more: str = "") -> str:
    return f"CREATE SINK o WITH (connector = 'file', format = 'delta', path = '{path}', retry_ms = 1{more})"


def rows(first: int, last: int) -> list[tuple[Any, ...]]:
    return [(n, START + dt.timedelta(seconds=n), [str(n), None], n / 4) for n in range(first, last)]


def content(path: object) -> list[dict[str, Any]]:
    found = pa.table(deltalake.DeltaTable(str(path)).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: row.get("v", row.get("n")))


def opened(path: Path, committed: dict[str, Any]) -> Sink:
    made = make_sink({"connector": "file", "format": "delta", "path": str(path), "retry_ms": 1}, "o")
    made.open(SCHEMA, committed)
    return made


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": n, "s": str(n)} for n in numbers], schema=SCHEMA.arrow)


def test_rows_once_whatever_happens(tmp_path: Path) -> None:
    table = tmp_path / "table"
    db = ms.connect(tmp_path / "0", checkpoint_seconds=3600)
    db.execute(f"{STREAM}; {sink(table, ', batch_rows = 4, flush_ms = 1')}; INSERT INTO o SELECT * FROM s")
    for turn in range(5):
        db.push("s", rows(10 * turn, 10 * turn + 6))
        if turn % 2:
            db.checkpoint()
        db.push("s", rows(10 * turn + 6, 10 * turn + 10))
        time.sleep(0.05)
        # the process dies here: what it has on disk is all that is left
        shutil.copytree(tmp_path / str(turn), tmp_path / str(turn + 1))
        dead, db = db, ms.connect(tmp_path / str(turn + 1), checkpoint_seconds=3600)
        dead.close()
    db.finish()
    db.close()
    wanted = [dict(zip(("v", "at", "tags", "price"), row, strict=True)) for row in rows(0, 50)]
    found = content(table)
    assert [{**row, "price": float(row["price"])} for row in found] == wanted


def test_a_sink_that_reopens_passes_over_what_is_there(tmp_path: Path) -> None:
    first = opened(tmp_path / "t", {})
    first.write(batch(1, 2))
    known = first.commit()
    first.write(batch(3, 4))
    first.commit()  # the host crashed before it noted this one
    second = opened(tmp_path / "t", known)
    second.write(batch(3))
    second.write(batch(4, 5, 6))
    second.close()
    first.write(batch(5))  # one that does not know that it is dead writes nothing twice
    first.close()
    assert [row["n"] for row in content(tmp_path / "t")] == [1, 2, 3, 4, 5, 6]
    after = second.commit()
    shutil.rmtree(tmp_path / "t")
    for message in (r"cannot write to the Delta table \S+: [^\n]+$", "has 0 rows of the query, but 6 were written"):
        third = opened(tmp_path / "t", after)
        third.write(batch(7))
        with pytest.raises(ms.ConnectorError, match=message):
            third.commit()
        third.release()
        opened(tmp_path / "t", {}).close()


def test_tables_that_are_there(tmp_path: Path) -> None:
    """They are refused, added to, or replaced, as files are; others may write at the same time."""
    path = tmp_path / "t"
    deltalake.write_deltalake(str(path), pa.table({"v": pa.array([100], pa.int32())}))

    def write(more: str, query: str = "SELECT v FROM s") -> None:
        with ms.connect() as db:
            db.execute(f"{STREAM}; {sink(path, more)}; INSERT INTO o {query}")
            deltalake.DeltaTable(str(path)).optimize.compact()
            db.push("s", rows(0, 3))
            db.finish()
            db.queries()[0].fetch()

    with pytest.raises(ms.ConnectorError, match="already has results"):
        write("")
    write(", append = true")
    assert [row["v"] for row in content(path)] == [0, 1, 2, 100]
    with pytest.raises(ms.ConnectorError, match=r"cannot write to the Delta table \S+: [^\n]*$"):
        write(", append = true", "SELECT v, tags FROM s")
    assert len(content(path)) == 4
    write(", overwrite = true", "SELECT v, price FROM s")
    assert [(row["v"], float(row["price"])) for row in content(path)] == [(0, 0.0), (1, 0.25), (2, 0.5)]


def test_urls_locations_and_what_is_wrong(tmp_path: Path) -> None:
    with ms.connect(profile="untrusted", locations={"out": tmp_path / "out"}) as db:
        db.execute(f"{STREAM}; {sink('deep/t', ', location = ' + repr('out'))}; INSERT INTO o SELECT v FROM s")
        db.push("s", rows(0, 2))
        db.finish()
        for options in (f"path = '{tmp_path}/t'", "path = 's3://bucket/t'", "location = 'out', path = '../t'"):
            with pytest.raises(ms.MillstreamError):
                db.execute(f"CREATE SINK x WITH (connector = 'file', format = 'delta', {options})")
    assert [row["v"] for row in content(tmp_path / "out" / "deep" / "t")] == [0, 1]
    with ms.connect() as db:
        db.execute(f"{STREAM}; {sink(f'file://{tmp_path}/url')}; INSERT INTO o SELECT v FROM s")
        db.push("s", rows(0, 2))
        db.finish()
        assert len(content(tmp_path / "url")) == 2
        db.execute("CREATE SINK p WITH (connector = 'file', format = 'delta', path = '/dev/null/x')")
        for query, message in (
            ("SELECT v FROM s", "cannot write to"),
            ("SELECT at - at AS a FROM s", "no type for a INT"),
        ):
            with pytest.raises(ms.ConnectorError, match=message):
                db.execute(f"INSERT INTO p {query}")
        with pytest.raises(ms.ConnectorError, match="no option delimiter"):
            db.execute("CREATE SINK d WITH (connector = 'file', format = 'delta', path = 'x', delimiter = ';')")
