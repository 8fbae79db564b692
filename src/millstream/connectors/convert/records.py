"""Python rows (tuples, lists, dicts) to batches: columns at once when all rows look alike, else row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from millstream.connectors.convert.common import Fitted, Reasons, Rules, assemble, blame, did_you_mean
from millstream.connectors.convert.values import values_to_column
from millstream.schema import Schema


def rows_to_batch(rows: Sequence[Any], schema: Schema, rules: Rules) -> Fitted:
    """The rows in the declared schema, with the reasons of those that do not fit."""
    bad: Reasons = {}
    columns = _uniform_columns(rows, schema, rules)
    if columns is None:
        columns = _columns_row_by_row(rows, schema, rules, bad)
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        array, reasons = values_to_column(values, field.type, rules)
        arrays.append(array)
        blame(bad, field.name, reasons)
    return assemble(arrays, bad, schema, len(rows))


def _uniform_columns(rows: Sequence[Any], schema: Schema, rules: Rules) -> list[list[Any]] | None:
    """Columns of values when every row is a sequence of the right length, or a dict with keys spelled one way."""
    kinds = set(map(type, rows))
    if kinds <= {tuple, list}:
        if rows and set(map(len, rows)) == {len(schema)}:
            return [list(column) for column in zip(*rows, strict=True)]
        return None
    if kinds != {dict}:
        return None
    spelled: dict[str, str] = {}
    for key in set(chain.from_iterable(rows)):
        name = key.lower() if isinstance(key, str) else None
        if name is None or name not in schema:
            if rules.json:
                continue
            return None
        if name in spelled:
            return None
        spelled[name] = key
    keys = [spelled.get(field.name.lower(), field.name) for field in schema]
    return [[row.get(key) for row in rows] for key in keys]


def _columns_row_by_row(rows: Sequence[Any], schema: Schema, rules: Rules, bad: Reasons) -> list[list[Any]]:
    columns: list[list[Any]] = [[None] * len(rows) for _ in schema]
    for number, row in enumerate(rows):
        reason = _place(row, number, columns, schema, rules)
        if reason is not None:
            bad[number] = reason
    return columns


def _place(row: Any, number: int, columns: list[list[Any]], schema: Schema, rules: Rules) -> str | None:
    """Put the row's values into the columns, or say why it is no row of this schema."""
    if isinstance(row, Mapping):
        places: dict[int, Any] = {}
        for key, value in row.items():
            if not isinstance(key, str) or key not in schema:
                if rules.json:
                    continue
                return f"unknown column {key!r}{did_you_mean(str(key), schema.names)}"
            place = schema.index(key)
            if place in places:
                return f"column {schema.fields[place].name} is given twice"
            places[place] = value
        for place, value in places.items():
            columns[place][number] = value
        return None
    if isinstance(row, (str, bytes)) or not isinstance(row, Sequence):
        wanted = "a JSON object or array" if rules.json else "a tuple, list or dict"
        return f"a row must be {wanted}, not {_kind(row, rules)}"
    if len(row) != len(schema):
        return f"{len(row)} values for the {len(schema)} columns {', '.join(schema.names)}"
    for place, value in enumerate(row):
        columns[place][number] = value
    return None


def _kind(value: Any, rules: Rules) -> str:
    if not rules.json:
        return type(value).__name__
    names = {str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
