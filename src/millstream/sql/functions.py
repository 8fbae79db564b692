"""The functions that become nodes, which sqlglot translates between engines; all others stay plain calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.parsers.duckdb import DuckDBParser

Builder = Callable[..., exp.Expr]

_ANY = 10_000
# Argument counts; a call with another count stays a plain call, for the binder to judge.
_ARITIES: dict[tuple[int, int], str] = {
    (0, 0): "CUME_DIST DENSE_RANK PERCENT_RANK PI RANK ROW_NUMBER TODAY",
    (0, 1): "COUNT",
    (1, 1): """
        ABS ACOS APPROX_COUNT_DISTINCT ASCII ASIN ATAN AVG CBRT CEIL CEILING CHARACTER_LENGTH CHAR_LENGTH COS
        COT DAY DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR DEGREES EPOCH EXP FIRST FIRST_VALUE FLOOR HOUR ISINF
        ISNAN LAST LAST_DAY LAST_VALUE LCASE LEN LENGTH LN LOG10 LOG2 LOWER MAX MD5 MEDIAN MIN MINUTE MONTH
        MONTHNAME NTILE QUARTER RADIANS REVERSE SECOND SIGN SIN SQRT STDDEV STDDEV_POP STDDEV_SAMP SUM TAN
        TO_TIMESTAMP TRUNC TYPEOF UCASE UPPER VARIANCE VAR_POP VAR_SAMP WEEK YEAR
    """,
    (1, 2): "LOG LTRIM ROUND RTRIM",
    (1, 3): "LAG LEAD",
    (1, _ANY): "COALESCE CONCAT GREATEST LEAST",
    (2, 2): """
        ARG_MAX ARG_MIN ATAN2 CONTAINS COVAR_POP COVAR_SAMP DATETRUNC DATE_TRUNC ENDS_WITH IFNULL INSTR LEFT
        NTH_VALUE NULLIF POW POWER REGEXP_MATCHES REPEAT RIGHT STARTS_WITH STRFTIME STRPOS STRPTIME TIME_BUCKET
    """,
    (2, 3): "REGEXP_EXTRACT SUBSTR",
    (2, _ANY): "CONCAT_WS",
    (3, 3): "DATEDIFF DATE_DIFF LPAD MAKE_DATE REPLACE RPAD SPLIT_PART TRANSLATE",
    (3, 4): "REGEXP_REPLACE",
}
# The place of an argument that sqlglot takes for a word (a unit, flags) even if it is an expression.
_WORD_ARGUMENT = {"DATEDIFF": 0, "DATE_DIFF": 0, "DATE_TRUNC": 0, "DATETRUNC": 0, "REGEXP_REPLACE": 3}
# Functions with words between their arguments, as in CAST(x AS INT) or SUBSTRING(x FROM 1 FOR 2).
_WITH_SYNTAX = ("CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")
# What only an aggregate takes, and only around its sole argument.
_AGGREGATE_MODIFIERS = (exp.Distinct, exp.Order, exp.IgnoreNulls, exp.RespectNulls)


def _known(name: str, fewest: int, most: int, builder: Builder | None = None) -> Builder:
    make = builder or DuckDBParser.FUNCTIONS[name]
    word = _WORD_ARGUMENT.get(name, _ANY)

    def build(args: list[exp.Expr], dialect: Any) -> exp.Expr:
        if not fewest <= len(args) <= most or any(not arg.is_string for arg in args[word : word + 1]):
            return exp.Anonymous(this=name, expressions=args)
        try:
            node = make(args)
        except TypeError:
            # sqlglot's builders come with and without the dialect as a parameter.
            node = make(args, dialect=dialect)
        modified = any(isinstance(arg, _AGGREGATE_MODIFIERS) for arg in args)
        misplaced = modified and not (len(args) == 1 and isinstance(node, exp.AggFunc))
        return exp.Anonymous(this=name, expressions=args) if misplaced else node

    return build


def _build_mod(args: Sequence[exp.Expr]) -> exp.Mod:
    """MOD(a, b) is `a % b`; operators in its arguments need parentheses there."""
    left, right = (exp.Paren(this=arg) if isinstance(arg, exp.Binary | exp.Unary) else arg for arg in args)
    return exp.Mod(this=left, expression=right)


def _build_if(args: Sequence[exp.Expr]) -> exp.Case:
    """IF(condition, value[, otherwise]) is a CASE."""
    return exp.Case(ifs=[exp.If(this=args[0], true=args[1])], default=args[2] if len(args) == 3 else None)


FUNCTIONS: dict[str, Builder] = {
    **{name: _known(name, *arity) for arity, names in _ARITIES.items() for name in names.split()},
    # DuckDB's own builder wraps ANY_VALUE into IGNORE NULLS, which would then print and read back twice.
    "ANY_VALUE": _known("ANY_VALUE", 1, 1, exp.AnyValue.from_arg_list),
    "IF": _known("IF", 2, 3, _build_if),
    "MOD": _known("MOD", 2, 2, _build_mod),
}
FUNCTION_PARSERS: dict[str, Callable[..., Any]] = {name: DuckDBParser.FUNCTION_PARSERS[name] for name in _WITH_SYNTAX}
# How these nodes print: name and arguments. DuckDB's generator would add casts and cases for other dialects' sake.
PLAIN_CALLS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.AnyValue: ("ANY_VALUE", ("this",)),
    exp.Ceil: ("CEIL", ("this",)),
    exp.ApproxDistinct: ("APPROX_COUNT_DISTINCT", ("this",)),
    exp.Concat: ("CONCAT", ("expressions",)),
    exp.ConcatWs: ("CONCAT_WS", ("expressions",)),
    exp.DateBin: ("TIME_BUCKET", ("this", "expression")),
    exp.DateFromParts: ("MAKE_DATE", ("year", "month", "day")),
    exp.DayOfMonth: ("DAYOFMONTH", ("this",)),
    exp.DayOfWeek: ("DAYOFWEEK", ("this",)),
    exp.DayOfYear: ("DAYOFYEAR", ("this",)),
    exp.Dayname: ("DAYNAME", ("this",)),
    exp.Floor: ("FLOOR", ("this",)),
    exp.Greatest: ("GREATEST", ("this", "expressions")),
    exp.IsInf: ("ISINF", ("this",)),
    exp.IsNan: ("ISNAN", ("this",)),
    exp.LastDay: ("LAST_DAY", ("this",)),
    exp.Least: ("LEAST", ("this", "expressions")),
    exp.Left: ("LEFT", ("this", "expression")),
    exp.Length: ("LENGTH", ("this",)),
    exp.Lower: ("LOWER", ("this",)),
    exp.Max: ("MAX", ("this",)),
    exp.Min: ("MIN", ("this",)),
    exp.Monthname: ("MONTHNAME", ("this",)),
    exp.RegexpExtract: ("REGEXP_EXTRACT", ("this", "expression", "group")),
    exp.RegexpLike: ("REGEXP_MATCHES", ("this", "expression")),
    exp.RegexpReplace: ("REGEXP_REPLACE", ("this", "expression", "replacement", "modifiers")),
    exp.Replace: ("REPLACE", ("this", "expression", "replacement")),
    exp.Reverse: ("REVERSE", ("this",)),
    exp.Right: ("RIGHT", ("this", "expression")),
    exp.Round: ("ROUND", ("this", "decimals")),
    exp.SplitPart: ("SPLIT_PART", ("this", "delimiter", "part_index")),
    exp.StartsWith: ("STARTS_WITH", ("this", "expression")),
    exp.StrPosition: ("STRPOS", ("this", "substr")),
    exp.StrToTime: ("STRPTIME", ("this", "format")),
    exp.Substring: ("SUBSTRING", ("this", "start", "length")),
    exp.TimeToStr: ("STRFTIME", ("this", "format")),
    exp.TimeToUnix: ("EPOCH", ("this",)),
    exp.Trunc: ("TRUNC", ("this",)),
    exp.UnixToTime: ("TO_TIMESTAMP", ("this",)),
    exp.Upper: ("UPPER", ("this",)),
    exp.VariancePop: ("VAR_POP", ("this",)),
}


def function_name(call: exp.Expr) -> str:
    """The name a function was called by, as written; for calls made otherwise, sqlglot's name of the function."""
    if called_as := call.meta.get("called_as"):
        return str(called_as)
    if isinstance(call, exp.Anonymous):
        return call.name
    return call.sql_name() if isinstance(call, exp.Func) else call.key
