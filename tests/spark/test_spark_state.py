"""The stateful processor over a pretended state store: what Spark would call, in the order it would."""

from __future__ import annotations

import itertools
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_cases import SECOND, TRADES, as_rows, in_process, over, random_trades, trades

from millstream.errors import StateError
from millstream.hosts.spark import blobs, state
from millstream.hosts.spark.stateful import KernelProcessor
from millstream.hosts.spark.steps import Pack
from millstream.kernels.contract import KernelSpec


class PretendedStore:
    """State variables and timers by key, as Spark keeps them; it survives restarts as bytes."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], Any] = {}
        self.maps: dict[tuple[str, int], dict[Any, Any]] = {}
        self.timers: dict[int, set[int]] = {}
        self.key = 0
        self.writes = 0

    def getValueState(self, name: str, schema: str) -> Any:
        def update(value: Any) -> None:
            self.values[name, self.key] = value
            self.writes += 1

        return SimpleNamespace(get=lambda: self.values.get((name, self.key)), update=update)

    def getMapState(self, name: str, key: str, value: str) -> Any:
        def here() -> dict[Any, Any]:
            return self.maps.setdefault((name, self.key), {})

        def update(key: Any, value: Any) -> None:
            here()[key] = value
            self.writes += 1

        return SimpleNamespace(
            getValue=lambda key: here().get(key), updateValue=update, removeKey=lambda key: here().pop(key)
        )

    def registerTimer(self, at: int) -> None:
        self.timers.setdefault(self.key, set()).add(at)

    def deleteTimer(self, at: int) -> None:
        self.timers[self.key].discard(at)


class PretendedSpark:
    """Runs micro-batches through a processor, with Spark's watermark."""

    def __init__(self, spec: KernelSpec, buckets: int, slack: int) -> None:
        self.spec, self.buckets, self.slack = spec, buckets, slack
        self.store = PretendedStore()
        self.watermark = 0
        self.latest = 0
        self.arrived = 0
        self.out: list[pa.RecordBatch] = []
        self.start()

    def start(self) -> None:
        self.processor = KernelProcessor(self.spec, self.buckets, per_ms=1000, latent=False)
        self.processor.init(self.store)

    def restart(self) -> None:
        """Another process: nothing is left but what the store has."""
        state._LIVE.clear()
        self.store = pickle.loads(pickle.dumps(self.store))
        self.start()

    def micro_batch(self, rows: list[tuple[Any, ...]]) -> None:
        batch = trades(rows)
        time = batch.column(2).view(pa.int64())
        seq = pa.array(np.arange(self.arrived, self.arrived + len(rows), dtype=np.int64))
        self.arrived += len(rows)
        laid_out = pa.RecordBatch.from_arrays([time, seq, *batch.columns], schema=blobs.layout_of(TRADES))
        pack = Pack(TRADES, self.spec.keys or (), self.buckets, fresh=True)
        frames = [packed.to_pandas() for packed in pack(iter([laid_out]))]
        times = SimpleNamespace(getCurrentWatermarkInMs=lambda: self.watermark)
        for bucket, frame in pd.concat(frames).groupby("bucket") if frames else ():
            self.store.key = int(bucket)
            self.take(self.processor.handleInputRows((bucket,), iter([frame]), times))
        for key, timers in self.store.timers.items():
            for at in sorted(timer for timer in timers if timer <= self.watermark):
                self.store.key = key
                self.take(self.processor.handleExpiredTimer((key,), times, SimpleNamespace()))
                self.store.deleteTimer(at)
        self.latest = max([self.latest, *(row[2] for row in rows)])
        self.watermark = max(self.watermark, self.latest // 1000 - self.slack // 1000)

    def take(self, frames: Any) -> None:
        layout = blobs.layout_of(self.spec.output)
        self.out += [blobs.decode(blob, layout) for frame in frames for blob in frame["blob"]]

    def rows(self) -> list[tuple[Any, ...]]:
        layout = blobs.layout_of(self.spec.output)
        ordered = blobs.in_order(self.out, layout) if self.out else blobs.joined([], layout)
        return as_rows(ordered.select(ordered.schema.names[2:]))


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 80), max_size=6),
    restarts=st.sets(st.integers(0, 6)),
    buckets=st.integers(1, 5),
    keyed=st.booleans(),
    seed=st.integers(0, 5),
)
def test_micro_batches_give_what_the_kernel_gives(
    cuts: list[int], restarts: set[int], buckets: int, keyed: bool, seed: int
) -> None:
    rows = random_trades(80, seed, disorder=3 * SECOND)
    spec = over(("symbol",) if keyed else ())
    spark = PretendedSpark(spec, buckets if keyed else 1, slack=4 * SECOND)
    places = [0, *sorted(cuts), 80]
    for number, (a, b) in enumerate(itertools.pairwise(places)):
        spark.micro_batch(rows[a:b])
        if number in restarts:
            spark.restart()
    spark.micro_batch([])
    assert spark.rows() == in_process(spec, rows, upto=spark.watermark * 1000)
    assert len(spark.rows()) > 40


