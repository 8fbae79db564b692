"""Data that users hand over: rows and frames pushed into a stream, tables and files registered as a source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import is_ascii, one_batch
from millstream.connectors.contract import Rejected, RowSource
from millstream.connectors.convert.common import DEFAULT_RULES, empty
from millstream.connectors.convert.fit import fit_batch
from millstream.connectors.convert.records import rows_to_batch
from millstream.connectors.tables import DatasetSource, TableSource, rejections
from millstream.connectors.text.pushed import TextRows
from millstream.errors import DataError
from millstream.schema import Field, Schema
from millstream.types import BIGINT, VARCHAR, SqlType, from_arrow

_ACCEPTED = "a list of tuples or dicts, a pyarrow Table or RecordBatch, or a pandas or polars DataFrame"
_LONGEST_TEXT = 10_000


def to_batch(data: Any, schema: Schema, origin: str) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
    """The pushed rows in the stream's schema, and those that do not fit it; DataError if they are no rows at all."""
    if isinstance(data, TextRows):
        return data.fitted(schema, origin)
    table = as_table(data)
    if table is not None:
        return _fit_table(table, schema, origin)
    rows = _as_rows(data, schema)
    fitted = rows_to_batch(rows, schema, DEFAULT_RULES)
    if len(fitted.bad) == len(rows) > 0 and not any(isinstance(row, (tuple, list, Mapping)) for row in rows):
        raise DataError(f"a row is a tuple, list or dict, not {type(rows[0]).__name__}", hint=f"push {_ACCEPTED}")
    rejected = (
        Rejected(reason, _shorten(repr(rows[row])), f"{origin}:{row + 1}") for row, reason in fitted.bad.items()
    )
    return fitted.rows, tuple(rejected)


def to_batches(source: Any, schema: Schema | None, name: str = "data") -> tuple[Schema, RowSource]:
    """A bounded, replayable source over a table, frame, dataset or path, with its schema if none is given."""
    if isinstance(source, (str, Path)):
        return _from_path(str(source), schema)
    if _is_dataset(source):
        declared = schema or infer_schema(source.schema, lambda column: _dataset_maximum(source, column))
        fit_batch(empty_like(source.schema), declared, DEFAULT_RULES)
        return declared, DatasetSource(source, declared, name)
    table = source.read_all() if isinstance(source, pa.RecordBatchReader) else as_table(source)
    if table is None:
        raise DataError(
            f"{type(source).__name__} is not a source of rows",
            hint="register a pyarrow Table, RecordBatchReader or Dataset, a pandas or polars DataFrame, or a path",
        )
    declared = schema or infer_schema(table.schema, lambda column: pc.max(table.column(column)).as_py())
    fit_batch(empty_like(table.schema), declared, DEFAULT_RULES)
    return declared, TableSource(table, declared, name)


def infer_schema(arrow: pa.Schema, maximum: Any = None) -> Schema:
    """The SQL schema that holds Arrow data; `maximum(column)` is asked of columns whose type may not fit."""
    fields = []
    for field in arrow:
        fields.append(Field(field.name, _infer_type(field, maximum)))
    try:
        return Schema(tuple(fields))
    except ValueError as error:
        raise DataError(str(error), hint="column names must differ; case is ignored") from error


def empty_like(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of no rows in an Arrow schema."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _infer_type(field: pa.Field, maximum: Any) -> SqlType:
    if pa.types.is_uint64(field.type):
        largest = maximum(field.name) if maximum is not None else None
        if largest is None or largest < 2**63:
            return BIGINT
        raise DataError(
            f"column {field.name} holds {largest}, which is out of range for BIGINT",
            hint=f"cast {field.name} to a decimal or text first",
        )
    type_ = VARCHAR if pa.types.is_null(field.type) else from_arrow(field.type)
    if type_ is None:
        raise DataError(
            f"column {field.name} has the Arrow type {field.type}, which has no SQL type here",
            hint=f"drop {field.name}, or cast it to text or to plain columns first",
        )
    return type_


def _dataset_maximum(dataset: Any, column: str) -> Any:
    return pc.max(dataset.to_table(columns=[column]).column(column)).as_py()


def _is_dataset(source: Any) -> bool:
    return type(source).__module__.startswith("pyarrow._dataset") and hasattr(source, "to_batches")


def _from_path(path: str, schema: Schema | None) -> tuple[Schema, RowSource]:
    from millstream.connectors.files.infer import infer_file_schema
    from millstream.connectors.files.source import FileSource

    declared = schema or infer_file_schema(path)
    source = FileSource(path, declared)
    source.files()
    return declared, source


def as_table(data: Any) -> pa.Table | None:
    """Arrow data and frames as a table; None for anything else."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        try:
            return pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowException, OverflowError):
            # A column of mixed Python objects: let the rows be judged one by one.
            return None
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)])
    return None


def _fit_table(table: pa.Table, schema: Schema, origin: str) -> tuple[pa.RecordBatch, tuple[Rejected, ...]]:
    if table.num_rows == 0:
        fit_batch(empty_like(table.schema), schema, DEFAULT_RULES, strict=True)
        return empty(schema), ()
    batch = one_batch(table.to_batches())
    try:
        # nobody has checked foreign Arrow data yet; text that is none would fail wherever it is first looked at
        batch.validate()
        for column in batch.columns:
            if not is_ascii(column):
                column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(f"this is not valid Arrow data: {error}", hint="no row was accepted") from None
    fitted = fit_batch(batch, schema, DEFAULT_RULES, strict=True)
    return fitted.rows, rejections(fitted, batch, origin)


def _as_rows(data: Any, schema: Schema) -> list[Any]:
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "to_dict"):
        return [
            {key: None if value != value else value for key, value in row.items()} for row in data.to_dict("records")
        ]
    if isinstance(data, Mapping) or (is_dataclass(data) and not isinstance(data, type)):
        raise DataError("a single row must be in a list", hint="push [row] instead of row")
    if isinstance(data, tuple) and data and not isinstance(data[0], (tuple, list, Mapping)):
        raise DataError("a single row must be in a list", hint="push [row] instead of row")
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise DataError(f"{type(data).__name__} is not rows", hint=f"push {_ACCEPTED}")
    rows = data if isinstance(data, list) else list(data)
    if rows and not isinstance(rows[0], (tuple, list, Mapping)) and any(map(is_dataclass, rows)):
        rows = [asdict(row) if is_dataclass(row) and not isinstance(row, type) else row for row in rows]
    if len(rows) == len(schema) > 1 and not any(isinstance(row, (tuple, list, Mapping)) for row in rows):
        raise DataError("a single row must be in a list", hint="push [row] instead of row")
    return rows


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + f"... ({len(text)} characters)"
