"""Readers of results on Spark, and what push tells there: the same as in-process, as far as a batch job allows."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import millstream as ms

pytestmark = pytest.mark.spark


def values(batches: Any) -> list[Any]:
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def test_readers_get_all_rows_and_push_tells_what_is_late(spark: Any) -> None:
    with ms.connect(spark=spark) as db:
        db.execute("CREATE STREAM s (v INT, t INT) ORDER BY t SLACK 2")
        query, late = db.sql("SELECT v FROM s WHERE v > 1"), db.sql("SELECT v FROM LATE(s)")
        one, two = query.subscribe(), query.subscribe(buffer=1, when_full="drop")
        seen: list[Any] = []
        called = query.subscribe(lambda batch: seen.extend(values([batch])))
        assert db.push("s", [(1, 10), (2, 8), (3, 7), ("x", 1), (4, None)]) == ms.Counts(2, 1, 2)
        db.advance("s", 20)
        assert db.push("s", [(5, 19), (6, 20)]) == ms.Counts(1, 1, 0)
        assert one.next(timeout=0) is None
        finishing = threading.Timer(0.1, db.finish)
        finishing.start()
        assert values(query) == [2, 6]
        assert values(one) == [2, 6]
        assert values(two) == [6]
        assert two.dropped == 1
        assert called.wait(10)
        finishing.join()
        assert seen == [2, 6]
        assert values(late.fetch().to_batches()) == [3, 5]
        assert query.counts == ms.Counts(3, 2, 2)


def test_rejected_rows_of_files_are_counted(spark: Any, tmp_path: Any) -> None:
    (tmp_path / "f.csv").write_text("v,t\n3,3\nx,1\n1,1\n2,\n")
    with ms.connect(spark=spark) as db:
        db.execute(
            f"CREATE STREAM s (v INT, t INT) ORDER BY t WITH (connector = 'file', path = '{tmp_path / 'f.csv'}')"
        )
        query = db.sql("SELECT v FROM s")
        assert values(query.arrow().to_batches()) == [1, 3]
        assert query.counts == ms.Counts(accepted=2, rejected=2)
