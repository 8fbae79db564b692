"""The part files of a streaming query, written where the rows are: a data sink of Spark's in Python.

Tasks write hidden files; when all tasks of a micro-batch are done, the driver moves them into place under names that
begin with the number of the micro-batch. Spark repeats a micro-batch whose end it did not see: then the files of the
first try are replaced by equal ones, so every row is there exactly once.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSource, WriterCommitMessage

from millstream.connectors.registry import make_sink
from millstream.durable import sync_directory
from millstream.hosts.spark import blobs
from millstream.hosts.spark.job.arrow_writer import ArrowWriter, for_tasks
from millstream.hosts.spark.meters import StreamMeter
from millstream.hosts.spark.session import register_own
from millstream.hosts.spark.steps import Opening, Step, opened, spare_collector
from millstream.records import dataclass
from millstream.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

FORMAT = "millstream_parts_sink"


@dataclass(frozen=True)
class WriteJob:
    """All that tasks need to know: how rows come to them, and how they are written."""

    opening: Opening
    steps: tuple[Step, ...]
    schema: Schema
    options: tuple[tuple[str, Any], ...]
    """those of the sink, its format among them"""
    sink: str
    target: str
    meter: StreamMeter = field(default=StreamMeter(), compare=False)

    @property
    def scratch(self) -> Path:
        """Where files are until they are all there; hidden from readers."""
        return Path(self.target) / ".unfinished"


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task wrote: its number, and the directory of its files."""

    task: int
    directory: str


class PartsSink(DataSource):  # type: ignore[misc]
    """Known to Spark by its name. There is a class for each job, which Spark sends to where it is needed."""

    job: ClassVar[WriteJob]

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return for_tasks(PartsWriter(self.job), schema)


class PartsWriter(ArrowWriter):  # type: ignore[misc]
    def __init__(self, job: WriteJob) -> None:
        self.job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: its rows into files of a directory of its own."""
        from pyspark import TaskContext

        job, context = self.job, TaskContext.get()
        directory = job.scratch / f"{context.partitionId():05d}-{uuid4()}"
        sink, count = None, 0
        for batch in opened(job.opening, job.steps, iterator):
            if not len(batch):
                continue
            if sink is None:
                sink = make_sink({**dict(job.options), "path": str(directory)}, job.sink)
                sink.open(job.schema, {})
            sink.write(blobs.fit(batch.rows, job.schema.arrow))
            count += len(batch)
        if sink is not None:
            sink.close()
        job.meter.add(count, 0)
        spare_collector()
        return Written(context.partitionId(), str(directory))

    def commit(self, messages: list[Written | None], batchId: int) -> None:
        """In the driver: the files of a micro-batch appear in place of those of an earlier try."""
        target = Path(self.job.target)
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob(f"part-{batchId:08d}?????*"):
            old.unlink()
        for message in messages:
            if message is None:
                continue
            for number, part in enumerate(sorted(Path(message.directory).glob("part-*"))):
                part.rename(target / f"part-{batchId:08d}{message.task:05d}{number:03d}{part.suffix}")
        sync_directory(target)
        shutil.rmtree(self.job.scratch, ignore_errors=True)

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        shutil.rmtree(self.job.scratch, ignore_errors=True)


def writer_of(df: DataFrame, job: WriteJob) -> DataStreamWriter:
    """The DataFrame, as `job` takes its rows, on its way to part files."""
    return df.writeStream.format(register_own(df.sparkSession, PartsSink, FORMAT, job=job))
