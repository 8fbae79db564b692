"""Scalar functions and operators: their types, what they do, and how each engine spells them.

`resolve` is the way in for the binder; the evaluators in `millstream.expressions` read the same table.
Importing this is cheap: DuckDB is started only for a function that has no entry here.
"""

from __future__ import annotations

from millstream.errors import BindError, UnsupportedError
from millstream.expressions.functions import arrays, conditional, json, numeric, operators, temporal, text  # noqa: F401  (they fill the table)
from millstream.expressions.functions.casts import cast, cast_can_fail, coerce, widens
from millstream.expressions.functions.conditional import case
from millstream.expressions.functions.literals import interval, literal
from millstream.expressions.functions.longtail import other_aggregate, resolve_in_duckdb, signature
from millstream.expressions.functions.nested import array_of, field, field_names, nested, struct
from millstream.expressions.functions.registry import FUNCTIONS, REFUSED, Function, known_names, lookup, unify
from millstream.expressions.nodes import CATCHING, NESTED, Call, Cast, Expr, Literal

__all__ = [
    "FUNCTIONS",
    "Function",
    "array_of",
    "can_fail",
    "case",
    "cast",
    "coerce",
    "field",
    "field_names",
    "interval",
    "known_names",
    "literal",
    "lookup",
    "nested",
    "other_aggregate",
    "resolve",
    "struct",
    "unify",
    "widens",
]

_CLOCK = (
    "a query never reads a clock: its results depend only on its input",
    "to stamp rows as they arrive, declare the stream with ORDER BY current_time and use its time column",
)
_CHANCE = ("a query must give the same rows whenever it runs again", "compute such values before they enter a stream")
REFUSED.update(
    dict.fromkeys(
        (
            "now",
            "current_timestamp",
            "current_time",
            "current_date",
            "localtimestamp",
            "localtime",
            "today",
            "get_current_timestamp",
            "get_current_time",
            "transaction_timestamp",
            "sysdate",
            "getdate",
            "unix_timestamp",
        ),
        _CLOCK,
    )
)
REFUSED.update(dict.fromkeys(("random", "rand", "randn", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "setseed",
                              "nextval", "currval"), _CHANCE))  # fmt: skip
_ANY_LENGTH = ("it makes an array of any length from two numbers", "store the values in a table and join it")
REFUSED.update(dict.fromkeys(("range", "generate_series", "list_resize", "array_resize"), _ANY_LENGTH))


LONGEST_MADE = 10_000_000
"""characters that a constant may ask for in each row"""


def resolve(name: str, args: tuple[Expr, ...]) -> Expr:
    """The typed expression that a call of a function or operator means, with the conversions its arguments need.

    Raises BindError, without a span, where there is no such function or it does not take such arguments.

    >>> from millstream.expressions.nodes import Column
    >>> from millstream.types import DOUBLE, INTEGER
    >>> print(resolve("+", (Column(INTEGER, "a"), Column(DOUBLE, "b"))))
    (CAST(a AS DOUBLE) + b)
    """
    name = name.lower()
    if name in REFUSED:
        reason, hint = REFUSED[name]
        raise UnsupportedError(f"{name} is not allowed in a continuous query", detail=reason, hint=hint)
    _check_length(name, args)
    function = lookup(name)
    if function is None:
        return resolve_in_duckdb(name, args)
    least, most = function.arity
    if len(args) < least or (most is not None and len(args) > most):
        raise BindError(
            f"{name} does not take {len(args)} argument{'s' * (len(args) != 1)}", hint=f"use {function.usage}"
        )
    result = function.rule(args)
    if result is None:
        raise _mismatch(name, function, args)
    return result


def can_fail(expr: Expr) -> bool:
    """Whether an expression can be an error on some row: an overflow, or a cast of a value that does not fit.

    Such an expression must not be evaluated on rows that a condition in front of it excludes.
    """
    if isinstance(expr, Cast) and not expr.safe and cast_can_fail(expr.arg.type, expr.type):
        return True
    if isinstance(expr, Call):
        if expr.fn in CATCHING:
            return False
        function = lookup(expr.fn)
        if expr.fn not in NESTED and (function is None or function.fails(expr)):
            return True
    return any(can_fail(child) for child in expr.children())


def _mismatch(name: str, function: Function, args: tuple[Expr, ...]) -> BindError:
    if name.isidentifier() and not function.usage.startswith("("):
        return BindError(f"no function {signature(name, args)}", hint=f"use {function.usage}")
    types = [str(arg.type) for arg in args]
    hint = "cast one side to the type of the other" if len({*types}) > 1 else None
    if len(types) == 1:
        return BindError(f"no operator {name} for {types[0]}")
    return BindError(f"no operator {name} between {types[0]} and {' and '.join(dict.fromkeys(types[1:]))}", hint=hint)


def _check_length(name: str, args: tuple[Expr, ...]) -> None:
    """Refuse a constant that makes an enormous text of every row."""
    length = args[1].value if len(args) > 1 and isinstance(args[1], Literal) else None
    if name in ("lpad", "rpad", "repeat") and isinstance(length, int) and length > LONGEST_MADE:
        raise BindError(f"{name} to {length:,} makes a text longer than {LONGEST_MADE:,} characters")
