"""The functions that become nodes of their own, which sqlglot translates between engines; all others stay plain calls."""

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
        ABS ACOS APPROX_COUNT_DISTINCT ASCII ASIN ATAN AVG CBRT CEIL CEILING CHARACTER_LENGTH CHAR_LENGTH COS COT
        DAY DAYNAME DAYOFMONTH DAYOFWEEK DAYOFYEAR DEGREES EPOCH EXP FIRST FIRST_VALUE FLOOR HOUR ISINF ISNAN LAST LAST_DAY
        LAST_VALUE LCASE LEN LENGTH LN LOG10 LOG2 LOWER MAX MD5 MEDIAN MIN MINUTE MONTH MONTHNAME NTILE QUARTER RADIANS REVERSE
        SECOND SIGN SIN SQRT STDDEV STDDEV_POP STDDEV_SAMP SUM TAN TO_TIMESTAMP TRUNC TYPEOF UCASE UPPER VARIANCE VAR_POP
        VAR_SAMP WEEK YEAR
    """,
    (1, 2): "LOG LTRIM ROUND RTRIM",
    (1, 3): "LAG LEAD",
    (1, _ANY): "COALESCE CONCAT GREATEST LEAST",
    (2, 2): """
        ARG_MAX ARG_MIN ATAN2 CONTAINS COVAR_POP COVAR_SAMP DATE_TRUNC DATETRUNC ENDS_WITH IFNULL INSTR LEFT MOD NTH_VALUE NULLIF POW POWER
        REGEXP_MATCHES REPEAT RIGHT STARTS_WITH STRFTIME STRPOS STRPTIME TIME_BUCKET
    """,
    (2, 3): "REGEXP_EXTRACT SUBSTR",
    (2, _ANY): "CONCAT_WS",
    (3, 3): "DATEDIFF DATE_DIFF LPAD MAKE_DATE REPLACE RPAD SPLIT_PART TRANSLATE",
    (3, 4): "REGEXP_REPLACE",
}
# In these the first argument names a unit; sqlglot reads any other expression there as such a name.
_UNIT_FIRST = ("DATEDIFF", "DATE_DIFF", "DATE_TRUNC", "DATETRUNC")
# Functions with words between their arguments, as in CAST(x AS INT) or SUBSTRING(x FROM 1 FOR 2).
_WITH_SYNTAX = ("CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")


def _known(name: str, fewest: int, most: int) -> Builder:
    builder: Builder = DuckDBParser.FUNCTIONS[name]

    def build(args: list[exp.Expr], dialect: Any) -> exp.Expr:
        if not fewest <= len(args) <= most or (name in _UNIT_FIRST and not args[0].is_string):
            return exp.Anonymous(this=name, expressions=args)
        try:
            return builder(args)
        except TypeError:
            # sqlglot's builders come with and without the dialect as a parameter.
            return builder(args, dialect=dialect)

    return build


def _if(args: Sequence[exp.Expr]) -> exp.Expr:
    """IF(condition, value[, otherwise]) is a CASE."""
    if not 2 <= len(args) <= 3:
        return exp.Anonymous(this="IF", expressions=list(args))
    return exp.Case(ifs=[exp.If(this=args[0], true=args[1])], default=args[2] if len(args) == 3 else None)


FUNCTIONS: dict[str, Builder] = {
    **{name: _known(name, *arity) for arity, names in _ARITIES.items() for name in names.split()},
    "ANY_VALUE": exp.AnyValue.from_arg_list,
    "IF": _if,
}
FUNCTION_PARSERS: dict[str, Callable[..., Any]] = {name: DuckDBParser.FUNCTION_PARSERS[name] for name in _WITH_SYNTAX}


def function_name(call: exp.Expr) -> str:
    """The name a function was called by, as written; for calls made otherwise, sqlglot's name of the function."""
    if called_as := call.meta.get("called_as"):
        return str(called_as)
    if isinstance(call, exp.Anonymous):
        return call.name
    return call.sql_name() if isinstance(call, exp.Func) else call.key
