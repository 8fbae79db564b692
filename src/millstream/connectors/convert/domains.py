"""Values of domains: those of the type that carries them, checked a column at a time."""

from __future__ import annotations

import threading
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.convert.common import Reasons, not_a, null_out
from millstream.expressions.duckdb_batch import DuckBatch
from millstream.expressions.functions.literals import TEXT_FORMS
from millstream.expressions.nodes import Cast, Column
from millstream.types import SqlType, integer_bounds

_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_HYPHENS = (8, 13, 18, 23)


def within(values: pa.Array, type_: SqlType) -> tuple[pa.Array, Reasons]:
    """Values of a domain's base as those of the domain, NULL where one is none, with the reasons."""
    if not type_.domain:
        return values, {}
    checked = _checked(values, type_)
    if checked.null_count == values.null_count:
        return checked, {}
    wrong = np.flatnonzero(pc.and_(values.is_valid(), checked.is_null()).to_numpy(zero_copy_only=False))
    return checked, {int(row): not_a(_shown(values[int(row)]), type_) for row in wrong}


def _checked(values: pa.Array, type_: SqlType) -> pa.Array:
    bounds = integer_bounds(type_)
    if bounds is not None:
        ends = pc.min_max(values).as_py()
        if ends["min"] is None or (bounds[0] <= ends["min"] and ends["max"] <= bounds[1]):
            return values
        low, high = (pa.scalar(bound, values.type) for bound in bounds)
        beyond = pc.or_(pc.less(values, low), pc.greater(values, high)).fill_null(False)
        return null_out(values, np.flatnonzero(beyond.to_numpy(zero_copy_only=False)))
    if type_.domain == "UUID":
        fits = pc.match_substring_regex(values, f"^(?:{TEXT_FORMS['UUID']})$")
        return pc.if_else(fits, pc.utf8_lower(values), pa.scalar(None, pa.string()))
    (found,) = _in_duckdb(type_, threading.get_ident())(pa.record_batch([values], names=["x"]))
    return found


@lru_cache(maxsize=64)
def _in_duckdb(type_: SqlType, thread: int) -> DuckBatch:
    return DuckBatch([Cast(type_, Column(type_.base, "x"), safe=True)])


def _shown(value: pa.Scalar) -> object:
    python = value.as_py()
    return python if isinstance(python, str) else int(python)


def uuid_text(array: pa.Array) -> pa.Array:
    """UUIDs of 16 bytes as text."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    given = np.frombuffer(storage.buffers()[1], dtype=np.uint8)[16 * storage.offset :][: 16 * len(storage)]
    letters = np.full((len(storage), 36), ord("-"), dtype=np.uint8)
    places = [place for place in range(36) if place not in _HYPHENS]
    pairs = np.stack([given >> 4, given & 15], axis=1).reshape(len(storage), 32)
    letters[:, places] = _DIGITS[pairs]
    offsets = pa.py_buffer(np.arange(0, 36 * len(storage) + 1, 36, dtype=np.int32))
    text = pa.Array.from_buffers(pa.string(), len(storage), [None, offsets, pa.py_buffer(letters.tobytes())])
    return pc.if_else(storage.is_valid(), text, pa.scalar(None, pa.string()))
