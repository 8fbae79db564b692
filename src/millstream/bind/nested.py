"""Types of columns, and structs as SQL writes them."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.bind.context import Context
from millstream.bind.scope import Scope
from millstream.expressions import functions
from millstream.expressions.nodes import Expr
from millstream.types import ARRAY, MAP, STRUCT, SqlType, parse_type


def bind_type(context: Context, node: exp.Expr) -> SqlType:
    """The SQL type a declaration or CAST names."""
    if node.args.get("nested"):
        return _bind_nested_type(context, node)
    word = node.args.get("kind") or getattr(node.this, "value", node.this)
    sizes = ", ".join(str(size.this.this) for size in node.expressions if isinstance(size, exp.DataTypeParam))
    text = f"{word}({sizes})" if sizes else str(word)
    try:
        type_ = parse_type(text)
    except ValueError as error:
        context.fail(str(error), node)
    if type_ is None and text.upper() in _INCOMPLETE:
        what, hint = _INCOMPLETE[text.upper()]
        context.fail(what, node, hint=hint)
    if type_ is None:
        known = "types: BOOLEAN, INTEGER, BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, TIMESTAMP, DATE, TIME, BLOB"
        instead = _INSTEAD.get(text.upper())
        context.fail(f"no type {text}", node, hint=known if instead is None else f"use {instead}")
    return type_


_INSTEAD = {
    "UHUGEINT": "HUGEINT",
    "VARIANT": "JSON",
}
"""Types of other engines, and those here that hold their values."""

_NO_FIELDS = ("a struct needs its fields", "STRUCT(name VARCHAR, size INT)")
_INCOMPLETE = {
    "ARRAY": ("an array needs the type of its elements", "INTEGER[], VARCHAR[], DOUBLE[] …"),
    "LIST": ("an array needs the type of its elements", "INTEGER[], VARCHAR[], DOUBLE[] …"),
    "STRUCT": _NO_FIELDS,
    "ROW": _NO_FIELDS,
    "MAP": ("a map needs the types of its keys and values", "MAP(VARCHAR, INT)"),
    "ENUM": ("ENUM is not supported", "use VARCHAR"),
}


def _bind_nested_type(context: Context, node: exp.Expr) -> SqlType:
    parts = node.expressions
    if node.args.get("values"):
        context.refuse("arrays have no fixed length", node, hint="leave the length out: INTEGER[]")
    types = [bind_type(context, part.args["kind"] if isinstance(part, exp.ColumnDef) else part) for part in parts]
    with context.blaming(node):
        if node.this is exp.DType.STRUCT:
            return functions.nested(STRUCT(*zip((part.name for part in parts), types, strict=True)))
        if node.this is exp.DType.MAP:
            if len(types) != 2:
                context.fail("a map needs the types of its keys and values", node, hint="MAP(VARCHAR, INT)")
            return functions.nested(MAP(*types))
        return functions.nested(ARRAY(types[0]))


def packed(node: exp.Func, bind: Callable[[exp.Expr], Expr], context: Context) -> Expr:
    """`struct_pack(name => value, …)`, which is also `{'name': value, …}`."""
    names, values = [], []
    for argument in node.expressions:
        if not isinstance(argument, exp.Kwarg):
            context.fail("struct_pack takes values with names", argument, hint="{'name': value}, or row(value)")
        names.append(argument.this.name)
        values.append(bind(argument.expression))
    with context.blaming(node):
        return functions.struct(tuple(names), tuple(values))


def split_path(node: exp.Column, scope: Scope | None) -> tuple[exp.Column, list[exp.Expr]]:
    """The column that `a.b.c` begins with, and the fields behind it: names of tables come before those of columns."""
    parts = list(node.parts)
    if len(parts) == 1 or scope is None or isinstance(node.this, exp.Star):
        return node, []
    first, second = parts[0].name, parts[1].name
    if any(item.answers_to(first) and item.has(second) for item in scope.items):
        taken = 2
    elif any(first in item.schema and item.schema[first].type.is_struct for item in scope.items):
        taken = 1
    else:
        return node, []
    if len(parts) == taken:
        return node, []
    column = exp.Column(this=parts[taken - 1].copy(), table=parts[0].copy() if taken == 2 else None)
    return column, parts[taken:]
