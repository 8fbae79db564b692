"""What is measured of streams while they run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.plan.costs.statistics import MEMORY, Sketch, StreamObserver, StreamStatistics


def batch(times: np.ndarray, **columns: object) -> tuple[np.ndarray, pa.RecordBatch]:
    return times, pa.record_batch({"t": pa.array(times, pa.timestamp("us")), **columns})


def observed(times: np.ndarray, size: int) -> StreamStatistics:
    observer = StreamObserver()
    for start in range(0, len(times), size):
        observer.observe(*batch(times[start : start + size]))
    found = observer.statistics()
    assert found is not None
    return found


@pytest.mark.parametrize("size", [1, 7, 1000, 50_000])
def test_the_distance_does_not_depend_on_batches(size: int) -> None:
    times = np.arange(0, 2_500 * 250, 250)
    found = observed(times, size)
    assert found.rows == 2_500
    assert found.distance == pytest.approx(250)


def test_the_distance_follows_a_stream_that_changes() -> None:
    times = np.cumsum(np.concatenate((np.full(50_000, 100), np.full(5 * MEMORY, 10))))
    assert observed(times, 1000).distance == pytest.approx(10, rel=0.1)


def test_nothing_is_known_of_one_row_or_none() -> None:
    observer = StreamObserver()
    assert observer.statistics() is None
    observer.observe(*batch(np.empty(0, np.int64)))
    observer.observe(*batch(np.array([5])))
    assert observer.statistics() is None
    observer.observe(*batch(np.array([9])))
    found = observer.statistics()
    assert found is not None
    assert found.distance == 4


def test_rows_of_equal_time_have_a_distance() -> None:
    found = observed(np.full(100, 7), 10)
    assert found.distance > 0


@pytest.mark.parametrize("count", [1, 3, 100, 5_000])
@pytest.mark.parametrize("kind", ["int64", "double", "string", "int8"])
def test_different_values_are_counted(count: int, kind: str) -> None:
    if kind == "int8" and count > 100:
        return
    random = np.random.default_rng(count)
    sketch = Sketch()
    rows = 0
    for _ in range(200):
        values = pa.array(random.integers(0, count, 512)).cast(kind)
        sketch.add(values)
        rows += 512
    assert sketch.estimate(rows) == pytest.approx(count, rel=0.25)


def test_a_column_without_repetitions_has_as_many_values_as_rows() -> None:
    sketch = Sketch()
    for i in range(50):
        sketch.add(pa.array(np.arange(i * 10_000, i * 10_000 + 512)))
    assert sketch.estimate(500_000) == pytest.approx(500_000, rel=0.1)


def test_nulls_are_no_values() -> None:
    sketch = Sketch()
    sketch.add(pa.array([None, None], pa.int64()))
    assert sketch.estimate(2) == 1
    sketch.add(pa.array([1, None, 1, 2] * 100))
    assert sketch.estimate(402) == pytest.approx(2)
