"""SQL types and their counterparts in Arrow, NumPy, DuckDB and Spark: the one table that every layer consults."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.arrays import from_numpy, to_numpy
from millstream.records import dataclass


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
    fields: tuple[tuple[str, SqlType], ...] = ()
    """the names and types of a STRUCT's fields; of a MAP, those of `key` and `value`"""
    domain: str = ""
    """the name of a type whose values are some of those of this one, and are carried as these (`DOMAINS`)"""

    def __str__(self) -> str:
        if self.domain:
            return self.domain
        if self.element is not None:
            return f"{self.element}[]"
        if self.fields:
            return self._nested(str, _quoted)
        return f"{self.name}({self.precision}, {self.scale})" if self.name == "DECIMAL" else self.name

    __repr__ = __str__

    @property
    def arrow(self) -> pa.DataType:
        if self.name == "DECIMAL":
            return pa.decimal128(self.precision, self.scale)
        if self.element is not None:
            return pa.list_(self.element.arrow)
        if self.name == "MAP":
            return pa.map_(*(type_.arrow for _, type_ in self.fields))
        if self.name == "STRUCT":
            return pa.struct([(name, type_.arrow) for name, type_ in self.fields])
        return _ROWS[self.name].arrow

    @property
    def kernel(self) -> str:
        """NumPy dtype of a value inside a kernel; strings and blobs are there as dictionary codes."""
        return _ROWS[self.name].kernel

    @property
    def duckdb(self) -> str:
        if self.element is not None:
            return f"{self.element.duckdb}[]"
        if self.fields:
            return self._nested(lambda type_: type_.duckdb, _quoted)
        return f"DECIMAL({self.precision}, {self.scale})" if self.name == "DECIMAL" else _ROWS[self.name].duckdb

    @property
    def stored(self) -> str:
        """The type of a stored table's column in DuckDB, which knows domains, too."""
        if self.element is not None:
            return f"{self.element.stored}[]"
        if self.fields:
            return self._nested(lambda type_: type_.stored, _quoted)
        return self.domain or self.duckdb

    @property
    def base(self) -> SqlType:
        """The type that carries a domain's values; any other type is its own."""
        return replace(self, domain="") if self.domain else self

    @property
    def spark(self) -> str:
        if self.element is not None:
            return f"ARRAY<{self.element.spark}>"
        if self.name == "MAP":
            return f"MAP<{', '.join(type_.spark for _, type_ in self.fields)}>"
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(f'`{name}`: {type_.spark}' for name, type_ in self.fields)}>"
        return f"DECIMAL({self.precision}, {self.scale})" if self.name == "DECIMAL" else _ROWS[self.name].spark

    def _nested(self, spelled: Callable[[SqlType], str], quoted: Callable[[str], str]) -> str:
        names = [f"{quoted(name)} " * (self.name == "STRUCT") for name, _ in self.fields]
        parts = [name + spelled(type_) for name, (_, type_) in zip(names, self.fields, strict=True)]
        return f"{self.name}({', '.join(parts)})"

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
    def is_struct(self) -> bool:
        return self.name == "STRUCT"

    @property
    def is_map(self) -> bool:
        return self.name == "MAP"

    @property
    def is_nested(self) -> bool:
        """An ARRAY, STRUCT or MAP."""
        return self.element is not None or bool(self.fields)

    @property
    def parts(self) -> tuple[SqlType, ...]:
        """The types of the values inside a nested one."""
        return tuple(type_ for _, type_ in self.fields) if self.element is None else (self.element,)

    def with_parts(self, parts: Sequence[SqlType]) -> SqlType:
        """A type of the same form around other types."""
        if self.element is not None:
            return ARRAY(parts[0])
        return replace(self, fields=tuple((name, part) for (name, _), part in zip(self.fields, parts, strict=True)))

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
    # kernels pass nested values on and never look at them
    "ARRAY": _Row(pa.list_(pa.null()), "int64", "LIST", "ARRAY"),
    "STRUCT": _Row(pa.struct([]), "int64", "STRUCT", "STRUCT"),
    "MAP": _Row(pa.map_(pa.string(), pa.null()), "int64", "MAP", "MAP"),
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

