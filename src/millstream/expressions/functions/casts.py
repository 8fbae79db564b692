"""Conversions between types: which exist, which happen by themselves, and what they do to constants.

What a cast does, on every host:

- number → integer rounds: DOUBLE to the nearest, halves to even; DECIMAL to the nearest, halves away from zero;
- number → DECIMAL rounds to the nearest, halves away from zero;
- a value that does not fit the target is an error (TRY_CAST: NULL), never cut off or wrapped;
- text → anything follows `literals.TEXT_FORMS`; DOUBLE → text is the shortest form that reads back ('1.0', '1e+20');
- number → BOOLEAN is `<> 0`; VARCHAR ↔ BLOB is UTF-8;
- a value becomes one of a domain (`types.DOMAINS`) by way of the type that carries it, and is then checked;
- TIMESTAMP ↔ TIMESTAMPTZ takes the TIMESTAMP as local time of the session (`zones`);
- numbers and times do not convert: `epoch_us`, `make_timestamp`.
"""

from __future__ import annotations

from decimal import Decimal

from millstream.errors import BindError
from millstream.expressions.functions.literals import decimal_value, fits, literal, of_domain
from millstream.expressions.nodes import Call, Cast, Column, Expr, Literal
from millstream.types import JSON, NULL, TIMESTAMP, TIMESTAMPTZ, UUID, VARCHAR, SqlType, alike, integer_bounds

