"""Arrow data to declared types: columns are matched by name, values convert without loss or their row has a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.convert.common import (
    Fitted,
    Reasons,
    Rules,
    assemble,
    blame,
    cast_each,
    did_you_mean,
    not_a,
)
from millstream.connectors.convert.domains import uuid_text, within
from millstream.connectors.convert.text import parse_text
from millstream.errors import DataError
from millstream.schema import Schema
from millstream.types import STRUCT, SqlType

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def fit_batch(batch: pa.RecordBatch, schema: Schema, rules: Rules, *, strict: bool = False) -> Fitted:
    """The batch in the declared schema; a declared column it lacks is NULL, and other columns are left out.

    Under `strict` an undeclared column is an error, for data that a caller hands over by mistake.
    """
    places = locate(batch.schema.names, schema, strict=strict)
    columns: list[pa.Array] = []
    bad: Reasons = {}
    for field, place in zip(schema, places, strict=True):
        if place is None:
            columns.append(pa.nulls(batch.num_rows, field.type.arrow))
            continue
        values, reasons = fit_column(batch.column(place), field.name, field.type, rules)
        columns.append(values)
        blame(bad, field.name, reasons)
    return assemble(columns, bad, schema, batch.num_rows)


def locate(names: list[str], schema: Schema, *, strict: bool = False) -> list[int | None]:
    """For each declared column its place among `names`, case ignored; None where it is missing."""
    if names == schema.arrow.names:
        return list(range(len(names)))
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        if strict and name not in schema:
            raise DataError(
                f"no column {name} in the stream{did_you_mean(name, schema.names)}",
                hint=f"the columns are {', '.join(schema.names)}",
            )
        found.setdefault(name.lower(), place)
    return [found.get(field.name.lower()) for field in schema]


def fit_column(array: pa.Array, name: str, type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """One column as the declared type; DataError if nothing of its Arrow type ever fits."""
    target = type_.arrow
    if type_.domain:
        values, reasons = fit_column(_storage(array), name, type_.base, rules)
        values, wrong = within(values, type_)
        return values, {**wrong, **{row: not_a(array[row].as_py(), type_) for row in reasons}}
    if array.type == target:
        return array, {}
    if pa.types.is_dictionary(array.type):
        array = _plain_text(array.dictionary).take(array.indices)
    source = array.type
    if pa.types.is_null(source):
        return pa.nulls(len(array), target), {}
    array = _plain_text(array)
    source = array.type
    if array.type == target:
        return array, {}
    if type_.is_nested and pa.types.is_string(source):
        return parse_text(array, type_, rules)
    if type_.is_nested:
        return _fit_nested(array, name, type_, rules)
    if pa.types.is_string(source) and (type_.is_temporal or type_.name in ("DECIMAL", "INTERVAL")):
        return parse_text(array, type_, rules)
    convert = _converter(source, type_)
    if convert is None:
        hint = f"declare {name} with a type that holds {source}, or convert the data first"
        raise DataError(f"column {name} is {source}, which does not convert to {type_}", hint=hint)
    values, failed = cast_each(array, target, convert)
    return values, {row: not_a(array[row].as_py(), type_) for row in failed}


def _fit_nested(array: pa.Array, name: str, type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """Lists, maps and structs with parts of other Arrow types: what all of them hold is fitted as one column."""
    is_ = pa.types
    if type_.is_struct and is_.is_struct(array.type):
        return _fit_structs(array, name, type_, rules)
    if type_.is_map and is_.is_map(array.type):
        pairs = pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)]))
        entries, wrong = _fit_lists(array.cast(pairs), name, STRUCT(*type_.fields), rules, "a map")
        keys, values = entries.values.flatten()
        offsets = pc.if_else(entries.is_valid(), entries.offsets[:-1], pa.scalar(None, pa.int32()))
        offsets = pa.concat_arrays([offsets, entries.offsets[-1:]])
        return pa.MapArray.from_arrays(offsets, keys, values, type=type_.arrow), wrong
    if type_.element is not None and (is_.is_list(array.type) or is_.is_large_list(array.type) or _is_fixed(array)):
        return _fit_lists(array, name, type_.element, rules, "an array")
    hint = f"declare {name} with a type that holds {array.type}, or convert the data first"
    raise DataError(f"column {name} is {array.type}, which does not convert to {type_}", hint=hint)


def _is_fixed(array: pa.Array) -> bool:
    return bool(pa.types.is_fixed_size_list(array.type))


def _fit_lists(array: pa.Array, name: str, element: SqlType, rules: Rules, place: str) -> tuple[pa.Array, Reasons]:
    elements, wrong = fit_column(pc.list_flatten(array), name, element, rules)
    parents = pc.list_parent_indices(array)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    values = pa.ListArray.from_arrays(offsets, elements, pa.list_(element.arrow), mask=array.is_null())
    return values, {int(parents[each].as_py()): f"in {place}: {reason}" for each, reason in reversed(wrong.items())}


def _fit_structs(array: pa.Array, name: str, type_: SqlType, rules: Rules) -> tuple[pa.Array, Reasons]:
    """Fields are found by their names; others are left out, as other columns are."""
    places = {array.type[i].name.lower(): i for i in reversed(range(array.type.num_fields))}
    children = array.flatten()
    columns, reasons = [], Reasons()
    for field, inner in type_.fields:
        place = places.get(field.lower())
        given = pa.nulls(len(array), inner.arrow) if place is None else children[place]
        column, wrong = fit_column(given, f"{name}.{field}", inner, rules)
        columns.append(column)
        for row, reason in wrong.items():
            reasons.setdefault(row, f"{field}: {reason}")
    return pa.StructArray.from_arrays(columns, fields=list(type_.arrow), mask=array.is_null()), reasons


def _storage(array: pa.Array) -> pa.Array:
    """Arrow's own UUIDs and JSON as text."""
    if not isinstance(array, pa.ExtensionArray):
        return array
    return uuid_text(array) if array.type.extension_name == "arrow.uuid" else array.storage


