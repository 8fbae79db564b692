"""OVER aggregates against a slow reference and against DuckDB, and what only they promise."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_scenarios import ordered, over_specs
from over_reference import over, total

from millstream.errors import DataError, StateError
from millstream.kernels import jit
from millstream.kernels.aggregates import result_type
from millstream.kernels.batch import FOREVER, Batch
from millstream.kernels.over import Frame, OverCall, OverSpec
from millstream.kernels.over.kernel import OverKernel
from millstream.schema import Schema
from millstream.types import BIGINT, DECIMAL, DOUBLE, INTEGER, VARCHAR

XS = Schema.of(k=BIGINT, x=DOUBLE, s=VARCHAR, b=BIGINT, i=INTEGER, d=DECIMAL(18, 2))


def call(
    fn: str, arg: str | None, frame: Frame, distinct: bool = False, name: str = "r", schema: Schema = XS
) -> OverCall:
    type_ = result_type(fn, distinct, schema[arg].type if arg else None)
    assert type_ is not None
    return OverCall(name, fn, arg, frame, distinct, type_)


def batch(times: list[int], upto: int = FOREVER, schema: Schema = XS, **columns: list[Any]) -> Batch:
    arrays = [
        pa.array(columns.get(field.name, [1 if field.name == "k" else None] * len(times)), field.type.arrow)
        for field in schema
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    return Batch(rows, np.array(times, dtype=np.int64), np.arange(len(times)), upto)


def results(spec: OverSpec, *batches: Batch) -> list[Any]:
    """The first result column over all batches."""
    kernel = spec.build()
    state = kernel.open()
    return [v for b in batches for v in kernel.step(state, b).rows.column(len(spec.input)).to_pylist()]


def same(found: Any, wanted: Any, exact: bool) -> bool:
    if not isinstance(wanted, float) or not isinstance(found, float):
        return found == wanted and (found is None) == (wanted is None)
    if math.isnan(wanted) or math.isnan(found):
        return math.isnan(wanted) and math.isnan(found)
    return found == wanted if exact else math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9 * abs(wanted))


@settings(deadline=None, max_examples=250)
@given(data=st.data())
def test_equals_the_slow_way(data: st.DataObject) -> None:
    spec = data.draw(over_specs(6))
    arrivals = data.draw(ordered(spec.input, 40, wild=False))
    rows = arrivals.rows.to_pylist()
    with jit.using("off", threads=data.draw(st.sampled_from([1, 4]))):
        kernel = spec.build()
        try:
            found = kernel.step(kernel.open(), arrivals).rows.to_pydict()
        except DataError:
            return
    wanted = over(spec, rows, arrivals.time.tolist())
    for one in spec.calls:
        spread = one.fn.startswith(("var", "stddev"))
        for i, (value, reference) in enumerate(zip(found[one.name], wanted[one.name], strict=True)):
            assert same(value, reference, exact=not spread and one.fn != "avg"), (
                f"{one} at row {i}: {value}, not {reference}"
            )
