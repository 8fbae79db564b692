"""Values as PostgreSQL has them: the types of columns, and each value as text or in binary form, column by column."""

from __future__ import annotations

import datetime as dt
import json
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.arrays import to_numpy
from millstream.errors import DataError, UnsupportedError
from millstream.server.postgres.messages import WireColumn

BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON, FLOAT4, FLOAT8 = 16, 17, 20, 21, 23, 25, 114, 700, 701
VARCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID = 1043, 1082, 1083, 1114, 1184, 1186, 1700, 2950
UNKNOWN, OID, CHAR, NAME = 705, 26, 18, 19
ARRAYS = {
    BOOL: 1000, BYTEA: 1001, INT2: 1005, INT4: 1007, TEXT: 1009, INT8: 1016, FLOAT8: 1022, TIMESTAMP: 1115,
    DATE: 1182, TIME: 1183, TIMESTAMPTZ: 1185, INTERVAL: 1187, NUMERIC: 1231, UUID: 2951,
}  # fmt: skip
SIZES = {
    BOOL: 1, INT2: 2, INT4: 4, INT8: 8, FLOAT8: 8, DATE: 4, TIME: 8, TIMESTAMP: 8, TIMESTAMPTZ: 8, INTERVAL: 16,
    UUID: 16,
}  # fmt: skip

_EPOCH_DAYS = 10_957
_EPOCH_MICROS = _EPOCH_DAYS * 86_400_000_000
"""2000-01-01, from which PostgreSQL counts"""

Encoded = list[bytes | None]


def oid_of(type_: pa.DataType) -> int:
    """PostgreSQL's number of the type that carries an Arrow type."""
    kinds: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
        (pa.types.is_boolean, BOOL), (pa.types.is_int8, INT2), (pa.types.is_uint8, INT2), (pa.types.is_int16, INT2),
        (pa.types.is_uint16, INT4), (pa.types.is_int32, INT4), (pa.types.is_uint32, INT8), (pa.types.is_int64, INT8),
        (pa.types.is_uint64, NUMERIC), (pa.types.is_floating, FLOAT8), (pa.types.is_decimal, NUMERIC),
        (pa.types.is_date, DATE), (pa.types.is_time, TIME), (pa.types.is_duration, INTERVAL),
        (pa.types.is_fixed_size_binary, BYTEA), (pa.types.is_binary, BYTEA), (pa.types.is_large_binary, BYTEA),
    )  # fmt: skip
    if pa.types.is_timestamp(type_):
        return TIMESTAMP if type_.tz is None else TIMESTAMPTZ
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return ARRAYS.get(oid_of(type_.value_type), JSON)
    if pa.types.is_nested(type_):
        return JSON
    if isinstance(type_, pa.UuidType):
        return UUID
    return next((oid for check, oid in kinds if check(type_)), TEXT)


def columns_of(schema: pa.Schema) -> list[WireColumn]:
    """The columns of a result; the modifier of a decimal says its precision and scale."""
    return [
        WireColumn(each.name, oid := oid_of(each.type), SIZES.get(oid, -1), _modifier(each.type)) for each in schema
    ]


def _modifier(type_: pa.DataType) -> int:
    return ((type_.precision << 16) | type_.scale) + 4 if pa.types.is_decimal(type_) else -1


def rows_of(table: pa.Table, binary: Sequence[bool]) -> Iterable[tuple[bytes | None, ...]]:
    """The rows of a table; `binary` says of each column in which form."""
    for batch in table.to_batches(max_chunksize=65_536):
        forms = zip(batch.columns, binary, strict=True)
        columns = [(_as_binary if form else as_text)(column) for column, form in forms]
        if columns:
            yield from zip(*columns, strict=True)
        else:
            yield from (() for _ in range(batch.num_rows))


# -- text ----------------------------------------------------------------------------------------------------------


