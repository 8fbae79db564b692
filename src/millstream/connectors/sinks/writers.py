"""One file being written, in each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from millstream.connectors.sinks.render import csv_values, json_values, lines
from millstream.schema import Schema, unique_names
from millstream.types import SqlType

SUFFIXES = {"parquet": ".parquet", "csv": ".csv", "jsonl": ".jsonl", "arrow": ".arrow"}
FORMATS = tuple(SUFFIXES)


class BatchWriter(Protocol):
    """Writes batches to an open file, which stays open."""

    def write(self, rows: pa.RecordBatch) -> None: ...

    def finish(self) -> None:
        """Write what the format wants at the end."""
        ...


def open_writer(
    form: str, file: BinaryIO, schema: Schema, *, header: bool = True, delimiter: str = ",", compression: str = "snappy"
) -> BatchWriter:
    """A writer of the format; columns with the same name are told apart by a number."""
    names = unique_names(field.name for field in schema.fields)
    if form == "csv":
        return _CsvWriter(file, names, delimiter, header)
    if form == "jsonl":
        return _JsonWriter(file, names, [field.type for field in schema.fields])
    arrow = pa.schema([pa.field(name, field.type.arrow) for name, field in zip(names, schema.fields, strict=True)])
    return _ParquetWriter(file, arrow, compression) if form == "parquet" else _ArrowWriter(file, arrow)


def suffix_format(path: Path) -> str | None:
    """The format that a path's name says."""
    suffix = path.suffix.lower()
    if suffix in (".json", ".ndjson"):
        return "jsonl"
    return next((form for form, known in SUFFIXES.items() if suffix == known), None)


class _CsvWriter:
    def __init__(self, file: BinaryIO, names: list[str], delimiter: str, header: bool) -> None:
        self._file = file
        self._delimiter = delimiter
        if header:
            fields = csv_values(pa.array(names, pa.string()), delimiter).to_pylist()
            file.write((delimiter.join(fields) + "\n").encode())

    def write(self, rows: pa.RecordBatch) -> None:
        parts: list[Any] = []
        for column in rows.columns:
            parts += [csv_values(column, self._delimiter), self._delimiter]
        self._file.write(lines([*parts[:-1], "\n"]))

    def finish(self) -> None:
        return


class _JsonWriter:
    def __init__(self, file: BinaryIO, names: list[str], types: list[SqlType]) -> None:
        self._file = file
        self._types = types
        self._keys = [json.dumps(name, ensure_ascii=False) + ":" for name in names]

    def write(self, rows: pa.RecordBatch) -> None:
        parts: list[Any] = []
        for place, (key, column, type_) in enumerate(zip(self._keys, rows.columns, self._types, strict=True)):
            parts += [("," if place else "{") + key, json_values(column, type_)]
        self._file.write(lines([*parts, "}\n"]))

    def finish(self) -> None:
        return


class _ParquetWriter:
    def __init__(self, file: BinaryIO, schema: pa.Schema, compression: str) -> None:
        import pyarrow.parquet as parquet

        self._schema = schema
        # Checksums let a reader notice damage that would otherwise pass for data.
        self._writer: Any = parquet.ParquetWriter(file, schema, compression=compression, write_page_checksum=True)

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(pa.RecordBatch.from_arrays(rows.columns, schema=self._schema))

    def finish(self) -> None:
        self._writer.close()


class _ArrowWriter:
    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer: Any = pa.ipc.new_file(file, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(pa.RecordBatch.from_arrays(rows.columns, schema=self._schema))

    def finish(self) -> None:
        self._writer.close()
