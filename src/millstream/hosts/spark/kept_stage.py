"""Kernels in streaming queries that keep their state in files: how rows enter a worker, as packed rows of buckets."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from time import time_ns
from typing import Any

import pyarrow as pa

from millstream.hosts.spark import blobs
from millstream.hosts.spark.checkpoints import bucket_count
from millstream.hosts.spark.meters import told_numbers
from millstream.hosts.spark.stage import Stage, bucket_ids
from millstream.hosts.spark.steps import Arrows, Batches, ClosingStep, Pipeline, Step
from millstream.kernels.batch import BEGIN, Batch
from millstream.records import dataclass


@dataclass(frozen=True)
class StageOpening:
    """An opening: packed rows through the kernels of their buckets, each with its state."""

    stage: Stage
    told: Counter[str] = field(default_factory=Counter, compare=False)
    """what there is to tell of the task, when all rows have passed"""

    def __call__(self, arrows: Arrows) -> Batches:
        # not before there are rows: only workers have what these need
        from millstream.hosts.spark import file_state
        from millstream.hosts.spark.state import SoleStore
        from millstream.hosts.spark.stateful import StageRun

        self.told.clear()
        stage, clocks = self.stage, self.stage.buckets
        if not stage.fixed:
            stage = replace(stage, buckets=bucket_count(clocks))
        run, schema, now = StageRun(stage), stage.spec.output, time_ns() // 1000
        directory, number = file_state.state_directory()
        for bucket, rows in _by_bucket(arrows, stage.buckets).items():
            value = file_state.FileValue(directory / str(stage.number) / str(bucket), number)
            store = SoleStore(value)
            turn = run.begin(bucket, store.head())
            arrived = []
            for port, fresh, clock, upto, blob in rows:
                if blob.is_valid:
                    arrived.append((port, fresh, blob.as_buffer()))
                else:
                    turn.head.tick(clock, upto, now)
            out, promise = run.advance(turn, store, arrived, 0, now)
            store.put_head(turn.head)
            value.save()
            self.told.update(turn.told)
            for part in out:
                yield blobs.to_batch(part, schema, BEGIN, bucket)
            # those who follow have a clock for each bucket of the plan, also for those that are not used
            for clock in range(bucket, clocks, stage.buckets):
                yield Batch.empty(schema.arrow, promise, clock)


def _by_bucket(arrows: Arrows, buckets: int) -> dict[int, list[tuple[Any, ...]]]:
    numbers = {id_: number for number, id_ in enumerate(bucket_ids(buckets))}
    found: dict[int, list[tuple[Any, ...]]] = {}
    for packed in arrows:
        told = [packed.column(name).to_pylist() for name in ("bucket", "port", "fresh", "clock", "upto")]
        for id_, *row in zip(*told, packed.column("blob"), strict=True):
            found.setdefault(numbers[id_], []).append(tuple(row))
    return found


@dataclass(frozen=True)
class Telling:
    """A worker's work that begins with a stage: the last rows have nothing but what it tells, in one more column."""

    opening: StageOpening
    steps: tuple[Step, ...]
    closing: ClosingStep

    def __call__(self, arrows: Arrows) -> Arrows:
        for rows in Pipeline(self.opening, self.steps, self.closing)(arrows):
            yield rows.append_column("told", pa.nulls(rows.num_rows, pa.int64()))
        told = pa.array(told_numbers(self.opening.told), pa.int64())
        nothing = [pa.nulls(len(told), field.type) for field in self.closing.columns]
        yield pa.RecordBatch.from_arrays([*nothing, told], names=[*self.closing.columns.names, "told"])
