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
from millstream.functions import case, cast, resolve
from millstream.plan.expr import Call, Column, Expr, Literal, walk
from millstream.schema import Field, Schema
from millstream.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DECIMAL,
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

MONEY = DECIMAL(10, 2)

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


_TEXTS = ("", " ", "a", "A", "ab", "%a_", "été", "ß", "😀", "e\u0301x", "12", " -7 ", "1.5", "nan", "true", "a\nb", "x\\y",
          "2024-02-29", "2024-02-29 23:59:59.5", "9223372036854775808", "it's", "\ufeff", "\u0130")  # fmt: skip
_MICROS = 10**6

VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    TINYINT: _integers(8),
    SMALLINT: _integers(16),
    INTEGER: _integers(32),
    BIGINT: _integers(64),
    DOUBLE: st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e300, 5e-324, 2.0**53, 2.0**63, math.nan, math.inf, -math.inf]),
        st.floats(-1000, 1000),
        st.floats(),
    ),
    BOOLEAN: st.booleans(),
    VARCHAR: st.one_of(st.sampled_from(_TEXTS), st.text(max_size=6)),
    TIMESTAMP: st.one_of(st.integers(-5, 5), st.integers(-60_000_000_000 * _MICROS, 200_000_000_000 * _MICROS)),
    DATE: st.one_of(st.integers(-5, 5), st.integers(-700_000, 2_900_000)),
    INTERVAL: st.one_of(st.integers(-5, 5), st.integers(-(10**16), 10**16)),
    MONEY: st.one_of(st.sampled_from(["0.00", "0.01", "-0.01", "99999999.99", "-99999999.99", "1.25", "2.50"]).map(Decimal),
                     st.integers(-(10**10) + 1, 10**10 - 1).map(lambda cents: Decimal(cents).scaleb(-2))),
}  # fmt: skip
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


class Constant:
    """An argument that must be a constant: one of `samples`."""

    def __init__(self, type_: SqlType, *values: object) -> None:
        self.samples = [Literal(type_, value) for value in values]
        self.literals = st.sampled_from(self.samples)


_SMALL = Constant(BIGINT, 0, 1, -1, 2, -2, 3, 5, -7)
_PART = Constant(VARCHAR, "", "a", "ab", "é", " ", "%", "b", "😀", "X")
_PATTERN = Constant(
    VARCHAR, "", "%", "a%", "%b", "%a%", "_", "a_", "%é_%", "A%", "x\\y", "a%b", "%%", "_%", "%a%b%", "a%a_%aa"
)
_REGEX = Constant(VARCHAR, "a", "^a", "b$", "[a-z]+", "(a)(b)?", ".", "é|ß", r"\d+", "x*")
_UNIT = Constant(
    VARCHAR, "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"
)
_FORMAT = Constant(VARCHAR, "%Y-%m-%d %H:%M:%S", "%d.%m.%y", "%j %I%p", "%a %A %b %B %%", "%f")
_SPAN = Constant(BIGINT, 0, 1, -1, 10**6, -(10**6))

Param = SqlType | Constant
_COMPARED = (BIGINT, DOUBLE, VARCHAR, BOOLEAN, TIMESTAMP, TIMESTAMPTZ, DATE, INTERVAL, MONEY, INTEGER)
_NUMBERS = (BIGINT, DOUBLE, MONEY)

