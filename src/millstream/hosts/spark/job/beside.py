"""Stages beside a source: where a partition of it has all rows of a key, they run where its rows are read.

What is exchanged then are the descriptions of what to read, those of a partition into one bucket, and no rows. A bucket
of such a stage keeps the state of its partitions' keys. It hears of time that passed in other buckets in the next
micro-batch: each task leaves in a file beside the state how far its clocks have come. So the same rows are late as
behind an exchange.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from millstream.hosts.spark.file_state import KEPT_VERSIONS, FileValue, state_directory
from millstream.hosts.spark.job.fan import PACKED_SCHEMA, Fan, FanOut, FanRun, Spread
from millstream.hosts.spark.job.levels import BoundedLevel, LevelStage, LevelStore, StreamingLevel, TakenRow, by_bucket
from millstream.hosts.spark.stage import spark_hash
from millstream.hosts.spark.steps import Arrows, Batches, Opening, Step, opened, spare_collector
from millstream.records import dataclass

Clocks = Mapping[str, Sequence[int]]
"""Of stages, by name, how far their clocks have come."""


@dataclass(frozen=True)
class BoundedBeside:
    """How rows leave a worker that reads whole keys, in a bounded run: through the stages that need no others."""

    columns = PACKED_SCHEMA

    fan: Fan
    spread: Spread
    stages: tuple[LevelStage, ...]

    def __call__(self, batches: Batches) -> Arrows:
        return BoundedLevel(self.stages, self.spread)(FanOut(self.fan, self.spread)(batches))


@dataclass(frozen=True)
class StreamingBeside:
    """All that a worker does in a micro-batch for the partitions in its buckets. `tasks` share all buckets."""

    opening: Opening
    steps: tuple[Step, ...]
    fan: Fan
    spread: Spread
    stages: tuple[LevelStage, ...]
    place: str
    tasks: int

    def __call__(self, arrows: Arrows) -> Arrows:
        from pyspark import TaskContext

        assert self.spread.ids is not None
        task: Any = TaskContext.get()
        own = [key for key in self.spread.ids if spark_hash(key) % self.tasks == task.partitionId()]
        directory, number = state_directory()
        place = directory / self.place
        heard = Notes(place).heard(number)
        rows: dict[int, list[TakenRow]] = {}
        yield from by_bucket(self._read(arrows, own), [stage.number for stage in self.stages], rows)
        level = StreamingLevel(self.stages, self.spread)
        for key in own:
            value = FileValue(place / str(key), number)
            store = LevelStore(value)
            yield from level.take(store, key, rows.get(key, []), heard)
            value.save()
            Notes(place).leave(number, {name: head.clocks for name, head in store.heads.items()})
        spare_collector()

    def _read(self, arrows: Arrows, own: Sequence[int]) -> Arrows:
        """The rows of all buckets, packed; those of each go to its own stages."""
        ids = self.spread.ids or ()
        numbers = frozenset(stage.number for stage in self.stages)
        runs = {key: FanRun(self.fan.at_home(ids.index(key), numbers), self.spread, ids.index(key)) for key in own}
        reading = own[0] if own else -1

        def given() -> Iterator[pa.RecordBatch]:
            nonlocal reading
            for told in arrows:
                keys = told.column("bucket")
                for reading in pc.unique(keys).to_pylist():
                    yield told.filter(pc.equal(keys, reading))

        for batch in opened(self.opening, self.steps, given()):
            # work takes what it is given piece by piece, so rows are those of the bucket that was given last
            for run in [runs[reading]] if len(batch) else runs.values():
                yield from run.take(batch)
        for run in runs.values():
            yield from run.end()


class Notes:
    """How far time had come in each bucket after micro-batches that read the source, and what heartbeats said."""

    def __init__(self, place: Path) -> None:
        self._place = place / "time"

    def leave(self, number: int, clocks: Clocks) -> None:
        """What a bucket has to say to the next micro-batch: also what it has heard itself."""
        self._write(f"{number}-read", clocks)

    def beat(self, number: int, clocks: Clocks) -> None:
        """What heartbeats have said so far, perhaps in a micro-batch without rows of the source."""
        self._write(f"{number}-beat", clocks)
        for path in self._place.glob("*-beat-*"):
            if _number(path) < number - KEPT_VERSIONS:
                path.unlink(missing_ok=True)

    def heard(self, number: int) -> dict[str, list[int]]:
        """What was said before that micro-batch."""
        notes = [path for path in self._place.glob("[0-9]*") if _number(path) < number]
        last = max((_number(path) for path in notes if "-read-" in path.name), default=0)
        heard: dict[str, list[int]] = {}
        for path in notes:
            if _number(path) < last - KEPT_VERSIONS:
                path.unlink(missing_ok=True)
            elif _number(path) >= last:
                # a later heartbeat may be about to take the place of an earlier one
                with suppress(FileNotFoundError):
                    for stage, own in json.loads(path.read_text()).items():
                        heard[stage] = [max(pair) for pair in zip(own, heard.get(stage, own), strict=True)]
        return heard

    def _write(self, name: str, clocks: Clocks) -> None:
        self._place.mkdir(parents=True, exist_ok=True)
        partial = self._place / f".{name}-{uuid4().hex}"
        partial.write_text(json.dumps({stage: list(own) for stage, own in clocks.items()}))
        partial.rename(self._place / partial.name[1:])


def _number(path: Path) -> int:
    return int(path.name.partition("-")[0])
