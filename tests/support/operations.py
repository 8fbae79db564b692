"""Every function, operator and cast with arguments to try it on, and the values where engines differ."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from millstream.expressions.nodes import Literal
from millstream.types import (
    BIGINT,
    BLOB,
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


class Constant:
    """An argument that must be a constant: one of `samples`."""

    def __init__(self, type_: SqlType, *values: object) -> None:
        self.samples = [Literal(type_, value) for value in values]


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
    ("replace", (VARCHAR, VARCHAR, VARCHAR)), ("concat_ws", (_PART, VARCHAR, VARCHAR)),
    ("concat", (VARCHAR, DATE, BIGINT)),
    ("split_part", (VARCHAR, _PART, _SMALL)), ("like", (VARCHAR, _PATTERN)), ("ilike", (VARCHAR, _PATTERN)),
    ("like", (VARCHAR, VARCHAR)), ("like", (VARCHAR, _PATTERN, Constant(VARCHAR, "a"))),
    ("regexp_matches", (VARCHAR, _REGEX)), ("regexp_extract", (VARCHAR, _REGEX)),
    ("regexp_extract", (VARCHAR, Constant(VARCHAR, "(a)(b)?"), Constant(INTEGER, 0, 1, 2))),
    ("regexp_replace", (VARCHAR, _REGEX, _PART)), ("regexp_replace", (VARCHAR, _REGEX, Constant(VARCHAR, r"<\0$1>"))),
    ("regexp_replace", (VARCHAR, _REGEX, _PART, Constant(VARCHAR, "g"))), ("ascii", (VARCHAR,)), ("cbrt", (DOUBLE,)),
    *((part, (t,)) for part in ("year", "quarter", "month", "week", "day", "dayofweek", "isodow", "dayofyear")
      for t in (TIMESTAMP, TIMESTAMPTZ, DATE)),
    *((part, (t,)) for part in ("hour", "minute", "second", "millisecond", "microsecond")
      for t in (TIMESTAMP, TIMESTAMPTZ)),
    *(("date_trunc", (_UNIT, t)) for t in (TIMESTAMP, TIMESTAMPTZ, DATE)),
    *((fn, (t,)) for fn in ("epoch", "epoch_ms", "epoch_us") for t in (TIMESTAMP, TIMESTAMPTZ, INTERVAL)),
    ("to_timestamp", (Constant(DOUBLE, 0.0, 1.5, -1.0000015, 1e9),)), ("to_seconds", (_SPAN,)),
    ("make_timestamp", (_SPAN,)),
    *(("strftime", (t, _FORMAT)) for t in (TIMESTAMP, TIMESTAMPTZ, DATE)),
]  # fmt: skip
"""Functions and operators with the arguments to try them on."""

CASTS: list[tuple[SqlType, SqlType]] = [
    *((a, b) for a in (TINYINT, INTEGER, BIGINT, DOUBLE, MONEY) for b in (TINYINT, SMALLINT, BIGINT, DOUBLE, MONEY)
      if a != b),
    *((a, VARCHAR) for a in (BIGINT, DOUBLE, MONEY, BOOLEAN, TIMESTAMP, TIMESTAMPTZ, DATE)),
    *((VARCHAR, b) for b in (INTEGER, BIGINT, DOUBLE, MONEY, BOOLEAN, TIMESTAMP, TIMESTAMPTZ, DATE)),
    *((a, BOOLEAN) for a in (BIGINT, DOUBLE, MONEY)), *((BOOLEAN, b) for b in (INTEGER, BIGINT, DOUBLE)),
    (DATE, TIMESTAMP), (DATE, TIMESTAMPTZ), (TIMESTAMP, TIMESTAMPTZ), (TIMESTAMPTZ, TIMESTAMP), (TIMESTAMP, DATE),
    (TIMESTAMPTZ, DATE), (MONEY, DECIMAL(6, 1)), (DOUBLE, DECIMAL(18, 3)),
    (VARCHAR, BLOB),
]  # fmt: skip
"""Conversions to try."""


EDGES: dict[str, list[Any]] = {
    "TINYINT": [None, 0, 1, -1, 127, -128, 3],
    "SMALLINT": [None, 0, 1, -1, 32767, -32768],
    "INTEGER": [None, 0, 1, -1, 7, 2**31 - 1, -(2**31)],
    "BIGINT": [None, 0, 1, -1, 2, -7, 10, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)],
    "DOUBLE": [None, 0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1.005, 2.675, 1234.5, 0.49999999999999994, 1e15,
               1e16, 1e17, 2.0**53, 2.0**63, -(2.0**63), 1e300, 1e-5, 5e-324, math.nan, math.inf, -math.inf],
    "BOOLEAN": [None, True, False],
    "VARCHAR": [None, "", " ", "a", "A", "ab", "ba", "%a_", "été", "ß", "😀b", "e\u0301x", "12", " -7 ", "+3",
                "1.5", "1e5", "nan", "-inf", "true", "F", "yes", "a\nb", "x\\y", "0x1F", "1_0", "300",
                "2024-02-29", "2024-02-30", "2024-2-9", "2024-02-29 10", "2024-02-29 10:11", "2024-02-29T23:59:59.5",
                "2024-02-29 10:11:12.123456Z", "2024-02-29 10:11:12+02:00", "9223372036854775808", "it's",
                "aXbXc", "a,b,c", "-", ".", "5.", ".5", "12345678.905"],
    "TIMESTAMP": [None, 0, -1, 1, 1_704_622_272_500_000, -30_980_927_499_999, -62_135_596_800_000_000,
                  253_402_300_799_999_999, 1_709_164_800_000_000, 1_735_516_800_000_000],
    "DATE": [None, 0, -1, 1, 19_782, 20_088, -719_162, 2_932_896],
    "INTERVAL": [None, 0, 1, -1, 86_400_000_000, -3_600_000_001, 10**15, 999, -999, 1000],
    "DECIMAL": [None, *map(Decimal, ("0.00", "0.01", "-0.01", "1.25", "2.50", "-2.50", "0.05", "99999999.99",
                                     "-99999999.99"))],
}  # fmt: skip
EDGES["TIMESTAMPTZ"] = EDGES["TIMESTAMP"]
