"""Looking at running operators: figures, the rows that pass them, and copies that are stepped row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.connectors.rows import to_batch
from millstream.hosts.embedded import inspection

SUMS = "SELECT s, count(*) AS n, sum(v) AS total FROM TUMBLE(a, t, 10) WHERE v > 1 GROUP BY s, window_end"
ROWS = [("x", 2, 1), ("x", 3, 4), ("y", 1, 5)]
LATER = [("x", 7, 9), ("y", 5, 12), ("y", 5, 25)]


@pytest.fixture
def db() -> Any:
    with ms.connect() as db:
        db.execute("CREATE STREAM a (s VARCHAR, v INT, t INT) ORDER BY t")
        yield db


def given(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    with ms.connect() as other:
        other.execute("CREATE STREAM a (s VARCHAR, v INT, t INT) ORDER BY t")
        return to_batch(list(rows), other.catalog.find("a").given, "a")[0]


def listed(passed: dict[str, pa.Table]) -> dict[str, list[dict[str, Any]]]:
    return {id: rows.to_pylist() for id, rows in passed.items()}


def test_operators_have_figures(db: ms.Database) -> None:
    db.sql(SUMS, name="sums")
    db.sql("SELECT s FROM a WHERE v > 100", name="none")
    db.push("a", ROWS)
    found = db.inspector.operators("sums")
    assert [(each.label.split()[0], each.rows) for each in found] == [
        ("Stream", 3), ("Source", 3), ("Compute", 2), ("count(*),", 0), ("Compute", 0),
    ]  # fmt: skip
    assert found[0].queries == 2 and found[2].queries == 1
    assert found[3].state is not None and found[3].state > 0 and found[2].state is None
    assert found[3].seconds > 0 and (found[3].upto, found[3].behind) == (5, 0)
    assert [each.inputs for each in found[:2]] == [(), ("a",)]
    assert len(db.inspector.operators()) > len(found)


def test_streams_have_figures() -> None:
    with ms.connect() as db:
        db.execute("CREATE STREAM a (s VARCHAR, v INT, t INT) ORDER BY t SLACK 10 KEEP 1000 ROWS")
        db.push("a", [("x", 1, 20), ("x", 1, 30), ("x", 1, 5), ("x", "no", 31)])
        told = db.inspector.stream("a")
        assert (told.counts.accepted, told.counts.late, told.counts.rejected) == (2, 1, 1)
        assert (told.latest, told.upto, told.waiting, told.kept) == (30, 20, 1, 1)


def test_rows_are_seen_while_somebody_looks(db: ms.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.sql(SUMS, name="sums")
    db.push("a", ROWS)
    assert db.inspector.peek("2").num_rows == 0
    db.push("a", LATER)
    assert db.inspector.peek("2").column("v").to_pylist() == [7, 5, 5]
    for at in range(300):
        db.push("a", [("z", at, 100)])
    assert db.inspector.peek("2").num_rows == inspection.PEEK_ROWS
    now = [0.0]
    monkeypatch.setattr(inspection.time, "monotonic", lambda: 1e9 + now[0])
    assert db.inspector.peek("2").num_rows == 0  # nobody had looked for long
    now[0] = 2 * inspection.PEEK_SECONDS
    db.push("a", [("z", 9, 100)])  # now nothing is kept any more
    assert db.inspector.peek("2").num_rows == 0


def test_late_and_rejected_rows_are_seen(db: ms.Database) -> None:
    db.push("a", ROWS)
    assert db.inspector.peek("late(a)").num_rows == db.inspector.peek("errors(a)").num_rows == 0
    db.push("a", [("x", 1, 1), ("x", "no number", 50)])
    assert db.inspector.peek("late(a)").to_pylist() == [{"s": "x", "v": 1, "t": 1}]
    assert "no number" in db.inspector.peek("errors(a)").to_pylist()[0]["error"]


def test_relations_are_told_with_both_ends(db: ms.Database) -> None:
    db.sql("SELECT s, count(*) AS n FROM a [RANGE 5] GROUP BY s", name="busy")
    window = next(each.id for each in db.inspector.operators("busy") if each.label.startswith("window"))
    db.inspector.peek(window)
    db.push("a", ROWS)
    assert db.inspector.peek(window).to_pylist()[0] == {"(from)": 1, "(until)": 6, "s": "x"}


def test_a_copy_takes_rows_one_by_one_and_the_query_notices_nothing(db: ms.Database) -> None:
    query = db.sql(SUMS, name="sums")
    db.push("a", ROWS)
    copy = db.inspector.copy("sums")
    assert copy.step() == {} and copy.waiting == 0
    db.push("a", LATER)
    assert query.fetch().to_pylist() == [{"s": "x", "n": 3, "total": 12}, {"s": "y", "n": 1, "total": 5}]
    assert copy.waiting == 3
    assert listed(copy.step())["a"] == [{"s": "x", "v": 7, "t": 9}]
    top = db.inspector.operators("sums")[-1].id
    # the state was copied: both rows from before are counted
    assert listed(copy.step())[top] == [{"s": "x", "n": 3, "total": 12}]
    assert listed(copy.push("a", given(("y", 9, 17)))).get(top) is None
    assert listed(copy.step())[top] == [{"s": "y", "n": 2, "total": 14}]
    assert copy.waiting == 0 and query.fetch().num_rows == 0
    with pytest.raises(ms.DataError, match="late"):
        copy.push("a", given(("y", 9, 1)))
    with pytest.raises(ms.CatalogError, match="does not read stream b"):
        copy.push("b", given())


def test_a_copy_of_a_join_and_of_a_paused_query(db: ms.Database) -> None:
    db.execute("CREATE STREAM b (s VARCHAR, w INT, t INT) ORDER BY t")
    db.sql("SELECT a.s, v, w FROM a [RANGE 100], b [RANGE 100] WHERE a.s = b.s", name="both")
    db.push("a", [("x", 1, 1)])
    db.push("b", [("x", 2, 1)])
    db.query("both").pause()
    copy = db.inspector.copy("both")
    db.push("b", [("x", 3, 2)])
    db.push("a", [("x", 4, 2)])
    found = []
    top = db.inspector.operators("both")[-1].id
    while copy.waiting:
        found += listed(copy.step()).get(top, [])
    assert {(row["v"], row["w"]) for row in found} >= {(1, 3), (4, 2), (4, 3)}
    assert db.query("both").state == "paused"


def test_a_copy_that_nobody_steps_is_bounded(db: ms.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "COPY_ROWS", 5)
    db.sql(SUMS, name="sums")
    copy = db.inspector.copy("sums")
    db.push("a", ROWS)
    db.push("a", LATER)
    assert copy.waiting == 5 and copy.has_missed
    copy.close()
    db.push("a", [("x", 1, 30)])
    assert copy.waiting == 5


def test_what_is_not_there(db: ms.Database) -> None:
    with pytest.raises(ms.CatalogError, match="no operator 99"):
        db.inspector.peek("99")
    with pytest.raises(ms.CatalogError, match="not running"):
        db.inspector.operators("nothing")
