"""More text than one Arrow batch can address is an error or several batches, never fewer rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millstream as ms
from millstream import arrays
from millstream.connectors.contract import Chunk
from millstream.hosts.embedded import readers
from millstream.kernels.batch import Batch, concat


def batch(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"v": pa.array(values, pa.string())})


def test_batches_become_one() -> None:
    assert arrays.one_batch([batch("a"), batch(), batch("b")]).to_pydict() == {"v": ["a", "b"]}
    assert arrays.one_batch([], batch().schema).num_rows == arrays.one_batch([batch(), batch()]).num_rows == 0


def test_lists_that_do_not_fit_are_an_error() -> None:
    """Nulls take no memory, and may still be too many for 32 bits."""
    many = pa.ListArray.from_arrays(pa.array([0, 2**31 - 1], pa.int32()), pa.nulls(2**31 - 1))
    rows = pa.RecordBatch.from_arrays([many], ["v"])
    with pytest.raises(ms.DataError, match="more than 2 GB"):
        arrays.one_batch([rows, rows])


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Arrow does with text of more than 2 GB: one batch for each three rows."""

    def combined(table: pa.Table) -> list[pa.RecordBatch]:
        return list(table.combine_chunks().to_batches(max_chunksize=3))

    monkeypatch.setattr(arrays, "_combined", combined)


@pytest.mark.usefixtures("small_batches")
def test_no_batch_is_left_out() -> None:
    parts = [_timed(rows) for rows in (batch("a", "b"), batch("c", "d"))]
    with pytest.raises(ms.DataError, match="more than 2 GB"):
        concat(parts, 10)
    with ms.connect() as db:
        db.execute("CREATE STREAM s (v VARCHAR, t INT) ORDER BY t")
        query = db.sql("SELECT v FROM s")
        assert isinstance(query, ms.Query)
        rows = pa.table({"v": list("abcd"), "t": pa.array([1, 2, 3, 4], pa.int32())})
        with pytest.raises(ms.DataError, match="more than 2 GB"):
            db.push("s", pa.concat_tables([rows, rows]))
        assert query.fetch().num_rows == 0


def _timed(rows: pa.RecordBatch) -> Batch:
    numbers = np.arange(rows.num_rows, dtype=np.int64)
    return Batch(rows, numbers, numbers, 10)


class Chunks:
    """A live source of chunks that are all ready at once."""

    bounded = False
    replayable = False

    def size(self) -> int | None:
        return None

    def read(self, offset: Any, stop: Callable[[], bool], limit: int | None = None) -> Iterator[Chunk]:
        for i in range(20):
            yield Chunk(batch(f"{i}" * 30, f"{i}" * 20), {"at": i})


def test_a_live_source_hands_over_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_BYTES", 100)
    taken: list[tuple[pa.RecordBatch, Any]] = []

    def take(rows: pa.RecordBatch, rejected: Any, offset: Any) -> None:
        time.sleep(0.005)
        taken.append((rows, offset))

    reader: Any = readers.LiveReader(Chunks(), {}, take, "s")  # type: ignore[arg-type]
    while reader.running:
        time.sleep(0.01)
    assert [value[:2].rstrip() for rows, _ in taken for value in rows["v"].to_pylist()] == [
        (f"{i}" * 30)[:2] for i in range(20) for _ in range(2)
    ]
    assert all(rows.num_rows == 2 or rows.nbytes <= 200 for rows, _ in taken)
    assert [offset["at"] for _, offset in taken] == sorted(offset["at"] for _, offset in taken)
    assert taken[-1][1] == {"at": 19}


def test_a_fault_in_filters_that_run_together_ends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from millstream.hosts.filter_groups import FilterGroup

    with ms.connect() as db:
        db.execute("CREATE STREAM s (k INT, v INT, t INT) ORDER BY t")
        queries = [db.sql(f"SELECT v FROM s WHERE k = {i}", name=f"q{i}") for i in range(20)]
        other = db.sql("SELECT count(*) OVER (ROWS UNBOUNDED PRECEDING) AS n FROM s")
        calls = []

        def failing(self: Any, rows: Any) -> Any:
            calls.append(len(rows))
            raise ZeroDivisionError("a fault")

        monkeypatch.setattr(FilterGroup, "step", failing)
        db.push("s", [(i % 20, i, i) for i in range(100)])
        assert [query.fetch()["v"].to_pylist() for query in queries] == [list(range(i, 100, 20)) for i in range(20)]
        assert other.fetch().num_rows == 100
        assert calls


def test_a_chunk_beyond_the_limit_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_BYTES", 1_000)
    chunks = [Chunk(batch("x" * size), {"at": size}) for size in (10, 2_000, 10, 10)]
    assert [[chunk.offset["at"] for chunk in part] for part in readers._together(chunks)] == [[10], [2_000], [10, 10]]