OPERATIONS: list[tuple[str, tuple[Param, ...]]] = [
    *((op, (t, t)) for op in ("=", "<>", "<", "<=", ">", ">=", "is_distinct") for t in _COMPARED),
    *((op, (BOOLEAN, BOOLEAN)) for op in ("and", "or")), ("not", (BOOLEAN,)),
    *(("is_null", (t,)) for t in _COMPARED), *(("in", (t, t, t, t)) for t in _COMPARED),
    *((op, (t, t)) for op in "+-*" for t in _NUMBERS), *((op, (t, t)) for op in ("/", "//", "%") for t in _NUMBERS),
    *((op, (a, b)) for op in "+-" for a, b in ((INTEGER, TINYINT), (SMALLINT, DOUBLE), (MONEY, INTEGER))),
    *(("neg", (t,)) for t in (*_NUMBERS, INTERVAL, INTEGER)), *(("abs", (t,)) for t in (*_NUMBERS, INTERVAL, TINYINT)),
    *((op, (t, INTERVAL)) for op in "+-" for t in (TIMESTAMP, TIMESTAMPTZ, DATE, INTERVAL)),
    *(("-", (t, t)) for t in (TIMESTAMP, TIMESTAMPTZ, DATE)), ("*", (INTERVAL, _SMALL)),
    *((op, (DATE, Constant(INTEGER, 0, 1, -1, 1000))) for op in "+-"),
    *((fn, (t,)) for fn in ("ceil", "floor", "trunc", "sign", "round") for t in _NUMBERS),
    *(("round", (t, Constant(INTEGER, 0, 1, 2, 3, -1, -2))) for t in _NUMBERS),
    *((fn, (DOUBLE,)) for fn in ("sqrt", "exp", "ln", "log10", "log2", "isnan", "isinf", "isfinite", "sin")),
    ("power", (DOUBLE, DOUBLE)), *((fn, (t, t, t)) for fn in ("greatest", "least", "coalesce") for t in _COMPARED),
    *(("nullif", (t, t)) for t in _COMPARED),
    *((fn, (VARCHAR,)) for fn in ("lower", "upper", "length", "reverse", "trim", "ltrim", "rtrim", "md5")),
    *((fn, (VARCHAR, VARCHAR)) for fn in ("||", "concat", "contains", "starts_with", "ends_with", "strpos")),
    *((fn, (VARCHAR, _PART)) for fn in ("contains", "starts_with", "ends_with", "strpos", "trim", "ltrim", "rtrim")),
    *((fn, (VARCHAR, _SMALL)) for fn in ("left", "right", "substring", "repeat")),
    ("substring", (VARCHAR, _SMALL, _SMALL)), ("substring", (VARCHAR, TINYINT, TINYINT)), ("left", (VARCHAR, TINYINT)),
    *((fn, (VARCHAR, _SMALL, _PART)) for fn in ("lpad", "rpad")), ("replace", (VARCHAR, _PART, _PART)),
    ("replace", (VARCHAR, VARCHAR, VARCHAR)), ("concat_ws", (_PART, VARCHAR, VARCHAR)), ("concat", (VARCHAR, DATE, BIGINT)),
    ("split_part", (VARCHAR, _PART, _SMALL)), ("like", (VARCHAR, _PATTERN)), ("ilike", (VARCHAR, _PATTERN)),
    ("like", (VARCHAR, VARCHAR)), ("like", (VARCHAR, _PATTERN, Constant(VARCHAR, "a"))),
    ("regexp_matches", (VARCHAR, _REGEX)), ("regexp_extract", (VARCHAR, _REGEX)), ("regexp_replace", (VARCHAR, _REGEX, _PART)),
    ("regexp_replace", (VARCHAR, _REGEX, _PART, Constant(VARCHAR, "g"))), ("ascii", (VARCHAR,)), ("cbrt", (DOUBLE,)),
    *((part, (t,)) for part in ("year", "quarter", "month", "week", "day", "dayofweek", "isodow", "dayofyear")
      for t in (TIMESTAMP, TIMESTAMPTZ, DATE)),
    *((part, (t,)) for part in ("hour", "minute", "second", "millisecond", "microsecond") for t in (TIMESTAMP, TIMESTAMPTZ)),
    *(("date_trunc", (_UNIT, t)) for t in (TIMESTAMP, TIMESTAMPTZ, DATE)),
    *((fn, (t,)) for fn in ("epoch", "epoch_ms", "epoch_us") for t in (TIMESTAMP, TIMESTAMPTZ, INTERVAL)),
    ("to_timestamp", (Constant(DOUBLE, 0.0, 1.5, -1.0000015, 1e9),)), ("to_seconds", (_SPAN,)), ("make_timestamp", (_SPAN,)),
    *(("strftime", (t, _FORMAT)) for t in (TIMESTAMP, TIMESTAMPTZ, DATE)),
]  # fmt: skip
"""Functions and operators with the arguments to try them on."""

CASTS: list[tuple[SqlType, SqlType]] = [
    *((a, b) for a in (TINYINT, INTEGER, BIGINT, DOUBLE, MONEY) for b in (TINYINT, SMALLINT, BIGINT, DOUBLE, MONEY) if a != b),
    *((a, VARCHAR) for a in (BIGINT, DOUBLE, MONEY, BOOLEAN, TIMESTAMP, TIMESTAMPTZ, DATE)),
    *((VARCHAR, b) for b in (INTEGER, BIGINT, DOUBLE, MONEY, BOOLEAN, TIMESTAMP, TIMESTAMPTZ, DATE)),
    *((a, BOOLEAN) for a in (BIGINT, DOUBLE, MONEY)), *((BOOLEAN, b) for b in (INTEGER, BIGINT, DOUBLE)),
    (DATE, TIMESTAMP), (DATE, TIMESTAMPTZ), (TIMESTAMP, TIMESTAMPTZ), (TIMESTAMPTZ, TIMESTAMP), (TIMESTAMP, DATE),
    (TIMESTAMPTZ, DATE), (MONEY, DECIMAL(6, 1)), (DOUBLE, DECIMAL(18, 3)),
]  # fmt: skip

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
    leaf = depth <= 0 or draw(st.integers(0, 3)) == 0
    if leaf:
        if columns and draw(st.integers(0, 3)):
            field = draw(st.sampled_from(columns))
            return Column(field.type, field.name)
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
        draw(p.literals) if isinstance(p, Constant) else draw(expressions(schema, p, depth - 1)) for p in params
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
