"""Where a program's rows go: files through Spark's own writers, everything else through our sinks in the driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.catalog import SinkDef
from millstream.connectors.contract import Sink
from millstream.hosts.contract import Program
from millstream.hosts.spark.blobs import SEQ, TIME
from millstream.hosts.spark.branches import Branch
from millstream.hosts.spark.surface import all_rows, exact, named
from millstream.schema import Field, Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS = ("csv", "json", "parquet")
_ISO = "yyyy-MM-dd HH:mm:ss[.SSSSSS]"


def spark_format(sink: SinkDef) -> tuple[str, str, dict[str, str]] | None:
    """Spark's format, path and options for a file sink; None if Spark does not write it."""
    from millstream.connectors.files.listing import kind_of

    options = {name.lower(): value for name, value in sink.options.items()}
    if options.get("connector") not in ("file", "files", "filesystem") or "path" not in options:
        return None
    path = str(options["path"])
    form = options.get("format")
    kind = kind_of(Path(path), None if form is None else str(form))
    if kind is None or kind.format not in FORMATS or kind.compression is not None:
        return None
    chosen = {"timestampNTZFormat": _ISO, "timestampFormat": _ISO + "XXX"} if kind.is_text else {}
    if kind.format == "csv":
        chosen |= {"header": "true", "sep": str(options.get("delimiter", kind.delimiter)), "escape": '"'}
        chosen["nullValue"] = str(options.get("null", ""))
    if kind.format == "json":
        chosen["ignoreNullFields"] = "false"
    return kind.format, path, chosen


def write_rows(program: Program, sink: SinkDef, branches: tuple[Branch, ...]) -> int:
    """Write a bounded run's rows, in order of time; how many there were."""
    df = all_rows(branches)
    chosen = spark_format(sink)
    if chosen is None:
        return _write_in_driver(program, sink, df)
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    form, path, options = chosen
    counted = Observation()
    df = df.orderBy(TIME, SEQ).observe(counted, F.count(F.lit(1)).alias("rows"))
    named(df, program.columns).write.format(form).options(**options).mode("overwrite").save(path)
    return int(counted.get["rows"])


def driver_sink(program: Program, sink: SinkDef) -> Sink:
    """Our own sink, open for the program's rows."""
    from millstream.connectors.registry import make_sink
    from millstream.hosts.spark.surface import distinct_names

    opened = make_sink(sink.options, sink.name)
    fields = zip(distinct_names(program.columns), program.plan.schema, strict=True)
    opened.open(Schema(tuple(Field(name, field.type) for name, field in fields)), {})
    return opened


def _write_in_driver(program: Program, sink: SinkDef, df: DataFrame) -> int:
    rows = exact(df.toArrow(), program.plan.schema, program.columns)
    opened = driver_sink(program, sink)
    try:
        for batch in rows.to_batches():
            opened.write(batch)
    finally:
        opened.close()
    return int(rows.num_rows)
