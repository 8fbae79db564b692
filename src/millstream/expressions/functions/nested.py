"""Functions of structs and maps. A map has NULL for keys that it does not have."""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import BindError, UnsupportedError
from millstream.expressions.functions.casts import coerce
from millstream.expressions.functions.registry import Rule, always, constant, define
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.types import ARRAY, BIGINT, BOOLEAN, MAP, STRUCT, VARCHAR, SqlType, nested_fault

_HINTS = {
    "of intervals": "keep their length: epoch_us(…)",
    "two fields": "give each field a name of its own",
    "empty map": "map(CAST([] AS VARCHAR[]), CAST([] AS INT[]))",
    "keys of a map": "keys are texts, numbers or times",
}


def nested(type_: SqlType) -> SqlType:
    """The type; UnsupportedError if arrays, structs and maps cannot hold such parts."""
    fault = nested_fault(type_)
    if fault is not None:
        raise UnsupportedError(fault, hint=next((hint for word, hint in _HINTS.items() if word in fault), None))
    return type_


def array_of(element: SqlType) -> SqlType:
    """The type of arrays of such elements; UnsupportedError if there is none."""
    return nested(ARRAY(element))


def struct(names: tuple[str, ...], values: tuple[Expr, ...]) -> Expr:
    """A struct of values with names."""
    if not names:
        raise BindError("a struct needs fields", hint="{'name': value}, or row(value)")
    fields = zip(names, (value.type for value in values), strict=True)
    return Call(nested(STRUCT(*fields)), "struct_pack", values)


def field(value: Expr, name: str) -> Expr:
    """A field of a struct, by its name without regard to case."""
    field_names(value)
    for known, type_ in value.type.fields:
        if known.lower() == name.lower():
            return Call(type_, "struct_extract", (value, Literal(VARCHAR, known)))
    raise BindError(f"no field {name} in {value.type}", hint="fields: " + ", ".join(n for n, _ in value.type.fields))


def field_names(value: Expr) -> list[str]:
    """The names of a struct's fields."""
    if not value.type.is_struct:
        raise BindError(f"{value.type} has no fields", hint="s.name is the field `name` of the struct s")
    return [name for name, _ in value.type.fields]


def subscript(value: Expr, at: Expr) -> Expr | None:
    """`m[key]` of a map and `s['name']` of a struct; None for other values."""
    if value.type.is_map:
        key = coerce(at, value.type.parts[0])
        if key is None:
            raise BindError(f"the keys of {value.type} are not {at.type}")
        return Call(value.type.parts[1], "map_extract_value", (value, key))
    if value.type.is_struct:
        name = constant(at)
        if not isinstance(name, str):
            raise BindError("the field of a struct is named by a constant text", hint="s['name'], or s.name")
        return field(value, name)
    return None


def _row(args: tuple[Expr, ...]) -> Expr:
    return struct(tuple(f"col{place}" for place in range(1, len(args) + 1)), args)


def _map(args: tuple[Expr, ...]) -> Expr | None:
    keys, values = (arg.type.element for arg in args)
    if keys is None or values is None:
        return None
    return Call(nested(MAP(keys, values)), "map", args)


def _of_map(name: str, type_: Callable[[SqlType, SqlType], SqlType]) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        return Call(nested(type_(*args[0].type.parts)), name, args) if args[0].type.is_map else None

    return rule


def _of_key(name: str, type_: SqlType) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        key = coerce(args[1], args[0].type.parts[0]) if args[0].type.is_map else None
        return None if key is None else Call(type_, name, (args[0], key))

    return rule


def _named_field(args: tuple[Expr, ...]) -> Expr | None:
    return subscript(*args) if args[0].type.is_struct else None


def _value_at(args: tuple[Expr, ...]) -> Expr | None:
    return subscript(*args) if args[0].type.is_map else None


def size(args: tuple[Expr, ...]) -> Expr | None:
    """How many elements an array has, or entries a map."""
    return Call(BIGINT, "array_length", args) if args[0].type.is_array or args[0].type.is_map else None


def _pack_duckdb(call: Call, args: tuple[str, ...]) -> str:
    names = [_quoted(name, '"') for name, _ in call.type.fields]
    parts = (f"{name} := {arg}" for name, arg in zip(names, args, strict=True))
    return f"CAST(struct_pack({', '.join(parts)}) AS {call.type.duckdb})"


def _pack_spark(call: Call, args: tuple[str, ...]) -> str:
    return f"CAST(struct({', '.join(args)}) AS {call.type.spark})"


def _quoted(name: str, sign: str) -> str:
    return sign + name.replace(sign, sign * 2) + sign


define(
    "struct_pack(name => value, ...)", lambda args: None, duckdb=_pack_duckdb, spark=_pack_spark,
)  # fmt: skip
define("row([x, ...])", _row)
define(
    "struct_extract(struct, name)", _named_field,
    spark=lambda call, args: f"({args[0]}).{_quoted(str(constant(call.args[1])), '`')}",
)  # fmt: skip
define(
    "map(keys, values)", _map, fails=always,
    duckdb=lambda call, args: f"CAST(map({args[0]}, {args[1]}) AS {call.type.duckdb})",
    spark=lambda call, args: f"CAST(map_from_arrays({args[0]}, {args[1]}) AS {call.type.spark})",
    aliases=("map_from_arrays",),
)  # fmt: skip
define("map_keys(map)", _of_map("map_keys", lambda key, value: ARRAY(key)))
define("map_values(map)", _of_map("map_values", lambda key, value: ARRAY(value)))
define("map_entries(map)", _of_map("map_entries", lambda key, value: ARRAY(STRUCT(("key", key), ("value", value)))))
define("map_contains(map, key)", _of_key("map_contains", BOOLEAN), spark="map_contains_key({0}, {1})",
       aliases=("map_contains_key",))  # fmt: skip
define("map_extract_value(map, key)", _value_at, spark="try_element_at({0}, {1})")
