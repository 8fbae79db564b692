"""The stateful processor over a pretended state store: what Spark would call, in the order it would."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
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
from millstream.hosts.spark import blobs, file_state, one_value, state, stateful
from millstream.hosts.spark.file_state import FileValue, Version
from millstream.hosts.spark.kept_stage import StageOpening
from millstream.hosts.spark.one_value import in_one_value
from millstream.hosts.spark.stage import LateRows, Stage, bucket_ids
from millstream.hosts.spark.stateful import KernelProcessor
from millstream.hosts.spark.steps import Pack
from millstream.kernels.batch import BEGIN, Batch
from millstream.kernels.contract import KernelSpec
from tiers import examples


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


class PretendedValue:
    """The value of a bucket, as Spark hands it to a function."""

    def __init__(self, values: dict[int, bytes], bucket: int) -> None:
        self.exists = bucket in values
        self.get = (bytearray(values[bucket]),) if self.exists else ()
        self.update = lambda value: values.update({bucket: value[0]})


class PretendedSpark:
    """Runs micro-batches through a processor: with heartbeats, or without them but with Spark's watermark."""

    def __init__(self, spec: KernelSpec, buckets: int, slack: int, beating: bool = True, **stage: Any) -> None:
        self.spec, self.buckets, self.slack, self.beating = spec, buckets, slack, beating
        self.stage = stage
        self.kept = "variables"
        self.values: dict[int, bytes] = {}
        self.directory = Path()
        self.number = 0
        self.store = PretendedStore()
        self.watermark = 0
        self.latest = 0
        self.arrived = 0
        self.out: list[pa.RecordBatch] = []
        self.start()

    def start(self) -> None:
        clocks = {"beating": (self.beating,), "watermarked": not self.beating, **self.stage}
        self.processor = KernelProcessor(Stage(self.spec, self.buckets, **clocks))
        self.processor.init(self.store)
        self.function = in_one_value(KernelProcessor(Stage(self.spec, self.buckets, **clocks)))
        self.opening = StageOpening(Stage(self.spec, self.buckets, **clocks))

    def restart(self) -> None:
        """Another process: nothing is left but what the store has."""
        state._LIVE.clear()
        file_state._HELD.clear()
        self.store = pickle.loads(pickle.dumps(self.store))
        self.start()

    def micro_batch(self, rows: list[tuple[Any, ...]]) -> None:
        batch = trades(rows)
        time = np.asarray(batch.column(2).view(pa.int64()), dtype=np.int64)
        seq = np.arange(self.arrived, self.arrived + len(rows), dtype=np.int64)
        self.arrived += len(rows)
        self.latest = max([self.latest, *(row[2] for row in rows)])
        beats = [Batch.empty(batch.schema, self.latest - self.slack)] if rows and self.beating else []
        pack = Pack(TRADES, self.spec.keys or (), self.buckets, fresh=True, ids=bucket_ids(self.buckets))
        packed = list(pack(iter([Batch(batch, time, seq, BEGIN), *beats])))
        self.number += 1
        if self.kept == "files":
            self.with_files(packed)
            return
        frames = [rows.to_pandas() for rows in packed]
        times = SimpleNamespace(getCurrentWatermarkInMs=lambda: self.watermark)
        for bucket, frame in pd.concat(frames).groupby("bucket") if frames else ():
            self.store.key = int(bucket)
            if self.kept == "value":
                self.take(self.function((bucket,), iter([frame]), PretendedValue(self.values, int(bucket))))
            else:
                self.take(self.processor.handleInputRows((bucket,), iter([frame]), times))
        for key, timers in self.store.timers.items():
            for at in sorted(timer for timer in timers if timer <= self.watermark):
                self.store.key = key
                self.take(self.processor.handleExpiredTimer((key,), times, SimpleNamespace()))
                self.store.deleteTimer(at)
        self.watermark = max(self.watermark, self.latest // 1000 - self.slack // 1000)

    def with_files(self, packed: list[pa.RecordBatch]) -> None:
        layout = blobs.layout_of(self.spec.output)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file_state, "state_directory", lambda: (self.directory, self.number))
            self.out += [blobs.from_batch(batch, layout) for batch in self.opening(iter(packed)) if len(batch)]

    def take(self, frames: Any) -> None:
        layout = blobs.layout_of(self.spec.output)
        self.out += [blobs.decode(blob, layout) for frame in frames for blob in frame["blob"] if blob is not None]

    @property
    def reached(self) -> int:
        """How far time has come."""
        return self.latest - self.slack if self.beating else self.watermark * 1000

    def rows(self) -> list[tuple[Any, ...]]:
        layout = blobs.layout_of(self.spec.output)
        ordered = blobs.in_order(self.out, layout) if self.out else blobs.joined([], layout)
        return as_rows(ordered.select(ordered.schema.names[2:]))


