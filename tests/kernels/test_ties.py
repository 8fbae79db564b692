"""ORDER BY time and more: rows of one instant in an order of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.streams.ties import TieOrderSpec
from millstream.plan.ties import SortKey
from millstream.schema import Schema
from millstream.types import BIGINT, DOUBLE, VARCHAR

COLUMNS = Schema.of(k=BIGINT, x=DOUBLE, s=VARCHAR)


def batch(rows: list[tuple[int, int, float | None, str]], upto: int, first: int = 0) -> Batch:
    """Rows of (time, k, x, s)."""
    columns = [[row[i] for row in rows] for i in (1, 2, 3)]
    arrays = [pa.array(values, field.type.arrow) for values, field in zip(columns, COLUMNS, strict=True)]
    time = np.array([row[0] for row in rows], dtype=np.int64)
    made = pa.RecordBatch.from_arrays(arrays, schema=COLUMNS.arrow)
    return Batch(made, time, np.arange(first, first + len(rows), dtype=np.int64), upto)


ROWS = [(1, 1, 2.0, "a"), (1, 2, 9.0, "b"), (1, 1, None, "c"), (1, 1, 1.0, "d"), (1, 2, 8.0, "e"), (2, 1, 0.0, "f")]


@pytest.mark.parametrize(
    ("keys", "by", "expected"),
    [
        ((), (SortKey("x"),), "daebcf"),
        ((), (SortKey("x", down=True),), "beadcf"),
        ((), (SortKey("x", nulls_first=True),), "cdaebf"),
        ((), (SortKey("x", down=True, nulls_first=True),), "cbeadf"),
        ((), (SortKey("k", down=True), SortKey("s", down=True)), "ebdcaf"),
        # each partition keeps the places that its rows had
        (("k",), (SortKey("x"),), "deacbf"),
    ],
)
def test_order(keys: tuple[str, ...], by: tuple[SortKey, ...], expected: str) -> None:
    kernel = TieOrderSpec(COLUMNS, keys, by).build()
    found = kernel.step(kernel.open(), batch(ROWS, FOREVER))
    assert "".join(found.rows.column("s").to_pylist()) == expected
    assert found.seq.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.time.tolist() == [1, 1, 1, 1, 1, 2]


def test_nan_is_above_all_numbers() -> None:
    rows = [(1, 1, float("nan"), "n"), (1, 1, 1.0, "a"), (1, 1, None, "-"), (1, 1, float("inf"), "i")]
    for key, expected in ((SortKey("x"), "ain-"), (SortKey("x", down=True), "nia-")):
        kernel = TieOrderSpec(COLUMNS, (), (key,)).build()
        found = kernel.step(kernel.open(), batch(rows, FOREVER))
        assert "".join(found.rows.column("s").to_pylist()) == expected


def test_rows_wait_until_time_has_passed_them() -> None:
    kernel = TieOrderSpec(COLUMNS, (), (SortKey("x"),)).build()
    state = kernel.open()
    assert len(kernel.step(state, batch([(5, 1, 2.0, "a")], 5))) == 0
    assert len(kernel.step(state, batch([(5, 1, 1.0, "b")], 5, 1))) == 0
    passed = kernel.step(state, batch([(7, 1, 1.0, "c")], 7, 2))
    assert passed.rows.column("s").to_pylist() == ["b", "a"]
    assert passed.upto == 7
    assert kernel.step(state, batch([], FOREVER)).rows.column("s").to_pylist() == ["c"]
