"""The built-in aggregate and window functions: their names, and the type of what they compute."""

from __future__ import annotations

from millstream.types import BIGINT, DECIMAL, DOUBLE, SqlType

ALIASES = {
    "stddev": "stddev_samp", "variance": "var_samp", "mean": "avg",
    "arg_max": "max_by", "argmax": "max_by", "arg_min": "min_by", "argmin": "min_by",
}  # fmt: skip

NAMES = frozenset(
    (
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "stddev_samp",
        "stddev_pop",
        "var_samp",
        "var_pop",
        "first_value",
        "last_value",
        "max_by",
        "min_by",
    )
)

BESIDE = frozenset(("max_by", "min_by"))
"""those of two arguments: a value, and what is greatest or least beside it; of equal ones, the first"""

HALVES = frozenset(("sum_high", "sum_low"))
"""a sum as two numbers that cannot overflow, sum_high * 2**32 + sum_low, in units of the last digit: names that are not
written"""

ORDERLESS = (NAMES | HALVES) - {"first_value", "last_value"} - BESIDE
"""those whose result does not depend on the order of rows, nor on how they are divided into parts that are merged"""

SAID_OTHERWISE = frozenset(
    (
        "any_value",
        "approx_count_distinct",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "count_if",
        "every",
        "percentile_cont",
    )
)
"""names of aggregates that are said in terms of others, or have no meaning here"""

RANKS = frozenset(("rank", "dense_rank"))
"""functions of OVER alone: the number of a row's time among the times so far"""

KNOWN = frozenset(("first_known", "last_known"))
"""what first_value and last_value are with IGNORE NULLS, and any_value: names that are not written"""

OVER_NAMES = NAMES | HALVES | RANKS | KNOWN | {"lag", "nth_value"}
"""all that an OVER operator computes"""

MOST_DIGITS = 18
"""of decimals: values are 64 bits inside kernels"""

SPREADS = frozenset(("stddev_samp", "stddev_pop", "var_samp", "var_pop"))


def canonical_name(name: str) -> str | None:
    """The function that a name in any spelling means, or None if there is no such aggregate.

    >>> canonical_name("STDDEV"), canonical_name("median")
    ('stddev_samp', None)
    """
    lower = name.lower()
    resolved = ALIASES.get(lower, lower)
    return resolved if resolved in NAMES else None


def result_type(fn: str, distinct: bool, arg_type: SqlType | None = None, by: SqlType | None = None) -> SqlType | None:
    """The type of an aggregate over an argument, or over two; None if it cannot be applied.

    >>> result_type("sum", False, DECIMAL(9, 2)), result_type("sum", False, SqlType("VARCHAR"))
    (DECIMAL(18, 2), None)
    """
    if fn in BESIDE:
        return None if by is None or by.is_nested or distinct else arg_type
    if by is not None:
        return None
    if fn == "count" and not distinct:
        return BIGINT
    if fn in RANKS:
        return BIGINT if arg_type is None and not distinct else None
    if arg_type is None or arg_type.is_nested or (arg_type.name == "DECIMAL" and arg_type.precision > MOST_DIGITS):
        return None
    if fn == "count":
        return BIGINT
    if fn in ("min", "max"):
        return arg_type
    if fn in ("first_value", "last_value", "nth_value", "lag") or fn in KNOWN:
        return None if distinct else arg_type
    if not arg_type.is_numeric:
        return None
    if fn in HALVES:
        return BIGINT
    if fn == "avg" or fn in SPREADS:
        return DOUBLE
    if fn == "sum":
        if arg_type.name == "DECIMAL":
            return DECIMAL(18, arg_type.scale)
        return BIGINT if arg_type.is_integer else DOUBLE
    return None
