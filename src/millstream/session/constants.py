"""The constants of many queries, as users give them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import BindError, DataError
from millstream.schema import Field, Schema
from millstream.types import SqlType, from_arrow

Rows = Any
"""constants: dicts, an Arrow table or a DataFrame"""

Fixed = tuple[tuple[str, Any], ...]
"""the parameters that a plan is made of, with their values"""

_SAMPLES: dict[str, Any] = {
    "BOOLEAN": True, "DOUBLE": 1.0, "VARCHAR": "a", "DECIMAL": Decimal(1), "BLOB": b"a", "DATE": dt.date(2000, 1, 1),
    "TIME": dt.time(1), "TIMESTAMP": dt.datetime(2000, 1, 1), "INTERVAL": dt.timedelta(seconds=1),
    "TIMESTAMPTZ": dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
}  # fmt: skip
"""constants of each type with which a plan can be tried; for others, 1"""


def sample_of(type_: SqlType) -> Any:
    """A constant with which a plan can be tried."""
    return _SAMPLES.get(type_.name, 1)


def longest_of(table: pa.Table, schema: Schema) -> tuple[tuple[str, int], ...]:
    """The greatest values of columns with whole numbers."""
    wanted = [each.name for each in schema if each.type.is_integer and each.name in table.column_names]
    found = ((name, pc.max(table.column(name)).as_py()) for name in wanted)
    return tuple((name, most) for name, most in found if most is not None)


def put(array: Any, places: Any, values: Any) -> Any:
    """An array with values at some places, longer if need be."""
    size = int(places.max()) + 1
    if size > len(array):
        array = np.concatenate([array, np.zeros(size + size // 8 - len(array), dtype=array.dtype)])
    array[places] = values
    return array


def as_table(rows: Rows) -> pa.Table:
    """Constants as an Arrow table."""
    match rows:
        case pa.Table():
            return rows
        case pa.RecordBatch():
            return pa.Table.from_batches([rows])
        case _ if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
    try:
        return pa.Table.from_pylist(list(rows))
    except (pa.ArrowInvalid, TypeError, AttributeError) as error:
        raise DataError(f"constants are dicts, an Arrow table or a DataFrame: {error}") from None


def schema_of(table: pa.Table, key: str, used: Sequence[str]) -> Schema:
    """The columns that the constants of a set have: the key of its queries, and the parameters that they use."""
    available = f"available: {', '.join(table.column_names)}"
    if key not in table.column_names:
        raise BindError(f"the constants have no column {key}", hint=available)
    if table.num_rows == 0:
        raise BindError("a set needs at least one query", hint="the first row of constants gives their types")
    fields = []
    for column in table.schema:
        if column.name != key and column.name not in used:
            continue
        type_ = from_arrow(column.type)
        if type_ is None or type_.name == "NULL":
            raise BindError(f"constants {column.name} have the type {column.type}, which parameters cannot have")
        fields.append(Field(column.name, type_))
    if missing := [name for name in used if name not in table.column_names]:
        raise BindError(f"no constants for the parameter ${missing[0]}", hint=available)
    return Schema(tuple(fields))


def typed(rows: Rows, schema: Schema) -> pa.Table:
    """Constants as a table with these columns."""
    table = as_table(rows)
    if not table.num_columns:
        # of no rows it is not known which columns they would have
        table = schema.arrow.empty_table()
    if missing := [field.name for field in schema if field.name not in table.column_names]:
        raise DataError(f"the constants have no column {missing[0]}")
    try:
        return table.select(list(schema.names)).cast(schema.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"constants do not have the types of the first ones: {error}") from None


def divided(table: pa.Table, fixed: tuple[str, ...]) -> Iterator[tuple[Fixed, Any]]:
    """The places of the rows that have equal values for what plans are made of."""
    if not fixed:
        yield (), np.arange(table.num_rows)
        return
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, values in enumerate(zip(*(table.column(name).to_pylist() for name in fixed), strict=True)):
        places.setdefault(values, []).append(place)
    for values, own in places.items():
        yield tuple(zip(fixed, values, strict=True)), np.array(own)
