"""SQL types and their counterparts in Arrow, NumPy, DuckDB and Spark: the one table that every layer consults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.arrays import from_numpy, to_numpy


@dataclass(frozen=True, slots=True)
class SqlType:
    """A SQL type; equal types are equal values.

    >>> DECIMAL(10, 2)
    DECIMAL(10, 2)
    """

    name: str
    precision: int = 0
    scale: int = 0
    element: SqlType | None = None
    """what an ARRAY holds"""

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.element}[]"
        return f"{self.name}({self.precision}, {self.scale})" if self.name == "DECIMAL" else self.name

    __repr__ = __str__

    @property
    def arrow(self) -> pa.DataType:
        if self.name == "DECIMAL":
            return pa.decimal128(self.precision, self.scale)
        if self.element is not None:
            return pa.list_(self.element.arrow)
        return _ROWS[self.name].arrow

    @property
    def kernel(self) -> str:
        """NumPy dtype of a value inside a kernel; strings and blobs are there as dictionary codes."""
        return _ROWS[self.name].kernel

    @property
    def duckdb(self) -> str:
        if self.element is not None:
            return f"{self.element.duckdb}[]"
        return f"DECIMAL({self.precision}, {self.scale})" if self.name == "DECIMAL" else _ROWS[self.name].duckdb

    @property
    def spark(self) -> str:
        if self.element is not None:
            return f"ARRAY<{self.element.spark}>"
        return f"DECIMAL({self.precision}, {self.scale})" if self.name == "DECIMAL" else _ROWS[self.name].spark

    @property
    def is_integer(self) -> bool:
        return self.name in _INTEGERS

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.name in ("DOUBLE", "DECIMAL")

    @property
    def is_text(self) -> bool:
        return self.name == "VARCHAR"

    @property
    def is_array(self) -> bool:
        return self.element is not None

    @property
    def is_coded(self) -> bool:
        """Kernels see dictionary codes of such values instead of the values themselves."""
        return self.name in ("VARCHAR", "BLOB")

    @property
    def is_temporal(self) -> bool:
        return self.name in ("TIMESTAMP", "TIMESTAMPTZ", "DATE", "TIME")


@dataclass(frozen=True, slots=True)
class _Row:
    arrow: pa.DataType
    kernel: str
    duckdb: str
    spark: str


# SQL name        Arrow                       kernel     DuckDB         Spark
_ROWS: dict[str, _Row] = {
    "NULL": _Row(pa.null(), "int64", '"NULL"', "VOID"),
    "BOOLEAN": _Row(pa.bool_(), "bool", "BOOLEAN", "BOOLEAN"),
    "TINYINT": _Row(pa.int8(), "int64", "TINYINT", "TINYINT"),
    "SMALLINT": _Row(pa.int16(), "int64", "SMALLINT", "SMALLINT"),
    "INTEGER": _Row(pa.int32(), "int64", "INTEGER", "INT"),
    "BIGINT": _Row(pa.int64(), "int64", "BIGINT", "BIGINT"),
    "DOUBLE": _Row(pa.float64(), "float64", "DOUBLE", "DOUBLE"),
    "DECIMAL": _Row(pa.decimal128(18, 3), "int64", "DECIMAL", "DECIMAL"),
    "VARCHAR": _Row(pa.string(), "int64", "VARCHAR", "STRING"),
    "BLOB": _Row(pa.binary(), "int64", "BLOB", "BINARY"),
    "TIMESTAMP": _Row(pa.timestamp("us"), "int64", "TIMESTAMP", "TIMESTAMP_NTZ"),
    "TIMESTAMPTZ": _Row(pa.timestamp("us", "UTC"), "int64", "TIMESTAMPTZ", "TIMESTAMP"),
    "DATE": _Row(pa.date32(), "int64", "DATE", "DATE"),
    "TIME": _Row(pa.time64("us"), "int64", "TIME", "TIME"),
    "INTERVAL": _Row(pa.duration("us"), "int64", "INTERVAL", "INTERVAL DAY TO SECOND"),
    # kernels pass arrays on and never look at them
    "ARRAY": _Row(pa.list_(pa.null()), "int64", "LIST", "ARRAY"),
}
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")

NULL = SqlType("NULL")
BOOLEAN = SqlType("BOOLEAN")
TINYINT = SqlType("TINYINT")
SMALLINT = SqlType("SMALLINT")
INTEGER = SqlType("INTEGER")
BIGINT = SqlType("BIGINT")
DOUBLE = SqlType("DOUBLE")
VARCHAR = SqlType("VARCHAR")
BLOB = SqlType("BLOB")
TIMESTAMP = SqlType("TIMESTAMP")
TIMESTAMPTZ = SqlType("TIMESTAMPTZ")
DATE = SqlType("DATE")
TIME = SqlType("TIME")
INTERVAL = SqlType("INTERVAL")


def DECIMAL(precision: int = 18, scale: int = 3) -> SqlType:
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise ValueError(f"DECIMAL({precision}, {scale}): precision is 1 to 38, scale at most the precision")
    return SqlType("DECIMAL", precision, scale)


def ARRAY(element: SqlType) -> SqlType:
    return SqlType("ARRAY", element=element)


# Spellings accepted in declarations. REAL and FLOAT are kept in double precision, as the SQL standard allows;
# the length of CHAR(n) and VARCHAR(n) is accepted and not enforced. JSON is text, which functions of JSON read.
_SPELLINGS = {
    "BOOL": BOOLEAN, "BOOLEAN": BOOLEAN, "TINYINT": TINYINT, "INT1": TINYINT, "BYTE": TINYINT,
    "SMALLINT": SMALLINT, "INT2": SMALLINT, "SHORT": SMALLINT, "INT": INTEGER, "INTEGER": INTEGER, "INT4": INTEGER,
    "BIGINT": BIGINT, "INT8": BIGINT, "LONG": BIGINT, "REAL": DOUBLE, "FLOAT": DOUBLE, "FLOAT4": DOUBLE,
    "FLOAT8": DOUBLE, "DOUBLE": DOUBLE, "DOUBLE PRECISION": DOUBLE, "VARCHAR": VARCHAR, "CHAR": VARCHAR,
    "CHARACTER": VARCHAR, "NCHAR": VARCHAR, "NVARCHAR": VARCHAR, "BPCHAR": VARCHAR, "TEXT": VARCHAR,
    "STRING": VARCHAR, "CHARACTER VARYING": VARCHAR, "BLOB": BLOB, "BINARY": BLOB, "VARBINARY": BLOB, "BYTEA": BLOB,
    "TIMESTAMP": TIMESTAMP, "DATETIME": TIMESTAMP, "TIMESTAMP_NTZ": TIMESTAMP, "TIMESTAMPNTZ": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMPTZ, "TIMESTAMP_LTZ": TIMESTAMPTZ, "TIMESTAMPLTZ": TIMESTAMPTZ,
    "JSON": VARCHAR,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ, "DATE": DATE, "TIME": TIME, "INTERVAL": INTERVAL,
}  # fmt: skip


def parse_type(text: str) -> SqlType | None:
    """The type a declaration names, or None if we have no such type.

    >>> parse_type("char(10)"), parse_type("decimal(10,2)"), parse_type("int[]"), parse_type("geometry")
    (VARCHAR, DECIMAL(10, 2), INTEGER[], None)
    """
    if text.rstrip().endswith("[]"):
        inner = text.rstrip()[:-2]
        element = NULL if inner == "NULL" else parse_type(inner)
        return None if element is None else _array_of(element)
    match = re.fullmatch(r"\s*([A-Za-z_][A-Za-z0-9_ ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*", text)
    if match is None:
        return None
    name = " ".join(match[1].upper().split())
    if name in ("DECIMAL", "NUMERIC", "DEC"):
        return DECIMAL(int(match[2] or 18), int(match[3] or (0 if match[2] else 3)))
    return _SPELLINGS.get(name)


def from_arrow(type_: pa.DataType) -> SqlType | None:
    """The SQL type that holds every value of an Arrow type without loss, or None."""
    if pa.types.is_dictionary(type_):
        return from_arrow(type_.value_type)
    if pa.types.is_decimal(type_):
        return DECIMAL(type_.precision, type_.scale) if type_.precision <= 38 else None
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        element = from_arrow(type_.value_type)
        return None if element is None else _array_of(element)
    if pa.types.is_timestamp(type_):
        return TIMESTAMPTZ if type_.tz else TIMESTAMP
    tests: tuple[tuple[Any, SqlType], ...] = (
        (pa.types.is_boolean, BOOLEAN), (pa.types.is_int8, TINYINT), (pa.types.is_int16, SMALLINT),
        (pa.types.is_uint8, SMALLINT), (pa.types.is_int32, INTEGER), (pa.types.is_uint16, INTEGER),
        (pa.types.is_int64, BIGINT), (pa.types.is_uint32, BIGINT), (pa.types.is_floating, DOUBLE),
        (pa.types.is_string, VARCHAR), (pa.types.is_large_string, VARCHAR), (pa.types.is_string_view, VARCHAR),
        (pa.types.is_binary, BLOB), (pa.types.is_large_binary, BLOB), (pa.types.is_date, DATE),
        (pa.types.is_time, TIME), (pa.types.is_duration, INTERVAL), (pa.types.is_null, NULL),
    )  # fmt: skip
    return next((sql for test, sql in tests if test(type_)), None)


def _array_of(element: SqlType) -> SqlType | None:
    return None if element.is_array or element == INTERVAL else ARRAY(element)


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """The type both sides convert to in a comparison, CASE or UNION; None if there is none."""
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if left.is_numeric and right.is_numeric:
        if DOUBLE in (left, right):
            return DOUBLE
        if left.is_integer and right.is_integer:
            return max(left, right, key=lambda t: _INTEGERS.index(t.name))
        whole = max(_digits(left) - left.scale, _digits(right) - right.scale)
        scale = max(left.scale, right.scale)
        return DECIMAL(min(38, whole + scale), scale)
    if left.element is not None and right.element is not None:
        element = common_type(left.element, right.element)
        return None if element is None else ARRAY(element)
    if {left.name, right.name} <= {"DATE", "TIMESTAMP", "TIMESTAMPTZ"}:
        return TIMESTAMPTZ if TIMESTAMPTZ in (left, right) else TIMESTAMP
    return None


def _digits(type_: SqlType) -> int:
    if type_.is_integer:
        return {"TINYINT": 3, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19}[type_.name]
    return type_.precision


def to_kernel(array: pa.Array, type_: SqlType) -> np.ndarray[Any, Any]:
    """The values of a fixed-width column as a kernel sees them; NULL slots hold zero (validity travels apart)."""
    if type_.is_coded:
        raise TypeError(f"{type_} reaches kernels as dictionary codes")
    if type_.name == "DECIMAL":
        if type_.precision > 18:
            raise TypeError(f"{type_} is wider than 18 digits")
        lanes = np.frombuffer(array.buffers()[1], dtype=np.int64)[
            2 * array.offset : 2 * (array.offset + len(array)) : 2
        ]
        values = np.array(lanes)
        if array.null_count:
            values[to_numpy(array.is_null())] = 0
        return values
    if type_.name == "BOOLEAN":
        filled = array.fill_null(False) if array.null_count else array
        return to_numpy(filled)
    if array.null_count:
        array = array.fill_null(pa.scalar(0, pa.int64()).cast(_storage(array.type)).cast(array.type))
    if array.type != _storage(array.type):
        array = array.cast(_storage(array.type)) if not pa.types.is_timestamp(array.type) else array.view(pa.int64())
    return np.ascontiguousarray(to_numpy(array), dtype=np.dtype(type_.kernel))


def from_kernel(values: np.ndarray[Any, Any], valid: np.ndarray[Any, Any] | None, type_: SqlType) -> pa.Array:
    """The inverse of `to_kernel`: an Arrow array of the SQL type; rows where `valid` is false are NULL."""
    valid = None if valid is None or bool(valid.all()) else valid
    if type_.name == "DECIMAL":
        lanes = np.empty((len(values), 2), dtype=np.int64)
        lanes[:, 0] = values
        lanes[:, 1] = values >> 63
        array = pa.Array.from_buffers(type_.arrow, len(values), [None, pa.py_buffer(lanes.tobytes())])
        return array if valid is None else pa.compute.if_else(from_numpy(valid), array, pa.nulls(1, type_.arrow)[0])
    narrow = np.asarray(values).astype(_STORED.get(type_.name, "int64"), copy=False)
    return from_numpy(narrow, valid, type_.arrow)


_STORED = {
    "BOOLEAN": "bool", "DOUBLE": "float64", "TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "DATE": "int32"
}  # fmt: skip


def _storage(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_temporal(type_):
        return pa.int64()
    return type_
