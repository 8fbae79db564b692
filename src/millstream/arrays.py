"""Arrow arrays from and to NumPy and Python values, by their bytes.

pyarrow imports pandas, a third of a second, before it converts its first value; a program that pushes a few rows need
not wait for that. Where pandas has been imported nothing is gained by avoiding it.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import DataError

_TEXT = pa.string()


class _Form(NamedTuple):
    """How NumPy takes in values of a kind, and as what it stores them; `filler` stands in place of NULL."""

    kind: type
    filler: Any
    dtype: str
    stored: str


_FORMS = {getattr(pa, name)(): _Form(int, 0, name, name) for name in ("int8", "int16", "int32", "int64")} | {
    pa.float64(): _Form(float, 0.0, "float64", "float64"),
    pa.bool_(): _Form(bool, False, "bool", "bool"),
    pa.timestamp("us"): _Form(dt.datetime, dt.datetime(1970, 1, 1), "datetime64[us]", "int64"),
    pa.date32(): _Form(dt.date, dt.date(1970, 1, 1), "datetime64[D]", "int32"),
}


def from_numpy(
    values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None, type_: pa.DataType | None = None
) -> pa.Array:
    """Numbers or truth values as an array that shares their memory; NULL where they are not `valid`.

    `type_` has values of the same width, such as a timestamp's.

    >>> from_numpy(np.array([1, 2]), np.array([True, False])).to_pylist()
    [1, None]
    """
    if values.dtype == np.bool_:
        type_, data = pa.bool_(), pa.py_buffer(np.packbits(values, bitorder="little").tobytes())
    else:
        type_, data = type_ or pa.from_numpy_dtype(values.dtype), pa.py_buffer(np.ascontiguousarray(values))
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(type_, len(values), [bits, data])


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """The values of an array of numbers or truth values; what stands in place of NULL has no meaning.

    >>> to_numpy(pa.array([1, 2, 3])[1:]).tolist()
    [2, 3]
    """
    data, start, stop = array.buffers()[1], array.offset, array.offset + len(array)
    if pa.types.is_boolean(array.type):
        bits = np.frombuffer(data or b"", dtype=np.uint8)[start // 8 : (stop + 7) // 8]
        return np.unpackbits(bits, bitorder="little")[start % 8 : start % 8 + len(array)].view(np.bool_)
    return np.frombuffer(data or b"", dtype=array.type.to_pandas_dtype(), count=stop if data else 0)[start:]


def is_ascii(array: pa.Array) -> bool:
    """Whether an array surely has ASCII text and nothing else, told by two passes over its bytes. False for any other
    type, and for arrays so broken that it cannot be told. Arrow's own check of text looks at each value by itself,
    which takes some twenty times as long.

    >>> is_ascii(pa.array(["a", None, "bc"])), is_ascii(pa.array(["\u00e9"])), is_ascii(pa.array([1]))
    (True, False, False)
    """
    if array.type != _TEXT:
        return False
    _, ends, text = array.buffers()
    start, count = array.offset, len(array) + 1
    if not len(array) or ends is None or text is None or ends.size < 4 * (start + count):
        return False
    places = np.frombuffer(ends, dtype=np.int32)[start : start + count]
    first, last = int(places[0]), int(places[-1])
    if not 0 <= first <= last <= text.size or bool((places[1:] < places[:-1]).any()):
        return False
    return first == last or int(np.frombuffer(text, dtype=np.int8, count=last)[first:].min()) >= 0


def from_values(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Python values, or None, that are of the type."""
    pandas = sys.modules.get("pandas")
    # while another thread imports it, Arrow would wait for that
    if pandas is not None and not getattr(pandas.__spec__, "_initializing", False):
        return pa.array(values, type_)
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {str} and type_ == pa.string():
        builder = pa.lib.StringBuilder()
        builder.append_values(values)
        return builder.finish()
    form = _FORMS.get(type_)
    if form is None or not kinds <= {form.kind}:
        return pa.array(values, type_)
    if form.kind is dt.datetime and any(value is not None and value.tzinfo is not None for value in values):
        return pa.array(values, type_)
    valid = None if None not in values else np.array([value is not None for value in values])
    plain = values if valid is None else [form.filler if value is None else value for value in values]
    try:
        return from_numpy(np.array(plain, dtype=form.dtype).astype(form.stored, copy=False), valid, type_)
    except OverflowError:
        # it says which value does not fit
        return pa.array(values, type_)


def one_batch(parts: Iterable[pa.RecordBatch], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """The rows of several batches in one. Arrow addresses text by 32 bits: more than 2 GB of it do not fit, and Arrow
    then returns several batches, or an error."""
    found = list(parts)
    if len(found) == 1:
        return found[0]
    try:
        made = _combined(pa.Table.from_batches(found, schema))
    except pa.ArrowInvalid as error:
        if "overflow" not in str(error):
            raise
        raise _too_long() from None
    if len(made) > 1:
        raise _too_long()
    return (
        made[0]
        if made
        else pa.RecordBatch.from_arrays(
            [pa.nulls(0, type_) for type_ in (schema or found[0].schema).types], schema=schema or found[0].schema
        )
    )


def _combined(table: pa.Table) -> list[pa.RecordBatch]:
    made: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return made


def _too_long() -> DataError:
    return DataError(
        "more than 2 GB of text in one batch of rows", hint="use smaller batches: push fewer rows, or SET batch_rows"
    )


def release_unused() -> None:
    """Give memory back that was needed for a moment: allocators keep it, and the process looks larger than it is."""
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        import ctypes

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