# Domains are types that no engine but DuckDB has. Their values are some of those of another type, which carries them
# everywhere: in Arrow, in kernels, on Spark. So only what makes a value of a domain need know it: casts and input.
UTINYINT = SqlType("SMALLINT", domain="UTINYINT")
USMALLINT = SqlType("INTEGER", domain="USMALLINT")
UINTEGER = SqlType("BIGINT", domain="UINTEGER")
UBIGINT = SqlType("DECIMAL", 20, domain="UBIGINT")
HUGEINT = SqlType("DECIMAL", 38, domain="HUGEINT")
UUID = SqlType("VARCHAR", domain="UUID")
JSON = SqlType("VARCHAR", domain="JSON")
DOMAINS = {type_.domain: type_ for type_ in (UTINYINT, USMALLINT, UINTEGER, UBIGINT, HUGEINT, UUID, JSON)}
_UNSIGNED = {"UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64}
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}


def integer_bounds(type_: SqlType) -> tuple[int, int] | None:
    """The least and the greatest value of a type of whole numbers; None for other types.

    >>> integer_bounds(UTINYINT), integer_bounds(TINYINT), integer_bounds(DOUBLE)
    ((0, 255), (-128, 127), None)
    """
    if type_.domain in _UNSIGNED:
        return 0, 2 ** _UNSIGNED[type_.domain] - 1
    if type_.domain == "HUGEINT":
        return 1 - 10**38, 10**38 - 1
    if type_.name in _BITS:
        edge = 2 ** (_BITS[type_.name] - 1)
        return -edge, edge - 1
    return None


def DECIMAL(precision: int = 18, scale: int = 3) -> SqlType:
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise ValueError(f"DECIMAL({precision}, {scale}): precision is 1 to 38, scale at most the precision")
    return SqlType("DECIMAL", precision, scale)


def ARRAY(element: SqlType) -> SqlType:
    return SqlType("ARRAY", element=element)


def STRUCT(*fields: tuple[str, SqlType]) -> SqlType:
    return SqlType("STRUCT", fields=fields)


def MAP(key: SqlType, value: SqlType) -> SqlType:
    return SqlType("MAP", fields=(("key", key), ("value", value)))


def nested_fault(type_: SqlType) -> str | None:
    """Why there are no arrays, structs or maps of such parts; None if there are."""
    names = [name.lower() for name, _ in type_.fields]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"two fields {twice}"
    if INTERVAL in type_.parts:
        return f"{type_.name.lower()}s of intervals are not supported"
    if type_.is_map and type_.parts[0] == NULL:
        return "an empty map needs types"
    if type_.is_map and type_.parts[0].is_nested:
        return "the keys of a map are plain values"
    return None


