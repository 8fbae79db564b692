"""Rows into real Iceberg tables with a SQLite catalog."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.connectors.contract import Sink
from millstream.connectors.registry import make_sink
from millstream.schema import Schema
from millstream.types import INTEGER, VARCHAR

pytest.importorskip("pyiceberg")

from pyiceberg.catalog import Catalog, load_catalog

SCHEMA = Schema.of(n=INTEGER, s=VARCHAR)
STREAM = "CREATE STREAM s (v INT, at TIMESTAMP, price DECIMAL(10, 2), tags VARCHAR[]) ORDER BY at"


def catalog(path: Path) -> Catalog:
    return load_catalog("millstream", type="sql", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}")


def content(path: Path, table: str = "a.t") -> list[dict[str, Any]]:
    found = catalog(path).load_table(table).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: next(iter(row.values())))


def options(path: Path, **more: Any) -> dict[str, Any]:
    return {"connector": "file", "format": "iceberg", "path": str(path), "table": "a.t", "retry_ms": 1, **more}


def opened(path: Path, committed: dict[str, Any], **more: Any) -> Sink:
    made = make_sink(options(path, **more), "o")
    made.open(SCHEMA, committed)
    return made


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"n": n, "s": str(n)} for n in numbers], schema=SCHEMA.arrow)


def test_a_sink_that_reopens_passes_over_what_is_there(tmp_path: Path) -> None:
    first = opened(tmp_path, {})
    first.write(batch(1, 2))
    known = first.commit()
    first.write(batch(3, 4))
    first.commit()  # the host crashed before it noted this one
    # somebody else writes to the table, and forgets old snapshots
    other = catalog(tmp_path).load_table("a.t")
    other.append(pa.Table.from_batches([batch(100)]))
    second = opened(tmp_path, known)
    second.write(batch(3))
    second.write(batch(4, 5, 6))
    second.close()
    first.write(batch(5))  # one that does not know that it is dead writes nothing twice
    first.close()
    assert [row["n"] for row in content(tmp_path)] == [1, 2, 3, 4, 5, 6, 100]
    after = second.commit()
    catalog(tmp_path).drop_table("a.t")
    with pytest.raises(ms.ConnectorError, match=r"the Iceberg table a\.t: [^\n]+$"):
        third = opened(tmp_path, after)
        third.write(batch(7))
        third.commit()
    third.release()
    opened(tmp_path, {}).close()
    with pytest.raises(ms.ConnectorError, match="has 0 rows of the query, but 6 were written"):
        third = opened(tmp_path, after)
        third.write(batch(7))
        third.commit()
    third.release()


def test_queries_write_tables(tmp_path: Path) -> None:
    at = dt.datetime(2026, 1, 1)
    with ms.connect(profile="untrusted", locations={"lake": tmp_path / "lake"}) as db:
        place = "connector = 'file', format = 'iceberg', location = 'lake', path = 'w'"
        db.execute(f"{STREAM}; CREATE SINK o WITH ({place}, table = 'a.t'); INSERT INTO o SELECT * FROM s")
        db.push("s", [(1, at, "1.50", ["x", None]), (2, at, None, None)])
        db.finish()
        for wrong, message in (
            ("table = 't'", "no namespace"),
            ("table = 'a.t', catalog = 'prod'", "its catalog there"),
            ("path2 = 'x', table = 'a.t'", "no option path2"),
        ):
            with pytest.raises(ms.ConnectorError, match=message):
                db.execute(f"CREATE SINK x WITH ({place}, {wrong})")
        for wrong, message in (
            ("SELECT v FROM s", "already has results"),
            ("SELECT at - at AS a FROM s", "no type for a"),
        ):
            with pytest.raises(ms.ConnectorError, match=message):
                db.execute(f"INSERT INTO o {wrong}")
    found = content(tmp_path / "lake" / "w")
    assert [(row["v"], row["at"], row["tags"]) for row in found] == [(1, at, ["x", None]), (2, at, None)]
    opened(tmp_path / "lake" / "w", {}, append=True).release()
    again = opened(tmp_path / "lake" / "w", {}, overwrite=True)
    again.write(batch(9))
    again.close()
    assert content(tmp_path / "lake" / "w") == [{"n": 9, "s": "9"}]
