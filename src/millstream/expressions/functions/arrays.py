"""Functions of arrays. Elements are counted from 1; there is none, NULL, beyond the end."""

from __future__ import annotations

from millstream.errors import BindError
from millstream.expressions.functions.casts import cast, coerce
from millstream.expressions.functions.nested import array_of, size, subscript
from millstream.expressions.functions.registry import Rule, define, overloads, unify
from millstream.expressions.nodes import Call, Expr
from millstream.types import BIGINT, BOOLEAN, NULL, SqlType

MOST_PLACES = 100_000
"""Arrays that are made from a number have no more elements, so that no row takes all memory."""


def _value(args: tuple[Expr, ...]) -> Expr | None:
    same = unify(args) if args else ()
    return None if same is None else Call(array_of(same[0].type if same else NULL), "list_value", same)


def _element(args: tuple[Expr, ...]) -> Expr | None:
    if (found := subscript(*args)) is not None:
        return found
    array, place = args[0], coerce(args[1], BIGINT)
    if array.type.element is None:
        raise BindError(f"{array.type} is not an array", hint="a[1] is the first element of the array a")
    if place is None:
        raise BindError(f"the index of an element is a whole number, not {args[1].type}", hint="a[1] is the first")
    return Call(array.type.element, "list_extract", (array, place))


def _with_value(name: str, type_: SqlType | None) -> Rule:
    """A function of an array and a value that it could hold."""

    def rule(args: tuple[Expr, ...]) -> Expr | None:
        array, value = args
        element = array.type.element
        if element is None:
            return None
        if element == NULL:
            array, element = cast(array, array_of(value.type)), value.type
        same = coerce(value, element)
        return None if same is None else Call(type_ or array.type, name, (array, same))

    return rule


define(
    "list_value([x, ...])", _value,
    duckdb=lambda call, args: f"CAST([{', '.join(args)}] AS {call.type.duckdb})" if args else "[]",
    spark=lambda call, args: f"CAST(array({', '.join(args)}) AS {call.type.spark})" if args else "array()",
)  # fmt: skip
define(
    "list_extract(array, place)", _element, duckdb="list_extract({0}, {1})",
    # there is no element 0, and Spark counts with an INT
    spark="try_element_at({0}, CAST(CASE WHEN abs({1}) BETWEEN 1 AND 2147483647 THEN {1} END AS INT))",
    aliases=("list_element", "array_extract"),
)  # fmt: skip
define(
    "array_length(array)", size,
    duckdb=lambda call, args: f"CAST({'cardinality' if call.args[0].type.is_map else 'len'}({args[0]}) AS BIGINT)",
    spark="CASE WHEN {0} IS NOT NULL THEN CAST(size({0}) AS BIGINT) END",
    aliases=("cardinality",),
)  # fmt: skip
define(
    "array_contains(array, value)", _with_value("array_contains", BOOLEAN),
    duckdb="CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN list_contains({0}, {1}) END",
    spark="CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN coalesce(array_contains({0}, {1}), FALSE) END",
    aliases=("array_has", "list_contains", "list_has"),
)  # fmt: skip
define(
    "array_append(array, value)", _with_value("array_append", None),
    duckdb="CASE WHEN {0} IS NOT NULL THEN list_append({0}, {1}) END", spark="array_append({0}, {1})",
    aliases=("list_append",),
)  # fmt: skip
define(
    "$places(n)", overloads("$places", ((BIGINT,), array_of(BIGINT))),
    duckdb=f"range(0, least({{0}}, {MOST_PLACES}) + 1)",
    spark=f"CASE WHEN {{0}} >= 0 THEN sequence(0L, least({{0}}, {MOST_PLACES}L)) WHEN {{0}} < 0 THEN array() END",
)  # fmt: skip