# Spellings accepted in declarations. REAL and FLOAT are kept in double precision, as the SQL standard allows;
# the length of CHAR(n) and VARCHAR(n) is accepted and not enforced.
_SPELLINGS = {
    "BOOL": BOOLEAN, "BOOLEAN": BOOLEAN, "TINYINT": TINYINT, "INT1": TINYINT, "BYTE": TINYINT,
    "SMALLINT": SMALLINT, "INT2": SMALLINT, "SHORT": SMALLINT, "INT": INTEGER, "INTEGER": INTEGER, "INT4": INTEGER,
    "BIGINT": BIGINT, "INT8": BIGINT, "LONG": BIGINT, "REAL": DOUBLE, "FLOAT": DOUBLE, "FLOAT4": DOUBLE,
    "FLOAT8": DOUBLE, "DOUBLE": DOUBLE, "DOUBLE PRECISION": DOUBLE, "VARCHAR": VARCHAR, "CHAR": VARCHAR,
    "CHARACTER": VARCHAR, "NCHAR": VARCHAR, "NVARCHAR": VARCHAR, "BPCHAR": VARCHAR, "TEXT": VARCHAR,
    "STRING": VARCHAR, "CHARACTER VARYING": VARCHAR, "BLOB": BLOB, "BINARY": BLOB, "VARBINARY": BLOB, "BYTEA": BLOB,
    "TIMESTAMP": TIMESTAMP, "DATETIME": TIMESTAMP, "TIMESTAMP_NTZ": TIMESTAMP, "TIMESTAMPNTZ": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMPTZ, "TIMESTAMP_LTZ": TIMESTAMPTZ, "TIMESTAMPLTZ": TIMESTAMPTZ,
    **DOMAINS, "UINT8": UTINYINT, "UINT16": USMALLINT, "UINT32": UINTEGER, "UINT64": UBIGINT, "INT128": HUGEINT,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ, "DATE": DATE, "TIME": TIME, "INTERVAL": INTERVAL,
}  # fmt: skip


def parse_type(text: str) -> SqlType | None:
    """The type a declaration names, or None if we have no such type.

    >>> parse_type("char(10)"), parse_type("decimal(10,2)"), parse_type("int[]"), parse_type("geometry")
    (VARCHAR, DECIMAL(10, 2), INTEGER[], None)
    >>> parse_type("struct(a int, b map(text, double)[])")
    STRUCT(a INTEGER, b MAP(VARCHAR, DOUBLE)[])
    """
    if nested := re.fullmatch(r"\s*(.*)\[\]\s*|\s*(STRUCT|MAP)\((.*)\)\s*", text, re.IGNORECASE | re.DOTALL):
        return _parse_nested(nested[1], nested[2], nested[3])
    match = re.fullmatch(r"\s*([A-Za-z_][A-Za-z0-9_ ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*", text)
    if match is None:
        return None
    name = " ".join(match[1].upper().split())
    if name in ("DECIMAL", "NUMERIC", "DEC"):
        return DECIMAL(int(match[2] or 18), int(match[3] or (0 if match[2] else 3)))
    return _SPELLINGS.get(name)


