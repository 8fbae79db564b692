"""Queries over events that follow each other, in sessions that are closed and opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import CatalogError, MillstreamError

STREAM = "CREATE STREAM s (k VARCHAR, v INT, t BIGINT) ORDER BY t"
ROWS = [("a", 1, 1), ("b", 5, 2), ("a", 2, 3), ("a", 3, 3), ("b", 4, 4), ("a", 9, 5), ("b", 7, 6), ("a", 1, 7)]
PUBLISHED = "SELECT k, v AS low FROM FILTER{v < 5}(s) PUBLISH lows"
RISES = "SELECT k_1, v_1, v, n FROM (SELECT *, 1 AS n FROM s) FOLD{$2.k = $.k, $2.v > $.v, $.n + 1 AS n} s"
AFTER = "SELECT low, v FROM lows NEXT{$2.k = $1.k AND $2.v > $1.low} s"


def whole() -> list[list[dict[str, object]]]:
    with ms.connect() as db:
        db.execute(f"{STREAM}; {PUBLISHED}")
        queries = [db.sql(RISES), db.sql(AFTER)]
        db.push("s", ROWS)
        db.finish()
        return [query.fetch().to_pylist() for query in queries]


@pytest.mark.parametrize("cut", range(1, len(ROWS)))
def test_instances_survive_a_restart(tmp_path: Path, cut: int) -> None:
    with ms.connect(tmp_path / "db") as db:
        db.execute(f"{STREAM}; {PUBLISHED}")
        queries = [db.sql(RISES, name="rises"), db.sql(AFTER, name="after")]
        db.push("s", ROWS[:cut])
        found = [query.fetch().to_pylist() for query in queries]
    with ms.connect(tmp_path / "db") as db:
        queries = [db.query("rises"), db.query("after")]
        db.push("s", ROWS[cut:])
        db.finish()
        found = [rows + query.fetch().to_pylist() for rows, query in zip(found, queries, strict=True)]
    assert found == whole()
    assert all(found)


def test_published_streams_are_dropped_and_made_all_or_none() -> None:
    with ms.connect() as db:
        db.execute(STREAM)
        with pytest.raises(MillstreamError, match="already exists"):
            db.execute("SELECT low FROM (SELECT v AS low FROM s PUBLISH lows) NEXT s PUBLISH s")
        with pytest.raises(MillstreamError, match="no stream or table lows"):
            db.sql("SELECT low FROM lows")
        query = db.sql(PUBLISHED, name="q")
        with pytest.raises(CatalogError):
            db.execute(PUBLISHED)
        db.push("s", ROWS[:1])
        assert query.fetch().to_pylist() == [{"k": "a", "low": 1}]
        query.stop()
        db.execute("DROP STREAM lows")


def test_matches_and_relations_feed_next() -> None:
    """NEXT reads matches of row patterns, events of relations and derived streams; windows read what it finds."""
    with ms.connect() as db:
        db.execute(f"{STREAM}; CREATE STREAM big AS SELECT k, v AS w FROM s WHERE v > 3")
        after_match = db.sql("""
            SELECT top, w FROM (SELECT * FROM s MATCH_RECOGNIZE (
                PARTITION BY k ORDER BY t MEASURES LAST(UP.v) AS top PATTERN (A UP+) DEFINE UP AS v > PREV(v)))
            NEXT (SELECT w FROM big)""")
        of_relation = db.sql("""
            SELECT n, v FROM (SELECT ISTREAM(count(*) AS n) FROM s [RANGE 2]) NEXT{$2.v > $1.n} (SELECT v FROM s)""")
        windowed = db.sql("SELECT count(*) AS n FROM (SELECT v FROM s NEXT{$1.k = $2.k} s) [RANGE 3]")
        # the rise of a is certain to be over at 7
        db.push("s", [*ROWS, ("b", 8, 8)])
        db.finish()
        found = after_match.fetch().to_pylist()
        assert found == [{"top": 9, "w": 8, "event_start": 7, "event_end": 8}]
        assert {row["v"] > row["n"] for row in of_relation.fetch().to_pylist()} == {True}
        assert windowed.fetch().num_rows > 0