@settings(max_examples=examples(30), deadline=None)
@given(
    cuts=st.lists(st.integers(0, 80), max_size=6),
    restarts=st.sets(st.integers(0, 6)),
    buckets=st.integers(1, 5),
    keyed=st.booleans(),
    beating=st.booleans(),
    seed=st.integers(0, 5),
    near=st.sampled_from([0, 1500, 1 << 16]),
    kept=st.sampled_from(["variables", "value", "files"]),
    repeated=st.sets(st.integers(0, 6)),
)
def test_micro_batches_give_what_the_kernel_gives(
    cuts: list[int],
    restarts: set[int],
    buckets: int,
    keyed: bool,
    beating: bool,
    seed: int,
    near: int,
    kept: str,
    repeated: set[int],
) -> None:
    rows = random_trades(80, seed, disorder=3 * SECOND)
    spec = over(("symbol",) if keyed else ())
    spark = PretendedSpark(spec, buckets if keyed else 1, slack=4 * SECOND, beating=beating)
    spark.kept = kept if beating else "variables"
    places = [0, *sorted(cuts), 80]
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        spark.directory = Path(directory)
        patch.setattr(state, "NEAR_BYTES", near)
        patch.setattr(file_state, "WHOLE_BYTES", near)
        for number, (a, b) in enumerate(itertools.pairwise(places)):
            before = spark.number, spark.latest, spark.arrived, list(spark.out)
            spark.micro_batch(rows[a:b])
            if number in repeated and spark.kept == "files":
                # it failed after its work was done
                spark.number, spark.latest, spark.arrived, spark.out = before
                spark.micro_batch(rows[a:b])
            if number in restarts:
                spark.restart()
        spark.micro_batch([])
    assert spark.rows() == in_process(spec, rows, upto=spark.reached)
    assert len(spark.rows()) > 40


def test_a_value_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = PretendedSpark(over(("symbol",)), 1, slack=0)
    spark.kept = "value"
    monkeypatch.setattr(one_value, "MOST_BYTES", 1000)
    with pytest.raises(StateError, match="too many for one value"):
        spark.micro_batch(random_trades(80, 1, disorder=0))
    assert not spark.values


def test_files_hold_what_changed_and_old_ones_go(tmp_path: Path) -> None:
    def value(number: int) -> FileValue:
        return FileValue(tmp_path / "0", number)

    for number in range(8):
        now = value(number)
        now.put(("kernel", str(number % 4)), bytes([number]) * 100_000)
        now.put(("head",), b"%d" % number)
        now.save()
        file_state._HELD.clear()
        if number == 5:
            now = value(6)
            now.put(("kernel", "1"), None)
            now.put(("kernel", "7"), b"lost with the worker that wrote it")
            now.save()
    sizes = {Version.of(path.name).number: path.stat().st_size for path in (tmp_path / "0").iterdir()}
    assert 5 in sizes and 0 not in sizes and sizes[7] < 110_000
    last = value(8)
    assert last.get(("head",)) == b"7" and [last.get(("kernel", str(n)))[:1] for n in range(4)] == [  # type: ignore[index]
        b"\x04",
        b"\x05",
        b"\x06",
        b"\x07",
    ]
    assert value(7).get(("head",)) == b"6" and value(7).get(("kernel", "7")) is None


def test_late_rows_are_counted_and_not_let_in() -> None:
    spec = over()
    spark = PretendedSpark(spec, 1, slack=0)
    spark.micro_batch([("a", 1.0, 10 * SECOND), ("a", 2.0, 20 * SECOND)])
    spark.micro_batch([("a", 4.0, 15 * SECOND), ("a", 8.0, 20 * SECOND), ("a", 16.0, 40 * SECOND)])
    spark.micro_batch([])
    assert [row[1] for row in spark.rows()] == [1.0, 2.0, 8.0]
    head = state.SoleStore(spark.store).head()
    assert head is not None and head.late == 1