def _parse_nested(element: str | None, word: str | None, inside: str) -> SqlType | None:
    """An array of `element`, or a STRUCT or MAP with what stands in its parentheses."""
    named = word is not None and word.upper() == "STRUCT"
    names, types = [], []
    for part in [element] if element is not None else _split(inside):
        found = re.fullmatch(r'\s*("(?:[^"]|"")*"|\w+)\s+(.*)' if named else r"()(.*)", part, re.DOTALL)
        type_ = None if found is None else NULL if found[2].strip() == "NULL" else parse_type(found[2])
        if found is None or type_ is None:
            return None
        names.append(found[1][1:-1].replace('""', '"') if found[1].startswith('"') else found[1])
        types.append(type_)
    if word is None:
        return sound(ARRAY(types[0]))
    if not named:
        return sound(MAP(*types)) if len(types) == 2 else None
    return sound(STRUCT(*zip(names, types, strict=True)))


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no parentheses and no quotes."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == '"'
        depth += 0 if quoted else (letter == "(") - (letter == ")")
        if letter == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _quoted(name: str) -> str:
    """The name of a field as SQL, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def sound(type_: SqlType) -> SqlType | None:
    """The nested type, or None if there is no such."""
    return None if nested_fault(type_) else type_


def from_arrow(type_: pa.DataType) -> SqlType | None:
    """The SQL type that holds every value of an Arrow type without loss, or None."""
    if pa.types.is_dictionary(type_):
        return from_arrow(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return _EXTENSIONS.get(type_.extension_name)
    if pa.types.is_decimal(type_):
        return DECIMAL(type_.precision, type_.scale) if type_.precision <= 38 else None
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        element = from_arrow(type_.value_type)
        return None if element is None else sound(ARRAY(element))
    if pa.types.is_struct(type_) or pa.types.is_map(type_):
        inner = [type_.key_field, type_.item_field] if pa.types.is_map(type_) else list(type_)
        parts = [from_arrow(field.type) for field in inner]
        known = [(field.name, part) for field, part in zip(inner, parts, strict=True) if part is not None]
        if not parts or len(known) < len(parts):
            return None
        return sound(STRUCT(*known) if pa.types.is_struct(type_) else MAP(known[0][1], known[1][1]))
    if pa.types.is_timestamp(type_):
        return TIMESTAMPTZ if type_.tz else TIMESTAMP
    tests: tuple[tuple[Any, SqlType], ...] = (
        (pa.types.is_boolean, BOOLEAN), (pa.types.is_int8, TINYINT), (pa.types.is_int16, SMALLINT),
        (pa.types.is_uint8, UTINYINT), (pa.types.is_int32, INTEGER), (pa.types.is_uint16, USMALLINT),
        (pa.types.is_int64, BIGINT), (pa.types.is_uint32, UINTEGER), (pa.types.is_uint64, UBIGINT),
        (pa.types.is_floating, DOUBLE),
        (pa.types.is_string, VARCHAR), (pa.types.is_large_string, VARCHAR), (pa.types.is_string_view, VARCHAR),
        (pa.types.is_binary, BLOB), (pa.types.is_large_binary, BLOB), (pa.types.is_date, DATE),
        (pa.types.is_time, TIME), (pa.types.is_duration, INTERVAL), (pa.types.is_null, NULL),
    )  # fmt: skip
    return next((sql for test, sql in tests if test(type_)), None)


_EXTENSIONS = {"arrow.uuid": UUID, "arrow.json": JSON}


def from_duckdb(kind: str, arrow: pa.DataType) -> SqlType | None:
    """The SQL type of a column that DuckDB calls `kind` and gives out as an Arrow type; None if there is none."""
    return parse_type(kind) or from_arrow(arrow)


def fixed_length(array: pa.Array) -> pa.Array:
    """Intervals of months, days and nanoseconds, as DuckDB gives them out, in microseconds: a month is 30 days."""
    parts = np.frombuffer(array.buffers()[1], dtype=[("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    parts = parts[array.offset : array.offset + len(array)]
    days = parts["months"].astype(np.int64) * 30 + parts["days"]
    valid = to_numpy(array.is_valid()) if array.null_count else None
    return from_numpy(days * 86_400_000_000 + parts["nanos"] // 1000, valid, INTERVAL.arrow)


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """The type both sides convert to in a comparison, CASE or UNION; None if there is none."""
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if left.domain or right.domain:
        # a UUID is no text among others: it is compared with UUIDs
        return None if UUID in (left, right) else common_type(left.base, right.base)
    if left.is_numeric and right.is_numeric:
        if DOUBLE in (left, right):
            return DOUBLE
        if left.is_integer and right.is_integer:
            return max(left, right, key=lambda t: _INTEGERS.index(t.name))
        whole = max(_digits(left) - left.scale, _digits(right) - right.scale)
        scale = max(left.scale, right.scale)
        return DECIMAL(min(38, whole + scale), scale)
    if alike(left, right):
        parts = [common_type(*pair) for pair in zip(left.parts, right.parts, strict=True)]
        known = [part for part in parts if part is not None]
        return left.with_parts(known) if len(known) == len(parts) else None
    if {left.name, right.name} <= {"DATE", "TIMESTAMP", "TIMESTAMPTZ"}:
        return TIMESTAMPTZ if TIMESTAMPTZ in (left, right) else TIMESTAMP
    return None


def alike(left: SqlType, right: SqlType) -> bool:
    """Whether both are arrays, both maps, or both structs with the same names."""
    names = [[name.lower() for name, _ in type_.fields] for type_ in (left, right)]
    return left.is_nested and left.name == right.name and names[0] == names[1]


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
