"""Kernels in streaming queries: a stateful processor of Spark that runs one kernel per bucket."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from time import time_ns
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor

from millstream.errors import EngineError
from millstream.hosts.pieces import Bounded
from millstream.hosts.spark import blobs
from millstream.hosts.spark.carry import counted, note_bound, schemas_of, stepped_with
from millstream.hosts.spark.stage import LateRows, Stage, bucket_ids
from millstream.hosts.spark.state import Head, SoleStore, Store, clocks_of, keep_live, live_state
from millstream.hosts.spark.steps import kernel_of, spare_collector
from millstream.hosts.spark.wire import wire_columns, wire_ddl
from millstream.kernels.batch import Batch
from millstream.kernels.saving import states as saving
from millstream.records import dataclass


def output_ddl(stage: Stage) -> str:
    """What a bucket gives in a micro-batch: its rows, packed as blobs or as they are, and what there is to tell.

    Packed rows come with one that has a bucket, and how far its time has come (no later row of it is below `upto`),
    rows that came in, late ones among them, those that wait, and the bytes of the kernel's state. In the last stage
    these numbers are JSON in the first row, which is none (`row` is false) if there are no others.
    """
    if stage.wide:
        return f"told STRING, row BOOLEAN, {wire_ddl(stage.spec.output)}"
    return "bucket INT, upto BIGINT, rows BIGINT, late BIGINT, waiting BIGINT, state BIGINT, blob BINARY"


@dataclass
class Turn:
    """One bucket's part of a micro-batch."""

    bucket: int
    head: Head
    ready: list[list[pa.RecordBatch]]
    """of each port, the rows whose time has come"""
    late: list[pa.RecordBatch]
    passed: tuple[int, ...]
    """of each input, the time before which rows are late"""
    rows: int = 0

    @property
    def told(self) -> dict[str, int]:
        """Rows that came in, late ones among them, those that wait, and the bytes of the kernel's state."""
        late = sum(rows.num_rows for rows in self.late)
        return {"rows": self.rows, "late": late, "waiting": self.head.waiting_rows, "state": self.head.kernel_bytes}