_DAY = 86_400_000_000
_NUMBERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL"})
_CASTS: dict[str, frozenset[str]] = {
    **{name: _NUMBERS | {"BOOLEAN", "VARCHAR"} for name in _NUMBERS},
    "BOOLEAN": (_NUMBERS - {"DECIMAL"}) | {"VARCHAR"},
    "VARCHAR": _NUMBERS | {"BOOLEAN", "BLOB", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ"},
    "BLOB": frozenset({"VARCHAR"}),
    "DATE": frozenset({"VARCHAR", "TIMESTAMP", "TIMESTAMPTZ"}),
    "TIME": frozenset({"VARCHAR"}),
    "TIMESTAMP": frozenset({"VARCHAR", "DATE", "TIME", "TIMESTAMPTZ"}),
    "TIMESTAMPTZ": frozenset({"VARCHAR", "DATE", "TIME", "TIMESTAMP"}),
    "INTERVAL": frozenset(),
    "NULL": frozenset(),
    "ARRAY": frozenset(),
    "STRUCT": frozenset(),
    "MAP": frozenset(),
}


def cast(expr: Expr, type_: SqlType, safe: bool = False) -> Expr:
    """CAST(expr AS type), or TRY_CAST if `safe`; constants are converted at once."""
    if expr.type == type_:
        return expr
    if isinstance(expr, Literal) and expr.value is None:
        return Literal(type_, None)
    if type_.domain or UUID in (expr.type, type_):
        return _to_domain(expr, type_, safe)
    is_text = expr.type.is_text and isinstance(expr, Literal) and not type_.is_nested
    if isinstance(expr, Call) and expr.fn == "struct_pack" and _is_row_of(expr.type, type_):
        values = zip(expr.args, type_.parts, strict=True)
        return Call(type_, expr.fn, tuple(cast(value, part, safe) for value, part in values))
    if expr.type.is_nested and type_.is_nested:
        _check_parts(expr.type, type_)
    if type_.name not in (*_CASTS[expr.type.name], expr.type.name) and not is_text:
        raise BindError(f"cannot cast {expr.type} to {type_}", hint=_instead(expr.type, type_))
    from millstream.expressions.functions import zones

    if (zoned := zones.cast(expr, type_, safe)) is not None:
        return zoned
    if isinstance(expr, Literal):
        try:
            folded = _fold(expr, type_)
        except BindError:
            if not safe:
                raise
            return Literal(type_, None)
        if folded is not None:
            return folded
    return Cast(type_, expr, safe)


def _to_domain(expr: Expr, type_: SqlType, safe: bool) -> Expr:
    """A value of a domain, from one of the type that carries it; a UUID converts to text and to nothing else."""
    plain = expr.type.is_text or expr.type.is_numeric or expr.type.name == "BOOLEAN"
    if (UUID in (expr.type, type_) and not expr.type.is_text) or not plain or (expr.type == UUID and type_ != VARCHAR):
        hint = "only text can be cast to a UUID, and a UUID only to text" if UUID in (expr.type, type_) else None
        raise BindError(f"cannot cast {expr.type} to {type_}", hint=hint)
    if expr.type == UUID:
        return Literal(VARCHAR, expr.value) if isinstance(expr, Literal) else Cast(VARCHAR, expr, safe)
    carried = cast(expr, type_.base, safe)
    if isinstance(carried, Literal):
        try:
            return Literal(type_, of_domain(carried.value, type_))
        except BindError:
            if not safe:
                raise
            return Literal(type_, None)
    return Cast(type_, carried, safe)


def _check_parts(source: SqlType, target: SqlType) -> None:
    """What nested values hold is cast as other values are: by a cast that is known for it."""
    if not alike(source, target):
        are_structs = source.is_struct and target.is_struct
        hint = "the fields must have the same names in the same order" if are_structs else None
        raise BindError(f"cannot cast {source} to {target}", hint=hint)
    for part, wanted in zip(source.parts, target.parts, strict=True):
        if part != NULL:
            cast(Column(part, "part"), wanted)


def _is_row_of(source: SqlType, target: SqlType) -> bool:
    """Whether ROW(…), which gives no names, has as many fields as a struct."""
    unnamed = tuple(f"col{place}" for place in range(1, len(target.fields) + 1))
    return target.is_struct and source.is_struct and tuple(name for name, _ in source.fields) == unnamed


def coerce(expr: Expr, type_: SqlType) -> Expr | None:
    """The expression as a value of `type_` where that happens by itself and loses nothing; None where it does not."""
    if expr.type == type_:
        return expr
    if expr.type == NULL:
        return Literal(type_, None) if isinstance(expr, Literal) else None
    if isinstance(expr, Literal) and expr.type.is_text and (type_.is_temporal or type_.name == "INTERVAL"):
        try:
            return literal(str(expr.value), type_) if expr.value is not None else Literal(type_, None)
        except BindError:
            return None
    if isinstance(expr, Literal) and isinstance(expr.value, int) and expr.type.is_integer and type_.is_integer:
        return Literal(type_, expr.value) if fits(expr.value, type_) else None
    return cast(expr, type_) if widens(expr.type, type_) else None


def widens(source: SqlType, target: SqlType) -> bool:
    """Whether values of `source` become values of `target` by themselves."""
    if (source == UUID) != (target == UUID) or target == JSON:
        return source == target
    least, most = integer_bounds(source), integer_bounds(target)
    if least is not None and most is not None:
        return most[0] <= least[0] and least[1] <= most[1]
    if target.domain:
        return source == target
    if source.is_text and target.is_text:
        return True
    if least is not None and target.name == "DECIMAL" and not source.domain:
        return len(str(least[1])) <= target.precision - target.scale
    if source.name == "DECIMAL" and target.name == "DECIMAL":
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    if target.name == "DOUBLE":
        return source.is_numeric
    if alike(source, target):
        pairs = zip(source.parts, target.parts, strict=True)
        return all(part in (NULL, wanted) or widens(part, wanted) for part, wanted in pairs)
    times = ("DATE", "TIMESTAMP", "TIMESTAMPTZ")
    return source.name in times and target.name in times and times.index(source.name) <= times.index(target.name)


def cast_can_fail(source: SqlType, target: SqlType) -> bool:
    """Whether some value of `source` has no counterpart in `target`."""
    if target.domain:
        return source != target
    if target == VARCHAR:
        return source.name == "BLOB"
    if source.is_text:
        return target.name != "BLOB"
    if source.is_nested and target.is_nested:
        return any(
            part not in (NULL, wanted) and cast_can_fail(part, wanted)
            for part, wanted in zip(source.parts, target.parts, strict=True)
        )
    if target.name == "BOOLEAN" or source.name == "BOOLEAN" or source.is_temporal:
        return False
    return not widens(source, target)


def _fold(expr: Literal, type_: SqlType) -> Literal | None:
    from millstream.expressions.functions import zones

    value, source = expr.value, expr.type
    if isinstance(value, str) and source.is_text:
        return literal(value, type_)
    if source.name == "DATE" and type_.name in ("TIMESTAMP", "TIMESTAMPTZ") and isinstance(value, int):
        return _fold(Literal(TIMESTAMP, value * _DAY), type_)
    if source.name == "TIMESTAMPTZ" and not zones.is_utc():
        return None
    if {source.name, type_.name} == {"TIMESTAMP", "TIMESTAMPTZ"} and isinstance(value, int):
        return Literal(type_, zones.since_utc(value) if type_ == TIMESTAMPTZ else value)
    if source == type_:
        return expr
    if not (source.is_numeric and type_.is_numeric):
        return None
    if isinstance(value, float):
        if not type_.is_integer:
            return None
        if value != value or value in (float("inf"), float("-inf")):
            raise BindError(f"{value} does not fit {type_}")
        value = round(value)
    if type_.name == "DOUBLE":
        return Literal(type_, float(value))  # type: ignore[arg-type]
    try:
        if type_.name == "DECIMAL":
            return Literal(type_, decimal_value(Decimal(value), type_))  # type: ignore[arg-type]
        whole = int(decimal_value(value, SqlType("DECIMAL", 38, 0))) if isinstance(value, Decimal) else value
        if not fits(whole, type_):  # type: ignore[arg-type]
            raise ValueError
    except ValueError:
        raise BindError(f"{expr} does not fit {type_}") from None
    return Literal(type_, whole)


def _instead(source: SqlType, target: SqlType) -> str | None:
    if source.is_integer and target.is_temporal:
        return "make_timestamp(µs) and to_timestamp(seconds) turn numbers into times"
    if target.is_numeric and (source.is_temporal or source.name == "INTERVAL"):
        return "epoch(t), epoch_ms(t) and epoch_us(t) turn times and intervals into numbers"
    if source.name == "INTERVAL":
        return "epoch(i) gives its seconds"
    return None
