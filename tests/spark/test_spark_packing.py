"""Blobs and the steps around an exchange, without Spark."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_cases import TRADES, as_rows, in_process, over, random_trades, trades

from millstream.errors import EngineError
from millstream.expressions.nodes import Literal
from millstream.hosts.spark import blobs, steps
from millstream.hosts.spark.steps import FromRows, KernelOpening, Numbered, Pack, Pipeline, ToRows, Unpack
from millstream.hosts.spark.surface import exact
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.compute import ComputeStage
from millstream.kernels.streams.runs import in_order
from millstream.schema import Schema, unique_names
from millstream.types import BOOLEAN, TIME, TIMESTAMP, VARCHAR
from tiers import examples


def arrived(rows: list[tuple[object, ...]], first: int = 0) -> Batch:
    batch = trades(rows)
    time = np.asarray(batch.column(2).view(pa.int64()), dtype=np.int64)
    return Batch(batch, time, np.arange(first, first + len(rows), dtype=np.int64), BEGIN)


def given_rows(out: list[Batch]) -> list[tuple[object, ...]]:
    """The rows that batches hold, in order."""
    return as_rows(in_order(out).rows) if out else []


@settings(max_examples=examples(25), deadline=None)
@given(
    count=st.integers(0, 60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    buckets=st.integers(1, 7),
    seed=st.integers(0, 5),
)
def test_packed_rows_give_what_the_kernel_gives(count: int, cuts: list[int], buckets: int, seed: int) -> None:
    spec = over()
    rows = random_trades(count, seed, disorder=4_000_000)
    places = sorted({0, count, *(cut for cut in cuts if cut < count)})
    parts = [arrived(rows[a:b], a) for a, b in itertools.pairwise(places)]
    packed = list(Pack(TRADES, ("symbol",), buckets)(iter(parts)))
    out = []
    for bucket in range(buckets):
        mine = [batch.filter(pa.compute.equal(batch.column("bucket"), bucket)) for batch in packed]
        out += list(KernelOpening(spec)(iter(mine)))
    assert given_rows(out) == in_process(spec, rows)


def test_many_small_batches_make_few_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [arrived(random_trades(10, i), 10 * i) for i in range(100)]
    assert sum(batch.num_rows for batch in Pack(TRADES, (), 1)(iter(rows))) == 1
    monkeypatch.setattr(steps, "PACK_ROWS", 100)
    assert sum(batch.num_rows for batch in Pack(TRADES, (), 1)(iter(rows))) == 10


def test_a_kernel_in_small_cuts_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = over()
    rows = random_trades(200, 1, disorder=9_000_000)
    monkeypatch.setattr(steps, "KERNEL_ROWS", 7)
    out = list(KernelOpening(spec)(Pack(TRADES, (), 1)(iter([arrived(rows)]))))
    assert len(out) > 5
    assert given_rows(out) == in_process(spec, rows)


def test_lanes_decide_ties() -> None:
    spec = over(())
    rows = [("a", 1.0, 5), ("b", 2.0, 5)]
    first = list(Pack(TRADES, (), 1, lane=1 << 59)(iter([arrived(rows)])))
    second = list(Pack(TRADES, (), 1)(iter([arrived(rows, 10)])))
    (out,) = KernelOpening(spec)(iter(first + second))
    assert out.seq.tolist() == [10, 11, 1 << 59, (1 << 59) + 1]


def test_in_order_is_stable_among_equal_numbers() -> None:
    layout = blobs.layout_of(Schema.of(x=VARCHAR))
    rows = pa.RecordBatch.from_arrays(
        [pa.array([2, 1, 1, 1]), pa.array([0, 7, 7, 3]), pa.array(["d", "b", "c", "a"])], schema=layout
    )
    assert blobs.in_order([rows], layout).column(2).to_pylist() == ["a", "b", "c", "d"]


def test_spark_types_are_brought_back() -> None:
    schema = Schema.of(at=TIME, ts=TIMESTAMP)
    layout = blobs.layout_of(schema)
    arrays = [pa.array([1]), pa.array([1]), pa.array([5], pa.time64("us")), pa.array([7], pa.timestamp("us"))]
    rows = pa.RecordBatch.from_arrays(arrays, schema=layout)
    there = blobs.for_spark(rows)
    assert there.schema.types[2] == pa.time64("ns")
    assert blobs.fit(there, layout).equals(rows)


def test_intervals_are_refused_by_name() -> None:
    batch = Batch(trades([("a", 1.0, 3)]), np.array([3]), np.array([0]), 9, np.array([4]))
    with pytest.raises(EngineError, match="interval"):
        blobs.from_batch(batch, blobs.layout_of(TRADES))


def test_names_at_the_surface_differ() -> None:
    assert unique_names(("a", "A", "a", "ä.b", "a_2")) == ["a", "A_2", "a_3", "ä.b", "a_2_2"]


def test_collected_rows_are_ordered_and_exact() -> None:
    table = pa.table(
        {
            "__t": [2, 1, 1],
            "__seq": [0, 9, 3],
            "c0": ["z", "y", "x"],
            "c1": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        }
    )
    result = exact(table, Schema.of(a=VARCHAR, b=TIMESTAMP), ("n", "n"))
    assert result.column_names == ["n", "n"]
    assert result.schema.types == [pa.string(), pa.timestamp("us")]
    assert result.column(0).to_pylist() == ["x", "y", "z"]


def test_every_bucket_hears_how_far_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_arrival_numbers", lambda: lambda count: np.arange(7, 7 + count))
    rows = [("a", 1.0, 50), ("a", 2.0, 90), ("b", 3.0, 70)]
    pack = Pack(TRADES, ("symbol",), 4, port=2, fresh=True, clock=5)
    (data, beats) = pack(Numbered(slack=30)(iter([arrived(rows)])))
    assert data.column("blob").null_count == 0 and sum(data.column("rows").to_pylist()) == 3
    assert beats.column("bucket").to_pylist() == [0, 1, 2, 3] and beats.column("blob").null_count == 4
    assert set(beats.column("clock").to_pylist()) == {5} and set(beats.column("upto").to_pylist()) == {60}


def test_time_comes_before_a_filter_that_drops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_arrival_numbers", lambda: lambda count: np.arange(count))
    nothing = steps.Computed(ComputeStage(TRADES, Literal(BOOLEAN, False), None))
    work = Pipeline(FromRows(TRADES), (Numbered(slack=0), nothing), Pack(TRADES, (), 1))
    rows = blobs.from_batch(arrived([("a", 1.0, 50)]), blobs.layout_of(TRADES))
    (beats,) = work(iter([rows]))
    assert beats.column("upto").to_pylist() == [50]


def test_a_stage_passes_the_time_of_each_bucket_on() -> None:
    blob = blobs.encode(blobs.from_batch(arrived([("a", 1.0, 50)]), blobs.layout_of(TRADES)))
    packed = pa.RecordBatch.from_pydict(
        {"bucket": [1, 1, 0], "upto": [None, 40, 30], "blob": [blob, None, None]},
    )
    (data, beats) = Pipeline(Unpack(TRADES), (), Pack(TRADES, (), 1, clock=10))(iter([packed]))
    assert data.column("rows").to_pylist() == [1]
    assert sorted(zip(beats.column("clock").to_pylist(), beats.column("upto").to_pylist(), strict=True)) == [
        (10, 30),
        (11, 40),
    ]
    assert [batch.num_rows for batch in Pipeline(Unpack(TRADES), (), ToRows(TRADES))(iter([packed]))] == [1]
