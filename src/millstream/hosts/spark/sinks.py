"""Where a program's rows go: part files written by Spark's tasks, everything else through our sinks in the driver."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from millstream.catalog import SinkDef
from millstream.connectors.contract import Sink
from millstream.connectors.registry import make_sink
from millstream.connectors.sinks.files import PartFileSink
from millstream.connectors.sinks.writers import suffix_format
from millstream.errors import EngineError
from millstream.hosts.contract import ReadyQuery
from millstream.hosts.spark import blobs
from millstream.hosts.spark.blobs import SEQ, TIME
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.steps import Arrows
from millstream.hosts.spark.surface import all_rows, exact, named
from millstream.records import dataclass
from millstream.schema import Field, Schema, unique_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITTEN = "place INT, directory STRING, count BIGINT"
_ISO = "yyyy-MM-dd HH:mm:ss[.SSSSSS]"


def write_rows(program: ReadyQuery, sink: SinkDef, branches: tuple[Branch, ...]) -> int:
    """Write a bounded run's rows, in order of time; how many there were."""
    df = all_rows(branches)
    if is_remote(sink):
        return _write_with_spark(program, sink, df)
    if is_part_sink(sink):
        return _write_parts(program, sink, df.orderBy(TIME, SEQ))
    rows = exact(df.toArrow(), program.plan.schema, program.columns)
    opened = driver_sink(program, sink)
    try:
        for batch in rows.to_batches():
            opened.write(batch)
    finally:
        opened.close()
    return int(rows.num_rows)


def driver_sink(program: ReadyQuery, sink: SinkDef) -> Sink:
    """Our own sink, open for the program's rows."""
    opened = make_sink(sink.options, sink.name)
    opened.open(written_schema(program), {})
    return opened


def look_at_output(program: ReadyQuery, checkpoint: str) -> None:
    """Before a streaming query begins: part files of another one are refused, or removed if that is asked for."""
    sink = program.sink
    if sink is None or not is_part_sink(sink) or Path(checkpoint, "offsets").exists():
        return
    opened = driver_sink(program, sink)
    first = int(opened.prepare().get("first", 0))
    opened.release()
    if first:
        raise EngineError(
            f"sink {sink.name}: a streaming query on Spark cannot append to part files of another one",
            hint="choose another path, or overwrite = true",
        )


def written_schema(program: ReadyQuery) -> Schema:
    """The columns that are written, under names that differ."""
    fields = zip(unique_names(program.columns), program.plan.schema, strict=True)
    return Schema(tuple(Field(name, field.type) for name, field in fields))


@dataclass(frozen=True)
class WriteParts:
    """A worker's step: its rows into part files of a directory of its own, which is hidden until all are done."""

    options: tuple[tuple[str, Any], ...]
    sink: str
    schema: Schema
    scratch: str

    def __call__(self, arrows: Arrows) -> Arrows:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        directory = Path(self.scratch) / f"{context.partitionId():06d}-{context.taskAttemptId()}"
        sink = make_sink({**dict(self.options), "path": str(directory)}, self.sink)
        sink.open(self.schema, {})
        layout, count = self.schema.arrow, 0
        for batch in arrows:
            sink.write(blobs.fit(batch, layout))
            count += batch.num_rows
        sink.close()
        yield pa.RecordBatch.from_arrays(
            [pa.array([context.partitionId()], pa.int32()), pa.array([str(directory)]), pa.array([count])],
            names=["place", "directory", "count"],
        )


def _write_parts(program: ReadyQuery, sink: SinkDef, df: DataFrame) -> int:
    """Let tasks write parts, then move them into place in order: readers see all of them or none."""
    directory, options = part_options(sink)
    target = Path(directory)
    opened = driver_sink(program, sink)  # looks at the parts of an earlier run
    first = int(opened.prepare().get("first", 0))
    opened.release()
    scratch = target / f".{uuid4()}"
    schema = written_schema(program)
    step = WriteParts(options, sink.name, schema, str(scratch))
    columns = [f"c{i}" for i in range(len(schema))]
    try:
        written = df.select(*columns).mapInArrow(step, WRITTEN).toArrow().to_pylist()
        number = first
        for entry in sorted(written, key=lambda entry: int(entry["place"])):
            for part in sorted(Path(entry["directory"]).glob("part-*")):
                part.rename(target / f"part-{number:05d}{part.suffix}")
                number += 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return sum(int(entry["count"]) for entry in written)


def _write_with_spark(program: ReadyQuery, sink: SinkDef, df: DataFrame) -> int:
    """Through Spark's writers, for file systems that only Spark reaches."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    form, path, options = spark_format(sink)
    counted = Observation()
    df = df.orderBy(TIME, SEQ).observe(counted, F.count(F.lit(1)).alias("rows"))
    named(df, program.columns).write.format(form).options(**options).mode(_mode(sink)).save(path)
    return int(counted.get["rows"])


def _mode(sink: SinkDef) -> str:
    """What Spark does with files that are there already."""
    asked = {name.lower() for name, value in sink.options.items() if str(value).lower() == "true"}
    return next((mode for mode in ("overwrite", "append") if mode in asked), "errorifexists")


def spark_format(sink: SinkDef) -> tuple[str, str, dict[str, str]]:
    """Spark's format, path and options for a file sink."""
    options = {name.lower(): value for name, value in sink.options.items()}
    path = _path(sink)
    form = str(options.get("format") or suffix_format(Path(path)) or "parquet")
    form = "json" if form == "jsonl" else form
    if form not in ("csv", "json", "parquet"):
        raise EngineError(f"sink {sink.name}: Spark does not write {form}", hint="format is csv, jsonl or parquet")
    chosen: dict[str, str] = {}
    if form != "parquet":
        chosen |= {"timestampNTZFormat": _ISO, "timestampFormat": _ISO + "XXX"}
    if form == "csv":
        chosen |= {"header": str(options.get("header", "true")), "sep": str(options.get("delimiter", ","))}
        chosen["escape"] = '"'
    if form == "json":
        chosen["ignoreNullFields"] = "false"
    if "compression" in options:
        chosen["compression"] = str(options["compression"])
    return form, path, chosen


def is_remote(sink: SinkDef) -> bool:
    """Whether rows go to files on a system that only Spark reaches."""
    return "://" in _path(sink) and _option(sink, "format").strip().lower() != "delta"


def is_part_sink(sink: SinkDef) -> bool:
    """Whether rows go to part files that tasks can write."""
    return not is_remote(sink) and isinstance(make_sink(sink.options, sink.name), PartFileSink)


def part_options(sink: SinkDef) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """The directory of a sink's part files, and its options with the format that the path tells."""
    target = Path(_path(sink)).expanduser().absolute()
    form = suffix_format(target)
    options = {name.lower(): value for name, value in sink.options.items()}
    return str(target), tuple((({} if form is None else {"format": form}) | options).items())


def _path(sink: SinkDef) -> str:
    return _option(sink, "path")


def _option(sink: SinkDef, wanted: str) -> str:
    return str(next((value for name, value in sink.options.items() if name.lower() == wanted), ""))