def as_text(column: pa.Array) -> Encoded:
    """The values as text."""
    if isinstance(column, pa.ExtensionArray):
        return [None if value is None else str(value).encode() for value in column.to_pylist()]
    match oid_of(column.type):
        case oid if oid == BOOL:
            return [None if value is None else (b"t" if value else b"f") for value in column.to_pylist()]
        case oid if oid == BYTEA:
            return [None if value is None else b"\\x" + value.hex().encode() for value in column.to_pylist()]
        case oid if oid == INTERVAL:
            return [None if value is None else interval_text(value).encode() for value in _micros(column)]
        case oid if oid == JSON:
            return [None if value is None else as_json(value).encode() for value in column.to_pylist()]
        case oid if oid in ARRAYS.values():
            inner = column.type.value_type
            return [None if each is None else _array_text(each, inner) for each in _lists(column)]
        case oid if oid == TIMESTAMPTZ:
            shown = pc.cast(pc.cast(column, pa.timestamp("us", "UTC")), pa.string())
            return [None if value is None else value[:-1].encode() + b"+00" for value in shown.to_pylist()]
        case oid if oid == FLOAT8:
            return [None if value is None else _float_text(value) for value in column.to_pylist()]
    shown = column if pa.types.is_string(column.type) else pc.cast(column, pa.string())
    return [None if value is None else value.encode() for value in shown.to_pylist()]


def _float_text(value: float) -> bytes:
    if value != value:
        return b"NaN"
    if value in (float("inf"), float("-inf")):
        return b"Infinity" if value > 0 else b"-Infinity"
    return repr(value).removesuffix(".0").encode()


def interval_text(micros: int) -> str:
    """A duration as PostgreSQL prints intervals.

    >>> interval_text(90_061_500_000)
    '1 day 01:01:01.5'
    """
    days, rest = divmod(abs(micros), 86_400_000_000)
    sign = "-" if micros < 0 else ""
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    clock += f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{sign}{days} day{'s' * (days != 1)} {clock}" if days else clock


def as_json(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _lists(column: pa.Array) -> Iterable[pa.Array | None]:
    return (each.values if each.is_valid else None for each in column)


def _array_text(values: pa.Array, inner: pa.DataType) -> bytes:
    parts = [b"NULL" if each is None else each for each in as_text(values)]
    if oid_of(inner) in (TEXT, JSON, BYTEA, TIMESTAMP, TIMESTAMPTZ, INTERVAL):
        quoted = (each.replace(b"\\", b"\\\\").replace(b'"', b'\\"') for each in parts)
        parts = [
            b"NULL" if raw is None else b'"' + each + b'"' for raw, each in zip(values.to_pylist(), quoted, strict=True)
        ]
    return b"{" + b",".join(parts) + b"}"


# -- binary --------------------------------------------------------------------------------------------------------


def _as_binary(column: pa.Array) -> Encoded:
    if isinstance(column, pa.ExtensionArray):
        return [None if value is None else value.bytes for value in column.to_pylist()]
    oid = oid_of(column.type)
    match oid:
        case _ if oid in (INT2, INT4, INT8):
            return _fixed(column, f">i{SIZES[oid]}")
        case _ if oid == FLOAT8:
            return _fixed(column, ">f8")
        case _ if oid == BOOL:
            return [None if value is None else bytes((value,)) for value in column.to_pylist()]
        case _ if oid == DATE:
            return _fixed(since_2000(column), ">i4")
        case _ if oid in (TIMESTAMP, TIMESTAMPTZ):
            return _fixed(since_2000(column), ">i8")
        case _ if oid == TIME:
            return _fixed(pc.cast(column, pa.time64("us")).view(pa.int64()), ">i8")
        case _ if oid == INTERVAL:
            return [None if value is None else struct.pack("!qii", value, 0, 0) for value in _micros(column)]
        case _ if oid == NUMERIC:
            return [None if value is None else numeric(Decimal(value)) for value in column.to_pylist()]
        case _ if oid == BYTEA:
            return list(column.to_pylist())
        case _ if oid in ARRAYS.values():
            element = oid_of(column.type.value_type)
            return [None if each is None else _array(each, element) for each in _lists(column)]
    return as_text(column)


def since_2000(column: pa.Array) -> pa.Array:
    """Days or microseconds since PostgreSQL's first day."""
    if pa.types.is_date(column.type):
        return pc.subtract(pc.cast(column, pa.date32()).view(pa.int32()), pa.scalar(_EPOCH_DAYS, pa.int32()))
    return pc.subtract(pc.cast(column, pa.timestamp("us", column.type.tz)).view(pa.int64()), _EPOCH_MICROS)


def _fixed(column: pa.Array, form: str) -> Encoded:
    valid = column.is_valid().to_pylist() if column.null_count else None
    values = to_numpy(column.fill_null(0) if column.null_count else column)
    data, size = values.astype(np.dtype(form)).tobytes(), np.dtype(form).itemsize
    encoded: Encoded = [data[at : at + size] for at in range(0, len(data), size)]
    if valid is not None:
        encoded = [each if there else None for each, there in zip(encoded, valid, strict=True)]
    return encoded


def _micros(column: pa.Array) -> list[int | None]:
    return list(pc.cast(column, pa.duration("us")).view(pa.int64()).to_pylist())


def numeric(value: Decimal) -> bytes:
    """A decimal in PostgreSQL's base of ten thousand."""
    if value.is_nan():
        return struct.pack("!hhHh", 0, 0, 0xC000, 0)
    sign, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    whole = int("".join(map(str, digits))) * 10 ** max(0, int(exponent))
    whole *= 10 ** (-scale % 4)
    groups: list[int] = []
    while whole:
        whole, group = divmod(whole, 10_000)
        groups.append(group)
    weight = len(groups) - 1 - (scale + 3) // 4
    groups.reverse()
    while groups and groups[-1] == 0:
        groups.pop()
    return struct.pack(f"!hhHh{len(groups)}h", len(groups), weight if groups else 0, 0x4000 * sign, scale, *groups)


def _array(values: pa.Array, element: int) -> bytes:
    parts = [b"\xff\xff\xff\xff" if each is None else len(each).to_bytes(4) + each for each in _as_binary(values)]
    if not parts:
        return struct.pack("!iii", 0, 0, element)
    return struct.pack("!iiiii", 1, int(values.null_count > 0), element, len(parts), 1) + b"".join(parts)


# -- parameters ----------------------------------------------------------------------------------------------------


def parameter(value: bytes | None, oid: int, binary: bool) -> Any:
    """A value that a client gives for a parameter."""
    if value is None:
        return None
    try:
        return _BINARY[oid](value) if binary else _TEXT.get(oid, str)(value.decode())
    except KeyError:
        if oid in (0, TEXT, VARCHAR, UNKNOWN, NAME, JSON):
            return value.decode()
        raise UnsupportedError(f"parameters of the type {oid} in binary form are not supported") from None
    except (ValueError, struct.error, InvalidOperation, OverflowError) as error:
        raise DataError(f"a parameter is not a valid value of its type: {error}") from None


def _bool(text: str) -> bool:
    if text.lower() in ("t", "true", "1", "on", "yes"):
        return True
    if text.lower() in ("f", "false", "0", "off", "no"):
        return False
    raise ValueError(f"{text!r} is not a boolean")


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text.strip())