def _plain_text(array: pa.Array) -> pa.Array:
    """Text of Arrow's other layouts in the usual one."""
    other = pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type)
    return array.cast(pa.string()) if other else array


def _converter(source: pa.DataType, type_: SqlType) -> Any:
    """A function from arrays of `source` to the type that raises rather than lose; None if there is none."""
    is_ = pa.types
    target = type_.arrow

    def plain(array: pa.Array) -> pa.Array:
        return pc.cast(array, target)

    if type_.name in ("TIMESTAMP", "TIMESTAMPTZ"):
        if is_.is_timestamp(source):
            return lambda array: _instants(array, target)
        return (lambda array: _instants(pc.cast(array, pa.timestamp("us")), target)) if is_.is_date(source) else None
    if type_.is_integer:
        return plain if is_.is_integer(source) or is_.is_floating(source) or is_.is_decimal(source) else None
    if type_.name == "DOUBLE":
        return plain if is_.is_integer(source) or is_.is_floating(source) or is_.is_decimal(source) else None
    if type_.name == "DECIMAL":
        if is_.is_decimal(source):
            return plain
        if is_.is_integer(source):
            return lambda array: pc.cast(pc.cast(array, pa.string()), target)
        return (lambda array: _decimals(array, target)) if is_.is_floating(source) else None
    if type_.name == "DATE":
        if is_.is_timestamp(source):
            return lambda array: pc.cast(_instants(array, pa.timestamp("us")), target)
        return plain if is_.is_date(source) else None
    if type_.name == "TIME":
        return (lambda array: _coarser(array, target)) if is_.is_time(source) else None
    if type_.name == "INTERVAL":
        return (lambda array: _coarser(array, target)) if is_.is_duration(source) else None
    if type_.name == "BLOB":
        return plain if is_.is_large_binary(source) or is_.is_fixed_size_binary(source) else None
    return None


def _instants(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Timestamps of any unit and zone as UTC microseconds; digits below a microsecond are cut off, as in text."""
    return _coarser(array, pa.timestamp("us")).view(target)


def _coarser(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A temporal array in microseconds."""
    if array.type.unit == "us":
        return array.view(target)
    if array.type.unit == "ns":
        return pc.cast(_floor_thousands(array.view(pa.int64())), pa.int64()).view(target)
    wide = pc.cast(array, pa.int32()).cast(pa.int64()) if array.type.bit_width == 32 else array.view(pa.int64())
    factor = _TICKS_PER_SECOND["us"] // _TICKS_PER_SECOND[array.type.unit]
    return pc.multiply_checked(wide, factor).view(target)


def _floor_thousands(nanos: pa.Array) -> pa.Array:
    values = nanos.fill_null(0).to_numpy(zero_copy_only=False) // 1000
    mask = nanos.is_null().to_numpy(zero_copy_only=False) if nanos.null_count else None
    return pa.array(values, mask=mask)


def _decimals(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Floating point to DECIMAL where the decimal says the same number."""
    values = pc.cast(array, target)
    back = pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False)
    same = back == pc.cast(array, pa.float64()).to_numpy(zero_copy_only=False)
    if not bool(np.all(same | array.is_null().to_numpy(zero_copy_only=False))):
        raise pa.ArrowInvalid("digits would be lost")
    return values
