"""Values as text, a column at a time: what CSV and JSON lines have in common."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from millstream.types import JSON, SqlType

_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def as_text(array: pa.Array) -> pa.Array:
    """The values as plain text, NULL as NULL; times are ISO 8601, with microseconds when there are any."""
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if pa.types.is_dictionary(kind):
        return as_text(array.cast(kind.value_type))
    if pa.types.is_floating(kind):
        return pc.replace_substring_regex(pc.cast(array, pa.string()), r"^(-?\d+)$", r"\1.0")
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring_regex(pc.cast(array, pa.string()), r"\.0+(Z?)$", r"\1")
        return pc.replace_substring(text, " ", "T", max_replacements=1)
    if pa.types.is_time(kind):
        return pc.replace_substring_regex(pc.cast(array, pa.string()), r"\.0+$", "")
    if pa.types.is_duration(kind):
        return _each(array, _interval)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _each(array, lambda value: base64.b64encode(value).decode())
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_list(kind):
        return _joined(array, json_values, "[]")
    if pa.types.is_map(kind):
        pairs = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        return _joined(array.cast(pairs), _map_entries, "{}")
    if pa.types.is_struct(kind):
        return _structs(array)
    return pc.cast(array, pa.string())


def _structs(array: pa.Array) -> pa.Array:
    """Structs as JSON."""
    names = [json.dumps(field.name, ensure_ascii=False) for field in array.type]
    parts: list[pa.Array | str] = []
    for place, (name, child) in enumerate(zip(names, array.flatten(), strict=True)):
        parts += [f"{',' if place else '{'}{name}:", json_values(child)]
    text = pc.binary_join_element_wise(*parts, "}", "")
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), text)


def _map_entries(entries: pa.Array) -> pa.Array:
    keys, values = entries.flatten()
    return pc.binary_join_element_wise('"', _escaped(as_text(keys)), '":', json_values(values), "")


def _joined(array: pa.Array, written: Callable[[pa.Array], pa.Array], signs: str) -> pa.Array:
    """Lists as JSON, with their elements as `written`, between two signs."""
    lengths = pc.list_value_length(array).fill_null(0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    elements = pa.ListArray.from_arrays(offsets, written(pc.list_flatten(array)))
    text = pc.binary_join_element_wise(signs[0], pc.binary_join(elements, ","), signs[1], "")
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), text)


def csv_values(array: pa.Array, delimiter: str) -> pa.Array:
    """The values as CSV fields: quoted where they must be, NULL empty."""
    text = as_text(array)
    if not (pa.types.is_primitive(array.type) or pa.types.is_decimal(array.type)) or delimiter in "-+.:TZ0123456789":
        special = pc.match_substring_regex(text, rf'^$|["\r\n{_in_class(delimiter)}]')
        if pc.any(special).as_py():
            doubled = pc.replace_substring(text, '"', '""')
            quoted = pc.binary_join_element_wise('"', doubled, '"', "")
            text = pc.if_else(special, quoted, text)
    return text.fill_null("")


def json_values(array: pa.Array, type_: SqlType | None = None) -> pa.Array:
    """The values as JSON: null for NULL, strings escaped, and texts "NaN" and "Infinity" where JSON has no number. What
    is JSON by its type stays as it is, on one line."""
    kind = array.type
    if type_ == JSON:
        return pc.replace_substring_regex(array, r"[\r\n]", " ").fill_null("null")
    text = as_text(array)
    if pa.types.is_floating(kind):
        for word, name in (("nan", '"NaN"'), ("-nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
            text = pc.if_else(pc.equal(text, word), name, text)
    elif not (
        pa.types.is_nested(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)
    ):
        text = pc.binary_join_element_wise('"', _escaped(text), '"', "")
    return text.fill_null("null")


def lines(parts: list[pa.Array | str]) -> pa.Buffer | bytes:
    """The parts of each row joined; as the last part ends in a line end, the joined strings lie behind one another."""
    joined = pc.binary_join_element_wise(*parts, "")
    if len(joined) == 0:
        return b""
    _, offsets, data = joined.buffers()
    if joined.offset == 0 and data is not None:
        last = memoryview(offsets).cast("i")[len(joined)]
        return data.slice(0, last)
    return "".join(joined.to_pylist()).encode()


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, r'[\\"\x00-\x1f\x7f]')).as_py():
        return text
    if pc.any(pc.match_substring_regex(text, r"[\x00-\x08\x0b\x0c\x0e-\x1f]")).as_py():
        return _each(text, lambda value: json.dumps(value, ensure_ascii=False)[1:-1])
    for letter, escape in _ESCAPES:
        text = pc.replace_substring(text, letter, escape)
    return text


def _each(array: pa.Array, convert: Callable[[object], str] | Callable[[bytes], str]) -> pa.Array:
    values = (None if value is None else convert(value) for value in array.to_pylist())
    return pa.array(list(values), pa.string())


def _interval(value: object) -> str:
    assert isinstance(value, timedelta)
    micros = value // timedelta(microseconds=1)
    whole, part = divmod(abs(micros), 1_000_000)
    fraction = f".{part:06d}" if part else ""
    return f"{'-' if micros < 0 else ''}PT{whole}{fraction}S"


def _in_class(letter: str) -> str:
    return f"\\{letter}" if letter in "\\]^-|" else letter
