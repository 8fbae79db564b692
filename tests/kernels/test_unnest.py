"""UNNEST as a stage: which rows it gives, in which order, and the arrival numbers of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.kernels.batch import Batch
from millstream.kernels.streams.unnest import UnnestStage
from millstream.plan.nodes import Scan
from millstream.plan.unnest import Unnest
from millstream.schema import Schema
from millstream.types import ARRAY, BIGINT, INTEGER

LISTED = Schema.of(k=BIGINT, v=ARRAY(INTEGER))
ROWS = [(7, [9]), (1, [1, None, 2]), (2, []), (3, None), (4, [3])]


def batch(rows: list[tuple[int, list[int | None] | None]], upto: int = 100) -> Batch:
    columns = [pa.array([k for k, _ in rows], pa.int64()), pa.array([v for _, v in rows], LISTED["v"].type.arrow)]
    times, seq = np.arange(len(rows), dtype=np.int64), np.arange(len(rows), dtype=np.int64)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=LISTED.arrow), times, seq, upto)


def test_a_row_for_each_element_in_order() -> None:
    output = UnnestStage(LISTED, "v", "x").step(batch(ROWS))
    assert output.rows.column("x").to_pylist() == [9, 1, None, 2, 3]
    assert output.rows.column("k").to_pylist() == [7, 1, 1, 1, 4]
    assert (output.time.tolist(), output.seq.tolist(), output.upto) == ([0, 1, 1, 1, 4], [0, 1, 1, 1, 4], 100)


def test_rows_of_a_slice_are_its_own() -> None:
    whole = batch(ROWS)
    part = Batch(whole.rows.slice(1, 3), whole.time[1:4], whole.seq[1:4], whole.upto)
    assert UnnestStage(LISTED, "v", "x").step(part).rows.column("x").to_pylist() == [1, None, 2]


def test_elements_get_numbers_of_their_own_as_far_as_there_are_bits() -> None:
    wide = UnnestStage(LISTED, "v", "x").numbered(2).step(batch(ROWS))
    assert wide.seq.tolist() == [0, 4, 5, 6, 16]
    narrow = UnnestStage(LISTED, "v", "x").numbered(1).step(batch(ROWS))
    # never the number of another row
    assert narrow.seq.tolist() == [0, 2, 3, 3, 8]


def test_heartbeats_pass_and_so_do_batches_without_elements() -> None:
    stage = UnnestStage(LISTED, "v", "x")
    for given in (batch([], upto=7), batch([(2, []), (3, None)], upto=7)):
        output = stage.step(given)
        assert (len(output), output.upto, output.rows.schema) == (0, 7, stage.output.arrow)


def test_only_arrays_are_taken_apart() -> None:
    with pytest.raises(ValueError, match="BIGINT is not an array"):
        Unnest(Scan("s", LISTED), "k", "x")