def test_late_rows_are_counted_and_not_let_in() -> None:
    spec = over()
    spark = PretendedSpark(spec, 1, slack=0)
    spark.micro_batch([("a", 1.0, 10 * SECOND), ("a", 2.0, 20 * SECOND)])
    spark.micro_batch([("a", 4.0, 15 * SECOND), ("a", 8.0, 20 * SECOND), ("a", 16.0, 40 * SECOND)])
    spark.micro_batch([])
    assert [row[1] for row in spark.rows()] == [1.0, 2.0, 8.0]
    head = state.Store(spark.store).head()
    assert head is not None and head.late == 1


def test_a_bucket_without_rows_wakes_with_the_watermark() -> None:
    spec = over()
    spark = PretendedSpark(spec, 64, slack=0)
    spark.micro_batch([("quiet", 1.0, 10 * SECOND)])
    spark.micro_batch([("busy", 1.0, 20 * SECOND)])
    spark.micro_batch([("busy", 1.0, 30 * SECOND)])
    assert [row[0] for row in spark.rows()] == ["quiet"]


def test_time_that_stands_still_costs_no_kernel_work() -> None:
    spark = PretendedSpark(over(), 1, slack=3600 * SECOND)
    for number in range(5):
        spark.micro_batch([("a", 1.0, (4000 + number) * SECOND)])
    assert ("kernel", 0) not in {key for key, kept in spark.store.maps.items() if kept}


def test_only_changed_chunks_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "CHUNK", 4)
    store = PretendedStore()
    kept = state.Store(store)
    head = state.Head("f")
    kept.put_snapshot(head, b"", b"aaaabbbbcc")
    assert store.writes == 3
    kept.put_snapshot(head, b"aaaabbbbcc", b"aaaaBbbbcc")
    assert store.writes == 4
    kept.put_snapshot(head, b"aaaaBbbbcc", b"aaaa")
    assert store.writes == 4
    assert kept.snapshot(head) == b"aaaa"
    assert len(store.maps["kernel", 0]) == 1


def test_live_state_is_used_only_where_it_was_left() -> None:
    spec = over()
    spark = PretendedSpark(spec, 1, slack=0)
    rows = random_trades(60, 2)
    spark.micro_batch(rows[:20])
    spark.micro_batch(rows[20:40])
    saved, out, watermark = pickle.dumps(spark.store), list(spark.out), spark.watermark
    spark.micro_batch(rows[40:])  # this micro-batch fails after the processor has worked, and is done again
    spark.store, spark.out, spark.watermark, spark.arrived = pickle.loads(saved), out, watermark, 40
    spark.start()
    spark.micro_batch(rows[40:])
    spark.micro_batch([])
    assert spark.rows() == in_process(spec, rows, upto=spark.watermark * 1000)


def test_state_of_another_query_is_refused() -> None:
    spark = PretendedSpark(over(), 1, slack=0)
    spark.micro_batch([("a", 1.0, SECOND)])
    spark.spec = over(suffix="2")
    spark.start()
    with pytest.raises(StateError, match="another query"):
        spark.micro_batch([("a", 1.0, 2 * SECOND)])
