"""Arrow arrays made and read by their bytes are those that pyarrow makes and reads."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from millstream.arrays import from_numpy, from_values, is_ascii, to_numpy
from tiers import examples

TYPES = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.timestamp("us"): st.datetimes() | st.datetimes(timezones=st.just(dt.UTC)),
    pa.date32(): st.dates(),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[Any]]:
    type_ = draw(st.sampled_from(list(TYPES)))
    return type_, draw(st.lists(st.none() | TYPES[type_], max_size=20))


@settings(max_examples=examples(100), deadline=None)
@given(columns())
def test_python_values(column: tuple[pa.DataType, list[Any]]) -> None:
    type_, values = column
    with patch.dict(sys.modules):
        sys.modules.pop("pandas", None)
        made = from_values(values, type_)
    made.validate(full=True)
    assert made.equals(pa.array(values, type_))


@settings(max_examples=examples(100), deadline=None)
@given(columns(), st.integers(0, 20), st.integers(0, 20))
def test_numbers(column: tuple[pa.DataType, list[Any]], start: int, length: int) -> None:
    type_, values = column
    if type_ in (pa.string(), pa.timestamp("us"), pa.date32()):
        return
    valid = np.array([value is not None for value in values], dtype=bool)
    plain = np.array([value or 0 for value in values], dtype=type_.to_pandas_dtype())
    made = from_numpy(plain, valid)
    made.validate(full=True)
    assert made.equals(pa.array(values, type_))
    part = from_numpy(plain).slice(start, length)
    assert to_numpy(part).tolist() == plain[start : start + length].tolist()


def test_values_out_of_range_raise_what_arrow_raises() -> None:
    with patch.dict(sys.modules):
        sys.modules.pop("pandas", None)
        with pytest.raises(pa.ArrowInvalid, match="too large"):
            from_values([2**40], pa.int32())


def test_pandas_is_not_imported() -> None:
    program = (
        "import datetime as dt, sys, numpy as np, pyarrow as pa\n"
        "from millstream.arrays import from_numpy, from_values, to_numpy\n"
        "from_values(['a', None], pa.string()), from_values([1, None], pa.int64())\n"
        "from_values([dt.datetime(2024, 1, 1), None], pa.timestamp('us')), from_values([True], pa.bool_())\n"
        "to_numpy(from_numpy(np.array([True, False]), np.array([True, True])))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(filter(None, sys.path))})


@st.composite
def texts(draw: st.DrawFn) -> pa.Array:
    """Text of any bytes, with places that may be wrong, and a part of it."""
    text = draw(st.binary(max_size=12) | st.text(st.characters(max_codepoint=127), max_size=12).map(str.encode))
    places = draw(st.lists(st.integers(-2, len(text) + 2), min_size=1, max_size=6))
    places = sorted(min(max(place, 0), len(text)) for place in places) if draw(st.booleans()) else places
    count = len(places) - 1
    bits = draw(st.none() | st.binary(min_size=1, max_size=1))
    buffers = [bits and pa.py_buffer(bits), pa.py_buffer(np.array(places, np.int32)), pa.py_buffer(text)]
    start = draw(st.integers(0, count))
    try:
        return pa.Array.from_buffers(pa.string(), count - start, buffers, offset=start)
    except pa.ArrowInvalid:  # it looks at the first place and the last
        reject()


@settings(max_examples=examples(300), deadline=None)
@given(texts())
def test_ascii_text_is_valid_and_nothing_else_is(array: pa.Array) -> None:
    _, places, text = array.buffers()
    places = np.frombuffer(places, np.int32)[array.offset :]
    ordered = places[0] >= 0 and places[-1] <= text.size and (np.diff(places) >= 0).all()
    ascii_ = ordered and text.to_pybytes()[places[0] : places[-1]].isascii()
    assert is_ascii(array) == bool(ascii_ and len(array))
    if is_ascii(array):
        array.validate(full=True)


def test_other_types_are_no_ascii_text() -> None:
    assert not any(map(is_ascii, (pa.array([1]), pa.array([b"a"]), pa.array(["a"], pa.large_string()))))
