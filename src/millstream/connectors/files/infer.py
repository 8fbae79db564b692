"""The schema of files that were not declared: from the file itself, or from a sample of its text."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from millstream.connectors.convert.common import DEFAULT_RULES
from millstream.connectors.convert.text import parse_text
from millstream.connectors.files.listing import FORMATS, FileKind, kind_of, list_files
from millstream.connectors.files.streams import ByteStream, Damaged
from millstream.connectors.text.decoder import BOM
from millstream.errors import ConnectorError, DataError
from millstream.schema import Schema
from millstream.types import TIMESTAMP

_SAMPLE_BYTES = 8 << 20


def infer_file_schema(path: str, form: str | None = None) -> Schema:
    """The schema of the first file at the path that is not empty."""
    from millstream.connectors.rows import infer_schema

    found = list_files(path, form)
    if not found:
        raise ConnectorError(f"no file at {path}", hint=f"known formats are {', '.join(FORMATS)}")
    for file in found:
        kind = kind_of(file, form)
        assert kind is not None
        if file.stat().st_size:
            return infer_schema(_text_schema(file, kind) if kind.is_text else _binary_schema(file, kind))
    raise DataError(f"{path} is empty, so its columns are unknown", hint="declare the stream with its columns")


def _binary_schema(file: Path, kind: FileKind) -> pa.Schema:
    try:
        if kind.format == "parquet":
            import pyarrow.parquet as parquet

            return parquet.read_schema(file)
        with pa.OSFile(str(file)) as raw:
            start = 8 if raw.read(6) == b"ARROW1" else 0
            raw.seek(start)
            return pa.ipc.open_stream(raw).schema
    except (pa.ArrowException, OSError) as error:
        raise ConnectorError(f"{file} is not a readable {kind.format} file: {error}") from error


def _text_schema(file: Path, kind: FileKind) -> pa.Schema:
    stream = ByteStream(file, kind.compression)
    sample = b""
    whole = False
    try:
        while len(sample) < _SAMPLE_BYTES and not whole:
            more = stream.read(_SAMPLE_BYTES - len(sample))
            whole = not more
            sample += more
    except Damaged:
        pass
    finally:
        stream.close()
    sample = sample.removeprefix(BOM)
    if not whole:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    try:
        return _csv_sample(sample, kind) if kind.format == "csv" else _json_sample(sample)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"the columns of {file} cannot be inferred from its text: {reason}",
            hint="declare the stream with its columns",
        ) from error


def _csv_sample(sample: bytes, kind: FileKind) -> pa.Schema:
    import pyarrow.csv as arrow_csv

    parse = arrow_csv.ParseOptions(
        delimiter=kind.delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip"
    )
    read = arrow_csv.ReadOptions(block_size=len(sample) + 1)
    convert = arrow_csv.ConvertOptions(null_values=[""])
    return arrow_csv.read_csv(pa.BufferReader(sample), read, parse, convert).schema


def _json_sample(sample: bytes) -> pa.Schema:
    import pyarrow.json as arrow_json

    try:
        table = arrow_json.read_json(pa.BufferReader(sample), arrow_json.ReadOptions(block_size=len(sample) + 1))
    except pa.ArrowInvalid:
        good = b"\n".join(line for line in sample.split(b"\n") if _is_object(line))
        table = arrow_json.read_json(pa.BufferReader(good), arrow_json.ReadOptions(block_size=len(good) + 1))
    fields = []
    for field in table.schema:
        if pa.types.is_string(field.type):
            # Arrow takes only whole seconds for timestamps in JSON.
            column = table.column(field.name).combine_chunks()
            values, reasons = parse_text(column, TIMESTAMP, DEFAULT_RULES)
            if not reasons and values.null_count < len(values):
                field = pa.field(field.name, pa.timestamp("us"))
        fields.append(field)
    return pa.schema(fields)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
