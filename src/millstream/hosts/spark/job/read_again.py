"""What a streaming job has read of a source, read again: all of it, or the rows from a time on."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from millstream.catalog import Clock, StreamDef
from millstream.hosts.spark.arrive import ReadPaths
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.sources import Reading, fresh, tasks_for
from millstream.hosts.spark.steps import Arrows, Batches, Opening
from millstream.physical.nodes import Source
from millstream.records import dataclass


class ReadTwice(Protocol):
    """A source without an end whose rows can be read again, from what Spark's offsets name."""

    stream: StreamDef

    def opening(self, node: Source, reading: Reading) -> Opening:
        """How rows enter a worker that is given those names."""
        ...


@dataclass
class ReadSoFar:
    """What a streaming job has read of a source, in the order of its micro-batches."""

    entry: ReadTwice
    given: tuple[str, ...]
    """paths of files, or descriptions of parts"""
    since: int | None = None
    """from which time on rows matter; None: all do"""
    streaming: bool = True

    def __post_init__(self) -> None:
        self.stream = self.entry.stream

    def branch(self, node: Source, reading: Reading) -> Branch:
        df = reading.spark.range(0, len(self.given), 1, tasks_for(reading.spark, len(self.given)))
        opening, since = self.entry.opening(node, reading), self.since
        if self.stream.clock is not Clock.EXTERNAL or node.side != "main":
            since = None  # their times are others when they are read again
        if since is not None and isinstance(opening, ReadPaths):
            opening = opening.since(since)
        branch = fresh(df, node.schema, reading.clockwork, self.stream, Named(opening, self.given))
        return branch if since is None else replace(branch, steps=(RowsSince(since), *branch.steps))

    def size(self) -> int | None:
        return None


@dataclass(frozen=True)
class Named:
    """An opening that is given numbers of names, which go to the tasks in order."""

    opening: Opening
    names: tuple[str, ...]

    def __call__(self, arrows: Arrows) -> Batches:
        return self.opening(
            pa.RecordBatch.from_pydict({"name": [self.names[number] for number in batch.column(0).to_pylist()]})
            for batch in arrows
        )


@dataclass(frozen=True)
class RowsSince:
    """Rows from a time on."""

    time: int

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            late_enough = batch.time >= self.time
            yield batch if late_enough.all() else batch.take(np.flatnonzero(late_enough))
