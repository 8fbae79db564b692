"""Rows for columns without a declared type: all values become text."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from millstream.catalog import StreamDef


def as_text(rows: Any, stream: StreamDef) -> Any:
    """The rows with text in the stream's undeclared columns; other forms of rows than lists and Arrow stay."""
    names = {name.lower() for name in stream.undeclared}
    if not names:
        return rows
    if isinstance(rows, pa.Table | pa.RecordBatch):
        for i, field in enumerate(rows.schema):
            if field.name.lower() in names and not pa.types.is_nested(field.type):
                rows = rows.set_column(i, pa.field(field.name, pa.string()), rows.column(i).cast(pa.string()))
        return rows
    if not isinstance(rows, list):
        return rows
    places = {i for i, field in enumerate(stream.given) if field.name.lower() in names}
    return [_row(row, places, names) for row in rows]


def _row(row: Any, places: set[int], names: set[str]) -> Any:
    if isinstance(row, dict):
        return {name: _text(value) if str(name).lower() in names else value for name, value in row.items()}
    if isinstance(row, tuple | list):
        return tuple(_text(value) if i in places else value for i, value in enumerate(row))
    return row


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float | dt.date | dt.time) else value
