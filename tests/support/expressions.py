"""Hypothesis strategies for batches and for well-typed expressions over them, and what 'the same result' means."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millstream.errors import BindError
from millstream.expressions.functions import case, cast, resolve
from millstream.expressions.nodes import Call, Column, Expr, Literal, walk
from millstream.schema import Field, Schema
from millstream.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    SMALLINT,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
    SqlType,
)
from tests.support.operations import CASTS, MONEY, OPERATIONS, Constant, Param

SCHEMA = Schema(
    (
        Field("i1", TINYINT), Field("i2", SMALLINT), Field("i4", INTEGER), Field("i8", BIGINT), Field("j8", BIGINT),
        Field("f", DOUBLE), Field("g", DOUBLE), Field("t", VARCHAR), Field('odd "name`.é', VARCHAR),
        Field("b", BOOLEAN), Field("c", BOOLEAN), Field("ts", TIMESTAMP), Field("us", TIMESTAMP),
        Field("tz", TIMESTAMPTZ), Field("d", DATE), Field("e", DATE), Field("iv", INTERVAL), Field("money", MONEY),
    )
)  # fmt: skip
"""A column or two of every type that expressions are tested on."""

KERNEL_SCHEMA = Schema(tuple(field for field in SCHEMA if not field.type.is_coded and field.type != MONEY))
"""The columns whose values kernels compute with."""


def _integers(bits: int) -> st.SearchStrategy[int]:
    edge = 2 ** (bits - 1)
    extremes = st.sampled_from([-edge, 1 - edge, edge - 1, edge - 2])
    return st.one_of(st.integers(-5, 5), st.integers(-100, 100), extremes, st.integers(-edge, edge - 1))


_TEXTS = ("", " ", "a", "A", "ab", "%a_", "été", "ß", "😀", "e\u0301x", "12", " -7 ", "1.5", "nan", "true", "a\nb",
          "x\\y", "2024-02-29", "2024-02-29 23:59:59.5", "9223372036854775808", "it's", "\ufeff", "\u0130")  # fmt: skip
_MICROS = 10**6

VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    TINYINT: _integers(8),
    SMALLINT: _integers(16),
    INTEGER: _integers(32),
    BIGINT: _integers(64),
    DOUBLE: st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e300, 5e-324, 2.0**53, 2.0**63]),
        st.sampled_from([math.nan, math.inf, -math.inf]),
        st.floats(-1000, 1000),
        st.floats(),
    ),
    BOOLEAN: st.booleans(),
    VARCHAR: st.one_of(st.sampled_from(_TEXTS), st.text(max_size=6)),
    TIMESTAMP: st.one_of(st.integers(-5, 5), st.integers(-60_000_000_000 * _MICROS, 200_000_000_000 * _MICROS)),
    DATE: st.one_of(st.integers(-5, 5), st.integers(-700_000, 2_900_000)),
    INTERVAL: st.one_of(st.integers(-5, 5), st.integers(-(10**16), 10**16)),
    MONEY: st.one_of(
        st.sampled_from([0, 1, -1, 125, 250, 10**10 - 1, 1 - 10**10]), st.integers(1 - 10**10, 10**10 - 1)
    ).map(lambda cents: Decimal(cents).scaleb(-2)),
}
VALUES[TIMESTAMPTZ] = VALUES[TIMESTAMP]


def array_of(values: list[Any], type_: SqlType) -> pa.Array:
    """Values as literals hold them (times and intervals as integers) in an Arrow array."""
    if type_.is_temporal or type_ == INTERVAL:
        return pa.array(values, pa.int32() if type_ == DATE else pa.int64()).cast(type_.arrow)
    return pa.array(values, type_.arrow)


@st.composite
def batches(draw: st.DrawFn, schema: Schema = SCHEMA, max_rows: int = 8) -> pa.RecordBatch:
    """A batch with NULLs and extreme values; often empty, often a slice of a longer one."""
    count, before, after = draw(st.integers(0, max_rows)), draw(st.integers(0, 3)), draw(st.integers(0, 2))
    arrays = []
    for field in schema:
        values = st.lists(st.none() | VALUES[field.type], min_size=count, max_size=count)
        padding = [None] * before
        arrays.append(array_of(padding + draw(values) + [None] * after, field.type))
    return pa.record_batch(arrays, schema=schema.arrow).slice(before, count)


_INEXACT = frozenset({"exp", "ln", "log10", "log2", "power", "sin", "cbrt"})


def is_exact(expr: Expr) -> bool:
    """Whether all engines compute the expression to the last bit; libraries differ in that for exp and its like."""
    return not any(isinstance(part, Call) and part.fn in _INEXACT for part in walk(expr))


@st.composite
def expressions(draw: st.DrawFn, schema: Schema = SCHEMA, type_: SqlType | None = None, depth: int = 3) -> Expr:
    """A well-typed expression over a schema, of the given type if one is given."""
    if type_ is None:
        fn, params = draw(st.sampled_from(_usable(schema)))
        return _call(draw, schema, fn, params, depth) or draw(expressions(schema, BIGINT, 0))
    columns = [field for field in schema if field.type == type_]
    if depth <= 0 or draw(st.integers(0, 3)) == 0:
        if draw(st.integers(0, 3)) > 0 and columns:
            column = draw(st.sampled_from(columns))
            return Column(column.type, column.name)
        return Literal(type_, draw(st.none() | VALUES[type_]))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        arms = draw(st.integers(1, 2))
        whens = tuple(
            (draw(expressions(schema, BOOLEAN, depth - 1)), draw(expressions(schema, type_, depth - 1)))
            for _ in range(arms)
        )
        return case(whens, draw(expressions(schema, type_, depth - 1)))
    present = {field.type for field in schema}
    if kind == 1 and (sources := [a for a, b in CASTS if b == type_ and a in present]):
        source = draw(expressions(schema, draw(st.sampled_from(sources)), depth - 1))
        try:
            return cast(source, type_, safe=draw(st.booleans()))
        except BindError:
            return Literal(type_, None)
    producers = _producers(schema, type_)
    if not producers:
        return draw(expressions(schema, type_, 0))
    fn, params = draw(st.sampled_from(producers))
    made = _call(draw, schema, fn, params, depth)
    return made if made is not None and made.type == type_ else draw(expressions(schema, type_, 0))


@lru_cache
def _usable(schema: Schema) -> list[tuple[str, tuple[Param, ...]]]:
    types = {field.type for field in schema}
    return [(fn, params) for fn, params in OPERATIONS if all(isinstance(p, Constant) or p in types for p in params)]


@lru_cache
def _producers(schema: Schema, type_: SqlType) -> list[tuple[str, tuple[Param, ...]]]:
    made = []
    for fn, params in _usable(schema):
        sample = tuple(Literal(p, None) if isinstance(p, SqlType) else None for p in params)
        if None in sample or resolve(fn, tuple(arg for arg in sample if arg is not None)).type == type_:
            made.append((fn, params))
    return made


def _call(draw: st.DrawFn, schema: Schema, fn: str, params: tuple[Param, ...], depth: int) -> Expr | None:
    args = tuple(
        draw(st.sampled_from(p.samples)) if isinstance(p, Constant) else draw(expressions(schema, p, depth - 1))
        for p in params
    )
    try:
        return resolve(fn, args)
    except BindError:
        return None


def same(left: pa.Array, right: pa.Array, exact: bool = True) -> bool:
    """Whether two results are the same: NULL is NULL, NaN is NaN, -0.0 is 0.0; not exactly: to 12 digits."""
    if left.type != right.type or len(left) != len(right):
        return False
    equal: Callable[[Any, Any], bool] = _identical if exact else _close
    if pa.types.is_temporal(left.type):
        # Python has no times past the year 9999.
        storage = pa.int32() if pa.types.is_date(left.type) else pa.int64()
        left, right = left.cast(storage), right.cast(storage)
    return all(equal(a, b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True))


def _identical(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return bool(a == b and (a is None) == (b is None))


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isfinite(a) and math.isfinite(b):
        return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
    return _identical(a, b)
