"""A level of a job: all its kernels in one operator of Spark's, behind one exchange.

Packed rows for other levels, and those of outlets, pass through as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from time import time_ns
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming import StatefulProcessor

from millstream.errors import StateError
from millstream.hosts.spark import blobs
from millstream.hosts.spark.carry import schemas_of
from millstream.hosts.spark.job.fan import (
    PACKED_SCHEMA,
    TOLD,
    Fan,
    FanRun,
    Spread,
    Writes,
    Writing,
    blaming,
    packed_rows,
)
from millstream.hosts.spark.stage import Stage
from millstream.hosts.spark.state import Head, Store
from millstream.hosts.spark.stateful import StageRun
from millstream.hosts.spark.steps import Arrows, KernelOpening, spare_collector
from millstream.kernels.batch import Batch
from millstream.records import dataclass


@dataclass(frozen=True)
class LevelStage:
    """A stage of a level: its number in the job, the name that its state is kept under, and where its rows go."""

    number: int
    name: str
    stage: Stage
    fan: Fan

    def bucket(self, bucket: int) -> int:
        """Which of its buckets, and clocks, that is; a stage without keys has one."""
        return bucket if self.stage.spec.keys else 0


# -- bounded runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundedLevel:
    """A worker's work: all packed rows of a bucket through the kernels of a level, to the end of time, or as far as
    heartbeats say that it has come."""

    stages: tuple[LevelStage, ...]
    spread: Spread

    def __call__(self, arrows: Arrows) -> Arrows:
        own = {stage.number: stage for stage in self.stages}
        parts: dict[int, list[list[pa.RecordBatch]]] = {
            number: [[] for _ in schemas_of(stage.stage.spec)] for number, stage in own.items()
        }
        layouts = {
            number: [blobs.layout_of(schema) for schema in schemas_of(stage.stage.spec)]
            for number, stage in own.items()
        }
        numbers = pa.array(list(own), pa.int32())
        told: dict[int, _Told] = {number: _Told() for number in own}
        for packed in arrows:
            taken, others = _divided(packed, numbers)
            if others.num_rows:
                yield others
            columns = [taken.column(name).to_pylist() for name in ("stage", "port", "bucket", "clock", "upto")]
            for number, port, bucket, clock, upto, blob in zip(*columns, taken.column("blob"), strict=True):
                if blob.is_valid:
                    parts[number][port].append(blobs.decode(blob.as_buffer(), layouts[number][port]))
                else:
                    told[number].take(bucket, port, clock, upto)
        for number, stage in own.items():
            rows = parts.pop(number)
            if any(rows) or told[number].buckets:
                run = FanRun(stage.fan, self.spread, number)
                opening = KernelOpening(stage.stage.spec, stage.stage.allowed)
                ends = told[number].ends
                for batch in opening.over(rows) if ends is None else opening.until(rows, ends):
                    for bucket in told[number].buckets or (0,):
                        yield from run.take(batch.on_port(stage.bucket(bucket)))
                        batch = batch.slice(0, 0)
                yield from run.end()
        spare_collector()


def _divided(packed: pa.RecordBatch, stages: pa.Array) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The packed rows of these stages, and those of others."""
    mine = pc.is_in(packed.column("stage"), value_set=stages)
    if mine.true_count == len(mine):
        return packed, packed.slice(0, 0)
    return packed.filter(mine), packed.filter(pc.invert(mine))


class _Told:
    """What heartbeats say to a stage in a bounded run: every clock of every port is told to all buckets."""

    def __init__(self) -> None:
        self.buckets: set[int] = set()
        self._clocks: dict[tuple[int, int], int] = {}

    def take(self, bucket: int, port: int, clock: int, upto: int) -> None:
        self.buckets.add(bucket)
        self._clocks[port, clock] = max(upto, self._clocks.get((port, clock), upto))

    @property
    def ends(self) -> dict[int, int] | None:
        """How far time has come on each port; None is to the end."""
        ends: dict[int, int] = {}
        for (port, _), upto in self._clocks.items():
            ends[port] = min(upto, ends.get(port, upto))
        return ends or None


# -- streaming queries -------------------------------------------------------------------------------------------------

JOB_FORMAT = 1
"""The version of what a bucket of a level keeps in the state store; each stage in it has a format of its own."""

FRAME_BYTES = 1 << 26
"""Packed rows that leave a bucket as one frame: each costs a millisecond or two on its way to Spark."""


