"""The part files of a job on Spark Connect, which runs no functions of ours in the driver: a data sink in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, WriterCommitMessage

from millstream.hosts.spark.job.arrow_writer import ArrowWriter, for_tasks
from millstream.hosts.spark.job.fan import PACKED_SCHEMA, WRITTEN, outlet_number
from millstream.hosts.spark.job.outlets import WriteOutlets
from millstream.records import dataclass

SINK_FORMAT = "millstream_outlets"


@dataclass
class WrittenOutlets(WriterCommitMessage):  # type: ignore[misc]
    """What a task wrote: of each outlet its number, its task and the directory of its files."""

    directories: list[tuple[int, int, str]]


class OutletsSink(DataSource):  # type: ignore[misc]
    """Known to Spark by its name. There is a class for each job, which Spark sends to where it is needed."""

    work: ClassVar[WriteOutlets]

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return for_tasks(OutletsWriter(self.work), schema)


class OutletsWriter(ArrowWriter):  # type: ignore[misc]
    def __init__(self, work: WriteOutlets) -> None:
        self.work = work

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenOutlets:
        """In a task: its rows into files of directories of its own."""
        written = pa.Table.from_batches(list(self.work(iterator)), PACKED_SCHEMA)
        columns = (written.column(name).to_pylist() for name in ("stage", "port", "bucket", "blob"))
        told = [row for row in zip(*columns, strict=True) if row[1] == WRITTEN]
        return WrittenOutlets([(outlet_number(stage), task, directory.decode()) for stage, _, task, directory in told])

    def commit(self, messages: list[WrittenOutlets | None], batchId: int) -> None:
        """In the driver: the files of a micro-batch appear in place of those of an earlier try."""
        told = [entry for message in messages if message is not None for entry in message.directories]
        for number, files in self.work.files.items():
            files.commit(batchId, [(task, directory) for outlet, task, directory in told if outlet == number])

    def abort(self, messages: list[WrittenOutlets | None], batchId: int) -> None:
        """Files of the try stay hidden; the next commit removes them."""
