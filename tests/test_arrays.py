"""Arrow arrays made and read by their bytes are those that pyarrow makes and reads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.arrays import from_numpy, from_values, to_numpy
from tiers import examples

TYPES = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
    pa.timestamp("us"): st.datetimes(),
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
    if type_ in (pa.string(), pa.timestamp("us")):
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
        "import sys, numpy as np, pyarrow as pa\n"
        "from millstream.arrays import from_numpy, from_values, to_numpy\n"
        "from_values(['a', None], pa.string()), from_values([1, None], pa.int64())\n"
        "to_numpy(from_numpy(np.array([True, False]), np.array([True, True])))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(filter(None, sys.path))})