class StageRun:
    """A stage at work on a bucket: rows wait until time has passed them, then go through the kernel in order of time.

    Every task that feeds a stage tells every bucket how far its own rows have come, so a bucket knows in the same
    micro-batch how far time is. Where heartbeats get lost on the way, Spark's watermark tells it one micro-batch later.
    """

    def __init__(self, stage: Stage, place: str | None = None) -> None:
        self.stage = stage
        self._place = place or stage.signature
        self._layouts = [blobs.layout_of(schema) for schema in schemas_of(stage.spec)]
        self._bounded = Bounded(stage.allowed)

    def begin(self, bucket: int, head: Head | None, heard: Sequence[int] = ()) -> Turn:
        """A micro-batch begins; `heard` tells how far each clock had come elsewhere after the last one."""
        now = time_ns() // 1000
        head = head or Head.first(self.stage, now)
        head.check(self.stage)
        upto = head.upto
        for clock, reached in enumerate(heard):
            if reached > head.clocks[clock]:
                head.tick(clock, reached, now)
        if heard:
            upto = max(upto, self.stage.reached(*clocks_of(head), 0, now))
        return Turn(bucket, head, [[] for _ in self._layouts], [], self.stage.passed(head.clocks, upto))

    def advance(
        self, turn: Turn, store: Store, arrived: list[tuple[int, bool, bytes]], watermark: int, now: int
    ) -> tuple[list[pa.RecordBatch], int]:
        """Rows come and time passes; what becomes final, and what is promised."""
        head = turn.head
        upto = max(head.upto, self.stage.reached(*clocks_of(head), watermark, now))
        for port, fresh, blob in arrived:
            rows = blobs.decode(blob, self._layouts[port])
            turn.rows += counted(self.stage.spec, port, rows)
            self._release(turn, store, port, self._in_time(turn, port, rows) if fresh else rows, upto)
        for port, blob in store.due(head, upto):
            self._release(turn, store, port, blobs.decode(blob, self._layouts[port]), upto)
        if isinstance(self.stage.spec, LateRows):
            out, promise = self._late(turn), upto
        else:
            out, promise = self._step(turn, store, upto)
        head.upto = upto
        if len(self._layouts) > len(self.stage.spec.inputs):
            note_bound(self.stage.number, max([upto, *head.clocks]))
        return out, promise

    def _in_time(self, turn: Turn, port: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose time had not passed when they came; the others are put aside."""
        in_time = blobs.times(rows) >= turn.passed[port % len(turn.passed)]
        if in_time.all():
            return rows
        if port >= len(self.stage.spec.inputs):
            raise EngineError(
                "rows that were aggregated before the exchange are late",
                hint="restart the query: it then reads these rows again, without aggregating them first",
            )
        turn.late.append(rows.filter(pa.array(~in_time)))
        turn.head.late += turn.late[-1].num_rows
        return rows.filter(pa.array(in_time))

    def _release(self, turn: Turn, store: Store, port: int, rows: pa.RecordBatch, upto: int) -> None:
        """Rows below `upto` are ready, the others wait."""
        if isinstance(self.stage.spec, LateRows):
            return
        time = blobs.times(rows)
        below = time < upto
        if below.all():
            if rows.num_rows:
                turn.ready[port].append(rows)
            return
        if below.any():
            turn.ready[port].append(rows.filter(pa.array(below)))
            rows, time = rows.filter(pa.array(~below)), time[~below]
        waiting = counted(self.stage.spec, port, rows)
        store.hold(turn.head, port, int(time.min()), waiting, blobs.encode(rows))

    def _step(self, turn: Turn, store: Store, upto: int) -> tuple[list[pa.RecordBatch], int]:
        """Step the kernel over every port and save what changed; the output, and what the kernel promises."""
        spec = self.stage.spec
        kernel, layout = kernel_of(spec), blobs.layout_of(spec.output)
        live = live_state(kernel, store, turn.head, self._place, turn.bucket)
        out, promise = [], upto
        for port, schema, rows in stepped_with(spec, turn.ready):
            if rows is not None:
                batch = blobs.to_batch(rows, schema, upto, port)
            else:
                batch = Batch.empty(schema.arrow, upto, port)
            given = self._bounded.step(kernel, live, batch)
            promise = given.upto
            if len(given):
                out.append(blobs.from_batch(given, layout))
        store.put_pieces(turn.head, saving.changes(kernel, live))
        self.stage.allowed.check_memory(turn.head.kernel_bytes)
        keep_live(turn.head, self._place, turn.bucket, live)
        return out, promise

    def _late(self, turn: Turn) -> list[pa.RecordBatch]:
        """The late rows, at the time that had been reached when they came."""
        out = []
        for rows in turn.late:
            reached = pa.array(np.full(rows.num_rows, turn.head.upto, dtype=np.int64))
            out.append(rows.set_column(0, rows.schema.field(0), reached))
        return out


class KernelProcessor(StatefulProcessor):  # type: ignore[misc]
    """Runs one stage: its buckets are Spark's keys."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._run = StageRun(stage)
        self._number_of = {id_: number for number, id_ in enumerate(bucket_ids(stage.buckets))}

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._store = SoleStore(handle)

    def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: Any) -> Iterator[Any]:
        turn, now = self._begin(key), time_ns() // 1000
        arrived = []
        for frame in rows:
            columns = (frame[name] for name in ("port", "fresh", "clock", "upto", "blob"))
            for port, fresh, clock, upto, blob in zip(*columns, strict=True):
                if blob is None:
                    turn.head.tick(int(clock), int(upto), now)
                else:
                    arrived.append((int(port), bool(fresh), blob))
        return self._advance(turn, arrived, timerValues, now, fired=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        return self._advance(self._begin(key), [], timerValues, time_ns() // 1000, fired=True)

    def close(self) -> None:
        spare_collector()

    def _begin(self, key: Any) -> Turn:
        return self._run.begin(self._number_of[int(key[0])], self._store.head())

    def _advance(
        self, turn: Turn, arrived: list[tuple[int, bool, bytes]], timerValues: Any, now: int, fired: bool
    ) -> Iterator[Any]:
        head = turn.head
        watermark = timerValues.getCurrentWatermarkInMs() if self._stage.watermarked else 0
        out, promise = self._run.advance(turn, self._store, arrived, watermark, now)
        if self._stage.watermarked:
            # Spark wakes the bucket when the watermark moves again, with or without rows for it
            if head.timer >= 0 and not fired:
                self._handle.deleteTimer(head.timer)
            head.timer = max(watermark, 0) + 1
            self._handle.registerTimer(head.timer)
        self._store.put_head(head)
        yield from self._given(turn, out, promise)

    def _given(self, turn: Turn, out: list[pa.RecordBatch], promise: int) -> Iterator[Any]:
        """The rows, and what there is to tell."""
        import pandas as pd

        told = turn.told
        if not self._stage.wide:
            packed = [blobs.encode(rows) for rows in out]
            yield pd.DataFrame(
                {
                    "bucket": [turn.bucket] * (1 + len(out)),
                    "upto": pd.array([promise, *[None] * len(out)], dtype="Int64"),
                    **{name: [number, *[0] * len(out)] for name, number in told.items()},
                    "blob": pd.Series([None, *packed], dtype=object),
                }
            )
            return
        if not out:
            nothing = pa.RecordBatch.from_pylist([], blobs.layout_of(self._stage.spec.output))
            columns = wire_columns(nothing.select(nothing.schema.names[2:]))
            yield pd.DataFrame({"told": [json.dumps(told)], "row": [False], **{name: [None] for name in columns}})
        for number, rows in enumerate(out):
            columns = wire_columns(rows.select(rows.schema.names[2:]))
            text = text_once(json.dumps(told) if number == 0 else None, rows.num_rows)
            yield pd.DataFrame({"told": text, "row": np.ones(rows.num_rows, dtype=bool), **columns})


def text_once(text: str | None, count: int) -> Any:
    """A column of so many NULLs, of which the first may be a text."""
    import pandas as pd

    column = pa.concat_arrays([pa.array([text], pa.string()), pa.nulls(count - 1, pa.string())])
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([column])))