def _since_2000(value: bytes) -> dt.datetime:
    return dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=struct.unpack("!q", value)[0])


def _from_numeric(value: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", value)
    if sign == 0xC000:
        return Decimal("NaN")
    groups = struct.unpack_from(f"!{count}h", value, 8)
    total = sum((Decimal(group).scaleb(4 * (weight - at)) for at, group in enumerate(groups)), Decimal(0))
    return (-total if sign else total).quantize(Decimal(1).scaleb(-scale))


_TEXT: dict[int, Callable[[str], Any]] = {
    INT2: int, INT4: int, INT8: int, OID: int, FLOAT4: float, FLOAT8: float, NUMERIC: Decimal, BOOL: _bool,
    TIMESTAMP: _moment, TIMESTAMPTZ: _moment, DATE: dt.date.fromisoformat, TIME: dt.time.fromisoformat,
    BYTEA: lambda text: bytes.fromhex(text.removeprefix("\\x")),
}  # fmt: skip

_BINARY: dict[int, Callable[[bytes], Any]] = {
    INT2: lambda value: struct.unpack("!h", value)[0],
    INT4: lambda value: struct.unpack("!i", value)[0],
    INT8: lambda value: struct.unpack("!q", value)[0],
    OID: lambda value: struct.unpack("!I", value)[0],
    FLOAT4: lambda value: struct.unpack("!f", value)[0],
    FLOAT8: lambda value: struct.unpack("!d", value)[0],
    BOOL: lambda value: bool(value[0]),
    BYTEA: bytes,
    NUMERIC: _from_numeric,
    TIMESTAMP: _since_2000,
    TIMESTAMPTZ: lambda value: _since_2000(value).replace(tzinfo=dt.UTC),
    DATE: lambda value: dt.date(2000, 1, 1) + dt.timedelta(days=struct.unpack("!i", value)[0]),
    TIME: lambda value: (dt.datetime.min + dt.timedelta(microseconds=struct.unpack("!q", value)[0])).time(),
    UUID: lambda value: str(uuid.UUID(bytes=value)),
}