class LevelStore:
    """The state of all stages of a level in one bucket: one head for all, and slots in the other variables."""

    def __init__(self, handle: Any) -> None:
        self._head = handle.getValueState("heads", "heads STRING")
        self._waiting = handle.getMapState("waiting", "slot INT, number BIGINT", "blob BINARY")
        self._kernel = handle.getMapState("kernel", "slot INT, number BIGINT", "piece BINARY")
        self._near = getattr(handle, "near_bytes", None)
        self.heads: dict[str, Head] = {}
        self._slots: dict[str, int] = {}

    def load(self) -> None:
        """Read the heads of the current bucket."""
        found = self._head.get()
        saved: dict[str, Any] = (
            {"format": JOB_FORMAT, "slots": {}, "heads": {}} if found is None else json.loads(found[0])
        )
        if saved["format"] != JOB_FORMAT:
            raise StateError(
                f"the checkpoint has format {saved['format']}, this version reads format {JOB_FORMAT}",
                hint="finish the job with the version that started it, or start with a new checkpoint directory",
            )
        self._slots = saved["slots"]
        self.heads = {name: Head.read(head) for name, head in saved["heads"].items()}

    def of(self, name: str) -> Store:
        """The blobs and pieces of a stage."""
        if name not in self._slots:
            self._slots[name] = min(set(range(len(self._slots) + 1)) - set(self._slots.values()))
        return Store(self._waiting, self._kernel, (self._slots[name],), self._near)

    def forget_others(self, names: Iterable[str]) -> None:
        """Let go of what stages kept that are no more."""
        for name in set(self.heads) - set(names):
            self.of(name).clear(self.heads.pop(name))
            del self._slots[name]

    def save(self) -> None:
        heads = {name: head.saved() for name, head in self.heads.items()}
        self._head.update((json.dumps({"format": JOB_FORMAT, "slots": self._slots, "heads": heads}),))


class LevelProcessor(StatefulProcessor):  # type: ignore[misc]
    """Spark's stateful processor for a level: its buckets are Spark's keys."""

    def __init__(self, stages: tuple[LevelStage, ...], spread: Spread) -> None:
        self._stages = stages
        self._spread = spread

    def init(self, handle: Any) -> None:
        self._level = StreamingLevel(self._stages, self._spread)
        self._store = LevelStore(handle)

    def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: Any) -> Iterator[Any]:
        taken: list[TakenRow] = []
        for frame in rows:
            others = ~frame["stage"].isin([stage.number for stage in self._stages])
            if others.any():
                yield frame[others]
                frame = frame[~others]
            taken += zip(*(frame[name] for name in TAKEN), frame["blob"], strict=True)
        packed: list[pa.RecordBatch] = []
        for part in self._level.take(self._store, int(key[0]), taken):
            packed.append(part)
            if sum(rows.nbytes for rows in packed) > FRAME_BYTES:
                yield _frame(packed)
                packed = []
        if packed:
            yield _frame(packed)

    def close(self) -> None:
        spare_collector()


@dataclass(frozen=True)
class FileLevel:
    """A worker's work on a level whose state is in files."""

    level: int
    stages: tuple[LevelStage, ...]
    spread: Spread
    joins: bool = False
    """whether these stages are new beside those whose state the micro-batch has left"""
    writes: Writes | None = None
    """if no stage comes after: how rows of outlets are written"""

    def __call__(self, arrows: Arrows) -> Arrows:
        from millstream.hosts.spark.file_state import FileValue, state_directory

        writing = None if self.writes is None else self.writes.begin()
        rows: dict[int, list[TakenRow]] = {}
        for others in by_bucket(arrows, [stage.number for stage in self.stages], rows):
            yield others if writing is None else writing.rest(others)
        level = StreamingLevel(self.stages, self.spread, self.joins, writing)
        directory, number = state_directory()
        for bucket, own in rows.items():
            value = FileValue(directory / f"level-{self.level}" / str(bucket), number + self.joins)
            yield from level.take(LevelStore(value), bucket, own)
            value.amend() if self.joins else value.save()
        if writing is not None:
            yield from writing.end()
        spare_collector()


def by_bucket(arrows: Arrows, stages: Iterable[int], rows: dict[int, list[TakenRow]]) -> Arrows:
    """Put the packed rows of these stages into `rows`, by bucket; those of others pass."""
    numbers = pa.array(list(stages), pa.int32())
    for given in arrows:
        # Spark knows of some columns that they are never NULL, and then has another schema than what leaves here
        packed = pa.RecordBatch.from_arrays(given.columns, schema=PACKED_SCHEMA)
        taken, others = _divided(packed, numbers)
        if others.num_rows:
            yield others
        told = [taken.column(name).to_pylist() for name in ("bucket", *TAKEN)]
        for (bucket, *row), blob in zip(zip(*told, strict=True), taken.column("blob"), strict=True):
            rows.setdefault(bucket, []).append((*row, blob.as_buffer() if blob.is_valid else None))


