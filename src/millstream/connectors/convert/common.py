"""What all conversions share: the rules chosen by the user, the result with its bad rows, and a cast row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import nearest
from millstream.records import dataclass
from millstream.schema import Schema
from millstream.types import JSON, SqlType

Reasons = dict[int, str]
"""Row number → why that row does not fit."""

CAST_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError)

# The instants that Python, Arrow's text forms and Spark all can show: years 1 to 9999.
MICROS_MIN, MICROS_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
DAYS_MIN, DAYS_MAX = -719_162, 2_932_896


@dataclass(frozen=True, slots=True)
class Rules:
    """How values are read: the meaning of numbers in time columns, and how much is forgiven."""

    timestamp_unit: Literal["s", "ms", "us"] | None = None
    timestamp_format: str | None = None
    json: bool = False
    """The values come from JSON text: numbers round to DOUBLE, 0 and 1 are BOOLEAN, unknown keys are ignored."""

    @property
    def micros_per_unit(self) -> int:
        return {"s": 1_000_000, "ms": 1_000, "us": 1, None: 1}[self.timestamp_unit]


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Fitted:
    """The rows that fit the schema, in order, and the reasons for the others by their number in the input."""

    rows: pa.RecordBatch
    bad: Reasons = field(default_factory=dict)


def assemble(columns: list[pa.Array], bad: Reasons, schema: Schema, count: int) -> Fitted:
    """A batch of the declared schema from full-length columns, without the bad rows."""
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow) if columns else empty(schema)
    if bad:
        keep = np.ones(count, dtype=bool)
        keep[list(bad)] = False
        batch = batch.filter(pa.array(keep))
    return Fitted(batch, dict(sorted(bad.items())))


def empty(schema: Schema) -> pa.RecordBatch:
    """A batch of no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type.arrow) for field in schema], schema=schema.arrow)


def blame(bad: Reasons, column: str, reasons: Mapping[int, str]) -> None:
    """Add a column's reasons; the first reason found for a row stays."""
    for row, reason in reasons.items():
        bad.setdefault(row, f"{column}: {reason}")


def not_a(value: object, type_: SqlType) -> str:
    """The usual reason, with the value shortened."""
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} is not {'' if type_ == JSON else 'a '}valid {type_}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The close spelling in parentheses, or nothing."""
    close = nearest(word, known)
    return f" (did you mean {close[0]}?)" if close else ""


def cast_each(array: pa.Array, target: pa.DataType, cast: Callable[[pa.Array], pa.Array]) -> tuple[pa.Array, list[int]]:
    """`cast` where it works and NULL where it does not, with the numbers of the rows it failed on.

    The array is halved around failures, so a few bad values among many cost a few extra casts.
    """
    try:
        return cast(array), []
    except CAST_ERRORS:
        pass
    pieces: list[pa.Array] = []
    failed: list[int] = []
    waiting = [(0, len(array))]
    while waiting:
        start, stop = waiting.pop()
        try:
            pieces.append(cast(array.slice(start, stop - start)))
        except CAST_ERRORS:
            if stop - start == 1:
                failed.append(start)
                pieces.append(pa.nulls(1, target))
            else:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
    return pa.concat_arrays(pieces), failed


def null_out(array: pa.Array, rows: np.ndarray | list[int]) -> pa.Array:
    """The array with NULL in the given rows."""
    mask = np.zeros(len(array), dtype=bool)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)


def out_of_range(array: pa.Array, low: int, high: int) -> np.ndarray:
    """Numbers of the rows of an integer-like (temporal) array outside [low, high]."""
    integers = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    ends = pc.min_max(integers).as_py()
    if ends["min"] is None or (ends["min"] >= low and ends["max"] <= high):
        return np.empty(0, dtype=np.int64)
    wrong = pc.or_(pc.less(integers, low), pc.greater(integers, high)).fill_null(False)
    return np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
