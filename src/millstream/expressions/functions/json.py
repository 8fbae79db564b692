"""Functions of JSON, and of text: text that is not JSON has no values and no members.

Paths are constant: `$.name`, `$."a name"` and `$[0]`, one after the other. On Spark, a variant tells what is JSON and
what has members; the text comes from elsewhere, because variants sort names.
"""

from __future__ import annotations

import re

from millstream.errors import BindError
from millstream.expressions.functions.registry import Rule, Spelling, constant, define
from millstream.expressions.functions.text import spark_text
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.types import ARRAY, BOOLEAN, JSON, NULL, UUID, VARCHAR, SqlType

_STEP = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_]*)|\."([^"'\\\[\]]+)"|\[(\d{1,9})\]""")
_HINT = "paths are constant: '$.user.name', '$.\"a name\"', '$.tags[0]'"


def _steps(path: str) -> list[str | int]:
    """The names and places that a path goes through."""
    steps: list[str | int] = []
    at = 1
    while at < len(path) or not path.startswith("$"):
        found = _STEP.match(path, at) if path.startswith("$") else None
        if found is None:
            raise BindError(f"{path!r} is not a JSON path", hint=_HINT)
        steps.append(int(found[3]) if found[3] is not None else found[1] or found[2])
        at = found.end()
    return steps


def _path(steps: list[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in steps)


def _rule(name: str, type_: SqlType, *, member: bool = False) -> Rule:
    """A function of a text and a path, or with `member` also of a name or a place."""

    def rule(args: tuple[Expr, ...]) -> Expr | None:
        document, path = args
        if document.type.base not in (VARCHAR, NULL) or document.type == UUID:
            return None
        value = constant(path)
        if member and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            value = f"$[{value}]"
        elif member and isinstance(value, str) and not value.startswith("$"):
            value = f'$."{value}"'
        if not isinstance(value, str):
            raise BindError(f"{name} takes a constant path", hint=_HINT)
        return Call(type_, name, (document, Literal(VARCHAR, _path(_steps(value)))))

    return rule


def _spark_path(call: Call) -> str:
    steps = _steps(str(constant(call.args[1])))
    return spark_text("$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in steps))


def _spark(template: str) -> Spelling:
    """A spelling over the text `{0}`, the path `{1}`, what is there as a variant `{2}`, and whether it has members
    `{3}`."""

    def spelled(call: Call, args: tuple[str, ...]) -> str:
        path = _spark_path(call)
        member = f"try_variant_get(try_parse_json({args[0]}), {path}, 'variant')"
        nested = f"regexp(schema_of_variant({member}), '^(OBJECT|ARRAY)')"
        return template.format(args[0], path, member, nested)

    return spelled


def _elements(args: tuple[Expr, ...]) -> Expr | None:
    document, path = args[0], constant(args[1])
    if document.type.base not in (VARCHAR, NULL) or document.type == UUID:
        return None
    if not isinstance(path, str) or not path.endswith("[*]"):
        raise BindError("the elements of an array have a constant path that ends with [*]", hint="'$.items[*]', '$[*]'")
    whole = Literal(VARCHAR, _path(_steps(path.removesuffix("[*]"))))
    return Call(ARRAY(JSON), "json_elements", (document, whole))


def _elements_duckdb(call: Call, args: tuple[str, ...]) -> str:
    document, path = f"TRY_CAST({args[0]} AS JSON)", args[1].removesuffix("'")
    elements = f"CAST(json_extract({document}, {path}[*]') AS VARCHAR[])"
    return f"CASE WHEN json_type({document}, {args[1]}) = 'ARRAY' THEN {elements} END"


def _elements_spark(call: Call, args: tuple[str, ...]) -> str:
    path = _spark_path(call)
    member = f"try_variant_get(try_parse_json({args[0]}), {path}, 'variant')"
    nested = "regexp(schema_of_variant(x), '^(OBJECT|ARRAY)')"
    text = f"get_json_object({args[0]}, concat({path}, '[', i, ']'))"
    each = f"(x, i) -> CASE WHEN {nested} THEN {text} ELSE to_json(x) END"
    elements = f"transform(CAST({member} AS ARRAY<VARIANT>), {each})"
    return f"CASE WHEN startswith(schema_of_variant({member}), 'ARRAY') THEN {elements} END"


_JSON = "TRY_CAST({0} AS JSON)"
_NESTED = f"json_type({_JSON}, {{1}}) IN ('OBJECT', 'ARRAY')"

define(
    "json_value(text, path)", _rule("json_value", VARCHAR),
    duckdb=f"CASE WHEN {_NESTED} THEN NULL ELSE json_extract_string({_JSON}, {{1}}) END",
    spark=_spark("CASE WHEN NOT {3} THEN get_json_object({0}, {1}) END"),
)  # fmt: skip
define(
    "json_query(text, path)", _rule("json_query", JSON),
    duckdb=f"CASE WHEN {_NESTED} THEN CAST(json_extract({_JSON}, {{1}}) AS VARCHAR) END",
    spark=_spark("CASE WHEN {3} THEN get_json_object({0}, {1}) END"),
)  # fmt: skip
define(
    "json_exists(text, path)", _rule("json_exists", BOOLEAN),
    duckdb=f"CASE WHEN {{0}} IS NOT NULL THEN coalesce(json_exists({_JSON}, {{1}}), FALSE) END",
    spark=_spark("CASE WHEN {0} IS NOT NULL THEN {2} IS NOT NULL END"),
)  # fmt: skip
define(
    "json_extract(text, path)", _rule("json_extract", JSON, member=True),
    duckdb=f"CAST(json_extract({_JSON}, {{1}}) AS VARCHAR)",
    spark=_spark("CASE WHEN {3} THEN get_json_object({0}, {1}) ELSE to_json({2}) END"),
)  # fmt: skip
define(
    "json_extract_string(text, path)", _rule("json_extract_string", VARCHAR, member=True),
    duckdb=f"json_extract_string({_JSON}, {{1}})",
    spark=_spark("CASE WHEN {2} IS NOT NULL THEN get_json_object({0}, {1}) END"),
)  # fmt: skip
define("json_elements(text, path)", _elements, duckdb=_elements_duckdb, spark=_elements_spark)
