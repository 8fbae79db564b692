"""What the footer of a Parquet file says of the values in a row group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from millstream.connectors.files.wanted import Bounds
from millstream.schema import Field

_BOUNDED = ("BOOLEAN", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMPTZ")


def has_type(file: pa.Schema, field: Field) -> bool:
    """Whether a file's column, of which there is one by that name, has exactly the declared type."""
    places = file.get_all_field_indices(field.name)
    return len(places) == 1 and bool(file.field(places[0]).type == field.type.arrow)


def bounds_of(group: Any, columns: Iterable[Field]) -> dict[str, Bounds]:
    """The bounds of columns that have their declared types, by their names in lower case, as far as they are told."""
    parts = [group.column(place) for place in range(group.num_columns)]
    often = Counter(part.path_in_schema for part in parts)
    found = {part.path_in_schema: part for part in parts if often[part.path_in_schema] == 1}
    bounds = {}
    for field in columns:
        if field.name in found:
            statistics = found[field.name].statistics
            if statistics is not None:
                bounds[field.name.lower()] = _bounds(statistics, field, group.num_rows)
    return bounds


def _bounds(statistics: Any, field: Field, rows: int) -> Bounds:
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max or not (field.type.is_integer or field.type.name in _BOUNDED):
        return Bounds(None, None, nulls, rows)
    try:
        low, high = (pa.array([end], field.type.arrow) for end in (statistics.min, statistics.max))
    except (ValueError, OverflowError, TypeError, pa.ArrowException):
        return Bounds(None, None, nulls, rows)
    if field.type.name == "DOUBLE" and (low[0].as_py() != low[0].as_py() or high[0].as_py() != high[0].as_py()):
        return Bounds(None, None, nulls, rows)
    return Bounds(low, high, nulls, rows)