def test_late_rows_come_out_of_a_stage_of_their_own() -> None:
    spark = PretendedSpark(LateRows(TRADES), 1, slack=5 * SECOND)
    spark.micro_batch([("a", 1.0, 10 * SECOND), ("a", 2.0, 20 * SECOND)])
    spark.micro_batch([("a", 4.0, 15 * SECOND), ("b", 8.0, 14 * SECOND), ("c", 16.0, 1 * SECOND)])
    assert [row[0] for row in spark.rows()] == ["b", "c"]
    assert {time for batch in spark.out for time in blobs.times(batch)} == {15 * SECOND}


def test_an_input_that_went_quiet_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(stateful, "time_ns", lambda: now * 1000)
    spark = PretendedSpark(over(()), 1, slack=0, beating=True)
    spark.stage = {"beating": (True, True), "idle": 60 * SECOND}
    spark.start()
    spark.micro_batch([("a", 1.0, 10 * SECOND), ("a", 2.0, 20 * SECOND)])
    assert spark.rows() == []
    now = 61 * SECOND
    spark.micro_batch([("a", 3.0, 30 * SECOND)])
    assert [row[1] for row in spark.rows()] == [1.0, 2.0]


@pytest.mark.parametrize(("beating", "woken"), [(True, ["quiet", "busy"]), (False, ["quiet"])])
def test_a_bucket_without_rows_wakes_as_time_goes_on(beating: bool, woken: list[str]) -> None:
    spark = PretendedSpark(over(), 64, slack=0, beating=beating)
    spark.micro_batch([("quiet", 1.0, 10 * SECOND)])
    spark.micro_batch([("busy", 1.0, 20 * SECOND)])
    spark.micro_batch([("busy", 1.0, 30 * SECOND)])
    assert [row[0] for row in spark.rows()] == woken


def test_rows_wait_only_for_the_slack() -> None:
    spark = PretendedSpark(over(), 1, slack=10 * SECOND)
    spark.micro_batch([("a", 1.0, number * SECOND) for number in range(1, 31)])
    head = state.SoleStore(spark.store).head()
    assert len(spark.rows()) == 19 and head is not None and head.waiting_rows == 11


def test_only_changed_pieces_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "NEAR_BYTES", 0)
    store = PretendedStore()
    kept = state.SoleStore(store)
    head = state.Head("f")
    kept.put_pieces(head, {0: b"aaaa", 1: b"bb", 2: b"c"})
    assert store.writes == 3 and head.kernel_bytes == 7
    kept.put_pieces(head, {1: b"BBB"})
    assert store.writes == 4
    kept.put_pieces(head, {0: None, 2: None})
    assert store.writes == 4
    assert kept.pieces(head) == {1: b"BBB"} and head.kernel_bytes == 3
    assert len(store.maps["kernel", 0]) == 1


def test_small_pieces_are_written_with_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "NEAR_BYTES", 8)
    store = PretendedStore()
    kept = state.SoleStore(store)
    head = state.Head("f")
    kept.put_pieces(head, {0: b"aaaa", 1: b"bb"})
    kept.hold(head, 0, 5, 1, b"w")
    assert store.writes == 0 and head.kernel_bytes == 6
    kept.put_pieces(head, {0: b"a" * 9})
    assert store.maps["kernel", 0] == {(0,): (b"a" * 9,)}
    kept.put_head(head)
    again = kept.head()
    assert again is not None
    assert kept.pieces(again) == {0: b"a" * 9, 1: b"bb"}
    assert kept.due(again, 6) == [(0, b"w")]
    kept.put_pieces(again, {0: b"a", 1: None})
    assert store.maps["kernel", 0] == {} and kept.pieces(again) == {0: b"a"} and again.near == {"k0": b"a"}


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
    assert spark.rows() == in_process(spec, rows, upto=spark.reached)


def test_state_of_another_query_is_refused() -> None:
    spark = PretendedSpark(over(), 1, slack=0)
    spark.micro_batch([("a", 1.0, SECOND)])
    spark.spec = over(keys=())
    spark.start()
    with pytest.raises(StateError, match="another query"):
        spark.micro_batch([("a", 1.0, 2 * SECOND)])


def test_state_of_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = PretendedSpark(over(), 1, slack=0)
    spark.micro_batch([("a", 1.0, SECOND)])
    written = state.FORMAT
    monkeypatch.setattr(state, "FORMAT", 99)
    monkeypatch.setattr(state, "READABLE", (99,))
    with pytest.raises(StateError, match=f"format {written}, this version reads format 99"):
        spark.micro_batch([("a", 1.0, 2 * SECOND)])
