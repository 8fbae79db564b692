"""Values as Python objects, as `nodes.Literal` holds them: their Arrow form, and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.types import ARRAY, STRUCT, SqlType

Value = Any
"""None, bool, int, float, Decimal, str, bytes, a list of them, or a tuple of a struct's fields; times, dates and
intervals are integers, and maps lists of pairs."""

_NAN = object()


def to_values(array: pa.Array, type_: SqlType) -> list[Value]:
    """The values of an Arrow array."""
    if type_.element is not None:
        flat = iter(to_values(pc.list_flatten(array), type_.element))
        lengths = pc.list_value_length(array).to_pylist()
        return [None if length is None else list(islice(flat, length)) for length in lengths]
    if type_.is_map:
        pairs = pa.list_(pa.struct([(name, part.arrow) for name, part in type_.fields]))
        return to_values(array.cast(pairs), ARRAY(STRUCT(*type_.fields)))
    if type_.is_struct:
        columns = [to_values(child, part) for child, part in zip(array.flatten(), type_.parts, strict=True)]
        valid = array.is_valid().to_pylist()
        return [row if is_there else None for row, is_there in zip(zip(*columns, strict=True), valid, strict=True)]
    if type_.is_temporal or type_.name == "INTERVAL":
        # Python's own times end with the year 9999, and have no place for microseconds since the epoch.
        array = array.cast(_storage(type_))
    values: list[Value] = array.to_pylist()
    return values


def to_arrow(values: Sequence[Value], type_: SqlType) -> pa.Array:
    """The inverse of `to_values`."""
    if type_.element is not None:
        elements = to_arrow([each for value in values if value is not None for each in value], type_.element)
        ends = accumulate((0 if value is None else len(value) for value in values), initial=0)
        valid = [value is None for value in values]
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), elements, type_.arrow, mask=pa.array(valid, pa.bool_())
        )
    if type_.is_map:
        pairs = to_arrow(values, ARRAY(STRUCT(*type_.fields)))
        offsets = pc.if_else(pairs.is_valid(), pairs.offsets[:-1], pa.scalar(None, pa.int32()))
        offsets = pa.concat_arrays([offsets, pairs.offsets[-1:]])
        return pa.MapArray.from_arrays(offsets, *pairs.values.flatten(), type=type_.arrow)
    if type_.is_struct:
        columns = [[None if row is None else row[i] for row in values] for i in range(len(type_.fields))]
        children = [to_arrow(column, part) for column, part in zip(columns, type_.parts, strict=True)]
        mask = pa.array([row is None for row in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(type_.arrow), mask=mask)
    if type_.is_temporal or type_.name == "INTERVAL":
        return pa.array(values, _storage(type_)).cast(type_.arrow)
    return pa.array(values, type_.arrow)


def _storage(type_: SqlType) -> pa.DataType:
    return pa.int32() if type_.name == "DATE" else pa.int64()


def equality_key(type_: SqlType) -> Callable[[Value], Value] | None:
    """What maps equal values to equal keys of a dictionary; None where values are their own keys."""
    return float_key if type_.name == "DOUBLE" else None


def order_key(type_: SqlType) -> Callable[[Value], Value] | None:
    """What maps values that are not NULL to keys in their order; None where values are their own keys."""
    return _float_order if type_.name == "DOUBLE" else None


def float_key(value: Value) -> Value:
    """A number as a key that equal ones share: NaN equals NaN."""
    return _NAN if value != value else value


def _float_order(value: float) -> tuple[bool, float]:
    # NaN is greater than every other number.
    return (True, 0.0) if value != value else (False, value)
