"""Functions of text. Positions and lengths count code points and start at 1.

Letters change case one by one; Spark also knows letters that become two (upper('ß') is 'SS' there) and lower case that
depends on the neighbours (a final Σ, and İ).
"""

from __future__ import annotations

from millstream.errors import BindError
from millstream.expressions.functions.casts import cast
from millstream.expressions.functions.nested import size
from millstream.expressions.functions.regex import (
    check_regex,
    group_count,
    java_regex,
    java_replacement,
    matches_nothing,
)
from millstream.expressions.functions.registry import Rule, Spelling, always, constant, define, overloads
from millstream.expressions.nodes import Call, Expr, Literal
from millstream.types import BIGINT, BOOLEAN, VARCHAR, SqlType


def spark_text(text: str) -> str:
    """A constant in Spark SQL, where a backslash in quotes escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return "'" + escaped.replace("\0", "\\u0000") + "'"


def _length(args: tuple[Expr, ...]) -> Expr | None:
    return size(args) or overloads("length", ((VARCHAR,), BIGINT))(args)


def _text(name: str, *params: SqlType) -> Rule:
    return overloads(name, (params, VARCHAR))


def _like(name: str) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        if len(args) == 3:
            _check_escape(constant(args[1]), constant(args[2]))
        return overloads(name, ((VARCHAR,) * len(args), BOOLEAN))(args)

    return rule


def _check_escape(pattern: object, escape: object) -> None:
    """Hosts differ in what an escaped letter means, so only what has a meaning can be escaped."""
    if not isinstance(escape, str) or len(escape) != 1:
        raise BindError("ESCAPE needs a constant of one character")
    if not isinstance(pattern, str):
        raise BindError("a pattern with ESCAPE must be constant text")
    i = 0
    while i < len(pattern):
        if pattern[i] == escape:
            i += 1
            if pattern[i : i + 1] not in ("%", "_", escape):
                raise BindError(f"the escape character in '{pattern}' must precede %, _ or itself")
        i += 1


def _like_duckdb(call: Call, args: tuple[str, ...]) -> str:
    escape = f" ESCAPE {args[2]}" if len(args) == 3 else ""
    return f"({args[0]} {call.fn.upper()} {args[1]}{escape})"


def _like_spark(call: Call, args: tuple[str, ...]) -> str:
    sides = args[:2] if call.fn == "like" else tuple(f"lower({arg})" for arg in args[:2])
    pattern, escape = constant(call.args[1]), ""
    if len(args) == 3:
        escape = f" ESCAPE {args[2]}"
    elif not isinstance(pattern, str) or "\\" in pattern:
        # Spark escapes by backslash unless told otherwise: without ESCAPE, escape by what does not occur.
        unused = next(char for char in "\x01\x02\x03" if char not in str(pattern))
        escape = f" ESCAPE {spark_text(unused)}"
    return f"({sides[0]} LIKE {sides[1]}{escape})"


def _joined(name: str) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        return Call(VARCHAR, name, tuple(cast(arg, VARCHAR) for arg in args))

    return rule


def _constant_text(expr: Expr, what: str) -> str:
    value = constant(expr)
    if not isinstance(value, str):
        raise BindError(f"{what} must be constant text")
    return value


def _regexp(name: str, base: Rule) -> Rule:
    """Patterns are constants: hosts compile them once, and a wrong one is an error of the query, not of a row."""

    def rule(args: tuple[Expr, ...]) -> Expr | None:
        pattern = _constant_text(args[1], f"the pattern of {name}")
        check_regex(pattern)
        if name == "regexp_replace":
            _constant_text(args[2], "the replacement of regexp_replace")
            options = _constant_text(args[3], "the options of regexp_replace") if len(args) == 4 else ""
            if options not in ("g", ""):
                raise BindError("the only option of regexp_replace is 'g' (replace all)")
            if options and matches_nothing(pattern):
                raise BindError(f"'{pattern}' matches the empty text, which cannot be replaced everywhere")
        if name == "regexp_extract" and len(args) == 3:
            group = constant(args[2])
            if not isinstance(group, int) or not 0 <= group <= group_count(pattern):
                raise BindError(f"'{pattern}' has groups 0 to {group_count(pattern)}, and the group must be a constant")
        return base(args)

    return rule


def _replaces_all(call: Call) -> bool:
    return len(call.args) == 4 and constant(call.args[3]) == "g"


def _regexp_replace_spark(call: Call, args: tuple[str, ...]) -> str:
    pattern, replacement = java_regex(str(constant(call.args[1]))), str(constant(call.args[2]))
    if _replaces_all(call):
        return f"regexp_replace({args[0]}, {spark_text(pattern)}, {spark_text(java_replacement(replacement))})"
    # Spark always replaces all matches; what precedes the first one, taken in, makes it the only one.
    first = f"(?s)\\A(.*?)((?-s){pattern})"
    return f"regexp_replace({args[0]}, {spark_text(first)}, {spark_text('$1' + java_replacement(replacement, 2))})"


def regexp_group(call: Call) -> int:
    """The group that a call of regexp_extract asks for."""
    group = constant(call.args[2]) if len(call.args) == 3 else 0
    assert isinstance(group, int)
    return group


def _at_least(call: Call, index: int, bound: int) -> bool:
    """Whether an argument is a constant not below a bound, so that the plain spelling is right."""
    value = constant(call.args[index])
    return isinstance(value, int) and value >= bound


def _substring_duckdb(call: Call, args: tuple[str, ...]) -> str:
    if len(args) == 2 or _at_least(call, 2, 0):
        return f"substring({', '.join(args)})"
    return f"substring({args[0]}, {args[1]}, greatest({args[2]}, {args[2]} * 0))"


def _substring_spark(call: Call, args: tuple[str, ...]) -> str:
    numbers = [f"CAST({arg} AS INT)" for arg in args[1:]]
    plain = f"substring({args[0]}, {', '.join(numbers)})"
    if len(args) == 2 or _at_least(call, 1, 1):
        return plain
    # Position 0 is before the first character, and what is taken there counts; Spark takes it for 1.
    return f"CASE WHEN {args[1]} = 0 THEN substring({args[0]}, 1, {numbers[1]} - 1) ELSE {plain} END"


def _ends_spark(call: Call, args: tuple[str, ...]) -> str:
    plain = f"{call.fn}({args[0]}, CAST({args[1]} AS INT))"
    if _at_least(call, 1, 0):
        return plain
    rest = f"{call.fn}({args[0]}, CAST(greatest(length({args[0]}) + {args[1]}, 0L) AS INT))"
    return f"CASE WHEN {args[1]} < 0 THEN {rest} ELSE {plain} END"


def _pad_rule(name: str) -> Rule:
    typed = _text(name, VARCHAR, BIGINT, VARCHAR)
    return lambda args: typed(args if len(args) == 3 else (*args, Literal(VARCHAR, " ")))


def _pad_duckdb(call: Call, args: tuple[str, ...]) -> str:
    text = f"{call.fn}({args[0]}, CAST({args[1]} AS INTEGER), {args[2]})"
    if constant(call.args[2]):
        return text
    return f"CASE WHEN {args[2]} = '' THEN substring({args[0]}, 1, greatest({args[1]}, 0)) ELSE {text} END"


def _split_duckdb(call: Call, args: tuple[str, ...]) -> str:
    text = "split_part({0}, {1}, {2})"
    if not constant(call.args[1]):
        text = f"CASE WHEN {{1}} = '' THEN CASE WHEN {{2}} IN (1, -1) THEN {{0}} ELSE '' END ELSE {text} END"
    return text.format(*args)


def _split_spark(call: Call, args: tuple[str, ...]) -> str:
    text = "split_part({0}, {1}, CAST({2} AS INT))"
    if not constant(call.args[2]):
        text = f"CASE WHEN {{2}} = 0 THEN if({{0}} IS NULL OR {{1}} IS NULL, NULL, '') ELSE {text} END"
    return text.format(*args)


def _any_number_of_texts(name: str) -> Rule:
    return lambda args: overloads(name, ((VARCHAR,) * len(args), VARCHAR))(args)


def _text_and_numbers(name: str, texts: int) -> Rule:
    return lambda args: overloads(name, ((VARCHAR,) * texts + (BIGINT,) * (len(args) - texts), VARCHAR))(args)


def _trim_spark(side: str) -> Spelling:
    return lambda call, args: f"trim({side} {args[1]} FROM {args[0]})" if len(args) == 2 else f"{call.fn}({args[0]})"


def _pattern_spark(call: Call) -> str:
    return spark_text(java_regex(str(constant(call.args[1]))))


def _test(name: str) -> Rule:
    return overloads(name, ((VARCHAR, VARCHAR), BOOLEAN))


define("lower(text)", _text("lower", VARCHAR), aliases=("lcase",))
define("upper(text)", _text("upper", VARCHAR), aliases=("ucase",))
define("length(text)", _length, spark="CAST(length({0}) AS BIGINT)",
       aliases=("char_length", "character_length", "len"))  # fmt: skip
# DuckDB reverses grapheme by grapheme; parts of one code point each do what the others do.
define(
    "reverse(text)",
    _text("reverse", VARCHAR),
    duckdb="CASE WHEN {0} = '' THEN '' ELSE array_to_string(list_reverse(string_split({0}, '')), '') END",
    spark="reverse",
)
define("repeat(text, times)", _text("repeat", VARCHAR, BIGINT), spark="repeat({0}, CAST({1} AS INT))", fails=always)
define("substring(text, start [, length])", _text_and_numbers("substring", 1), duckdb=_substring_duckdb,
       spark=_substring_spark, aliases=("substr", "mid"))  # fmt: skip
define("left(text, length)", _text("left", VARCHAR, BIGINT), spark=_ends_spark)
define("right(text, length)", _text("right", VARCHAR, BIGINT), spark=_ends_spark)
for _name in ("lpad", "rpad"):
    define(f"{_name}(text, length [, padding])", _pad_rule(_name), duckdb=_pad_duckdb,
           spark=f"{_name}({{0}}, CAST({{1}} AS INT), {{2}})")  # fmt: skip
for _name, _side in (("trim", "BOTH"), ("ltrim", "LEADING"), ("rtrim", "TRAILING")):
    define(f"{_name}(text [, characters])", _any_number_of_texts(_name), spark=_trim_spark(_side))
define("replace(text, from, to)", _text("replace", VARCHAR, VARCHAR, VARCHAR))
define("concat(x [, ...])", _joined("concat"), spark=lambda call, args: f"concat_ws('', {', '.join(args)})")
define("concat_ws(separator, x [, ...])", _joined("concat_ws"))
define("contains(text, part)", _test("contains"))
define("starts_with(text, part)", _test("starts_with"), spark="startswith", aliases=("startswith", "prefix"))
define("ends_with(text, part)", _test("ends_with"), spark="endswith", aliases=("endswith", "suffix"))
define("strpos(text, part)", overloads("strpos", ((VARCHAR, VARCHAR), BIGINT)), spark="CAST(instr({0}, {1}) AS BIGINT)",
       aliases=("instr",))  # fmt: skip
define("position(part, text)", lambda args: overloads("strpos", ((VARCHAR, VARCHAR), BIGINT))(args[::-1]))
define(
    "split_part(text, separator, index)", _text_and_numbers("split_part", 2), duckdb=_split_duckdb, spark=_split_spark
)
define("md5(text)", _text("md5", VARCHAR))
for _name in ("like", "ilike"):
    define("(text, pattern [, escape])", _like(_name), name=_name, duckdb=_like_duckdb, spark=_like_spark)
define("regexp_matches(text, pattern)", _regexp("regexp_matches", _test("regexp_matches")), aliases=("regexp_like",),
       spark=lambda call, args: f"({args[0]} RLIKE {_pattern_spark(call)})")  # fmt: skip
define("regexp_replace(text, pattern, replacement [, options])",
       _regexp("regexp_replace", _any_number_of_texts("regexp_replace")), spark=_regexp_replace_spark)  # fmt: skip
define("regexp_extract(text, pattern [, group])", _regexp("regexp_extract", _text_and_numbers("regexp_extract", 2)),
       duckdb=lambda call, args: f"regexp_extract({args[0]}, {args[1]}, {regexp_group(call)})",
       spark=lambda call, args: f"regexp_extract({args[0]}, {_pattern_spark(call)}, {regexp_group(call)})")  # fmt: skip
