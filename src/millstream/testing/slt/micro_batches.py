"""A session on Spark in which every push is a micro-batch: rows become files, queries run over them as they appear."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.catalog import StreamDef
from millstream.connectors.rows import to_batch
from millstream.errors import UnsupportedError
from millstream.session.database import Database

END = dt.datetime(2030, 1, 1)
"""When a last row of every stream comes, which makes all before it final: a streaming query has no end of its own."""


class MicroBatches:
    """Stands for a `Database` on Spark; queries run at `restart` and at `finish`, each time from their checkpoint."""

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._directory = directory
        self._files = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @property
    def surplus(self) -> int:
        """How many rows of a result, at most, come from the last rows that were added here."""
        return len(self._streams())

    def push(self, stream: str, rows: list[Any]) -> None:
        definition = self._database.catalog.get(stream, StreamDef)
        batch, _ = to_batch(rows, definition.schema, stream)
        self._write(definition, batch)

    def advance(self, stream: str, time: dt.datetime | int) -> None:
        """Spark's watermark follows the rows alone."""

    def restart(self) -> None:
        """Run over what has been pushed so far; the next run resumes from there."""
        host: Any = self._database._host
        for stream in self._streams():
            columns = ", ".join(f"`{field.name}` {field.type.spark}" for field in stream.schema)
            reader = host.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
            host.register_stream(stream, reader.parquet(str(self._home(stream))))
        if host.started():
            job = host.start_job(host.started(), str(self._directory / "checkpoint"), {"availableNow": True})
            job.wait()

    def finish(self) -> None:
        for stream in self._streams():
            if stream.time_column is None:
                raise UnsupportedError(f"{stream.name} has no times, and Spark makes rows final by time")
            last = pa.RecordBatch.from_pylist([{stream.time_column: END}], schema=stream.schema.arrow)
            self._write(stream, last)
        self.restart()

    def _streams(self) -> list[StreamDef]:
        return [entry for entry in self._database.catalog.entries() if isinstance(entry, StreamDef)]

    def _home(self, stream: StreamDef) -> Path:
        home = self._directory / "streams" / stream.name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _write(self, stream: StreamDef, rows: pa.RecordBatch) -> None:
        self._files += 1
        path = self._home(stream) / f"{self._files:04}.parquet"
        hidden = path.with_name("." + path.name)
        pq.write_table(pa.Table.from_batches([rows]), hidden)
        # Spark reads files in order of their age, in milliseconds
        os.utime(hidden, (1_600_000_000 + self._files,) * 2)
        hidden.rename(path)