def forget_gone(directory: Path, batch: int, names: Iterable[str]) -> None:
    """Before a micro-batch: remove what stages kept in files that are no more, also in buckets that get no rows."""
    from millstream.hosts.spark.file_state import FileValue

    for bucket in directory.glob("level-*/*"):
        value = FileValue(bucket, batch)
        store = LevelStore(value)
        store.load()
        if not store.heads.keys() <= set(names):
            store.forget_others(names)
            store.save()
            value.amend()


NOTHING: Mapping[str, Sequence[int]] = {}

TAKEN = ("stage", "port", "fresh", "clock", "upto")

TakenRow = tuple[Any, ...]
"""Of a packed row: these columns, and its blob."""


class StreamingLevel:
    """The stages of a level on the buckets of a task."""

    def __init__(
        self, stages: tuple[LevelStage, ...], spread: Spread, joins: bool = False, writing: Writing | None = None
    ) -> None:
        self._joins = joins
        self._writing = writing
        self._stages = {stage.number: stage for stage in stages}
        self._runs = {stage.number: StageRun(stage.stage, stage.name) for stage in stages}
        self._names = [stage.name for stage in stages]
        self._spread = spread
        ids = spread.ids or tuple(range(spread.buckets))
        self._number_of = {id_: number for number, id_ in enumerate(ids)}

    def take(
        self, store: LevelStore, key: int, rows: Iterable[TakenRow], heard: Mapping[str, Sequence[int]] = NOTHING
    ) -> Arrows:
        """One bucket's part of a micro-batch: packed rows in, packed rows out. `heard` are clocks of stages, by name:
        how far the last micro-batch came elsewhere."""
        bucket, now = self._number_of[key], time_ns() // 1000
        arrived: dict[int, list[tuple[int, bool, bytes]]] = {}
        beats: dict[int, list[tuple[int, int]]] = {}
        for number, port, fresh, clock, upto, blob in rows:
            if blob is None:
                beats.setdefault(int(number), []).append((int(clock), int(upto)))
            else:
                arrived.setdefault(int(number), []).append((int(port), bool(fresh), blob))
        known = {number for number, own in self._stages.items() if own.name in heard}
        met = [number for number in self._stages if number in arrived or number in beats or number in known]
        if not met:
            return
        store.load()
        if self._joins:
            # what a try left that came to nothing
            store.forget_others(store.heads.keys() - set(self._names))
        for number in met:
            told = arrived.get(number, []), beats.get(number, []), heard.get(self._stages[number].name, ())
            yield from self._advance(store, number, bucket, *told, now)
        if not self._joins:
            store.forget_others(self._names)
        store.save()

    def _advance(
        self,
        store: LevelStore,
        number: int,
        bucket: int,
        arrived: list[tuple[int, bool, bytes]],
        beats: list[tuple[int, int]],
        heard: Sequence[int],
        now: int,
    ) -> Arrows:
        own, run = self._stages[number], self._runs[number]
        place = own.bucket(bucket)
        turn = run.begin(place, store.heads.get(own.name), heard)
        for clock, upto in beats:
            turn.head.tick(clock, upto, now)
        with blaming((), number):
            out, promise = run.advance(turn, store.of(own.name), arrived, 0, now)
        store.heads[own.name] = turn.head
        fan = FanRun(own.fan, self._spread, bucket, self._writing)
        schema = own.stage.spec.output
        for rows in out:
            yield from fan.take(blobs.to_batch(rows, schema, promise, place))
        yield from fan.take(Batch.empty(schema.arrow, promise, place))
        yield from fan.end()
        told = [{"bucket": bucket, "stage": number, "port": TOLD, **turn.told}]
        yield packed_rows(told, self._spread)


def _frame(parts: list[pa.RecordBatch]) -> Any:
    """Packed rows for pandas: they have no NULL but in `blob`."""
    import pandas as pd

    columns: dict[str, Any] = {
        name: np.concatenate([part.column(name).to_numpy(zero_copy_only=False) for part in parts])
        for name in PACKED_SCHEMA.names[:-1]
    }
    packed = [blob for part in parts for blob in part.column("blob").to_pylist()]
    return pd.DataFrame({**columns, "blob": pd.Series(packed, dtype=object)})
