"""Functions that choose among their arguments."""

from __future__ import annotations

from decimal import Decimal
from functools import partial, reduce

from millstream.errors import BindError, UnsupportedError
from millstream.expressions.functions.casts import coerce
from millstream.expressions.functions.registry import Rule, Spelling, always, define, unify
from millstream.expressions.nodes import Call, Case, Expr, Literal
from millstream.types import BIGINT, BOOLEAN, NULL


def case(whens: tuple[tuple[Expr, Expr], ...], default: Expr) -> Case:
    """CASE WHEN … THEN … ELSE … END with the arms converted to their common type."""
    conditions = []
    for when, _ in whens:
        condition = coerce(when, BOOLEAN)
        if condition is None:
            raise BindError(f"WHEN needs a condition, not {when.type}")
        conditions.append(condition)
    arms = unify((*(then for _, then in whens), default))
    if arms is None:
        types = ", ".join(str(arm.type) for arm in (*(then for _, then in whens), default))
        raise BindError(f"the branches of CASE have no common type: {types}", hint="cast them to one type")
    return Case(arms[-1].type, tuple(zip(conditions, arms[:-1], strict=True)), arms[-1])


def _if(args: tuple[Expr, ...]) -> Expr | None:
    condition, then, otherwise = args
    return case(((condition, then),), otherwise)


def _same_type(name: str) -> Rule:
    def rule(args: tuple[Expr, ...]) -> Expr | None:
        same = unify(args)
        if same is not None and same[0].type.is_nested:
            return reduce(partial(_chosen, name), same)
        return None if same is None else Call(same[0].type, name, same)

    return rule


def _chosen(name: str, one: Expr, other: Expr) -> Expr:
    """One of two nested values, by what they are ordered by."""
    from millstream.expressions.nested_codes import order_of

    compares = {"nullif": "=", "greatest": "<", "least": ">"}[name]
    chooses_other = Call(BOOLEAN, compares, (order_of(one), order_of(other)))
    if name == "nullif":
        return case(((chooses_other, Literal(NULL, None)),), one)
    is_null = tuple(Call(BOOLEAN, "is_null", (value,)) for value in (one, other))
    return case(((is_null[0], other), (is_null[1], one), (chooses_other, other)), one)


def _coalesce(args: tuple[Expr, ...]) -> Expr | None:
    # NULL constants decide nothing, and without them a chain often is a single expression.
    kept = tuple(arg for arg in args if arg.type != NULL) or args[:1]
    same = unify(kept)
    if same is None:
        return None
    return same[0] if len(same) == 1 else Call(same[0].type, "coalesce", same)


def _not_in_spark(call: Call, args: tuple[str, ...]) -> str:
    raise UnsupportedError(
        f"{call.fn} is not allowed in the condition of a join on Spark", hint="compute it in a query in FROM"
    )


def _try(args: tuple[Expr, ...]) -> Expr | None:
    return Call(args[0].type, "try", args)


def _passing(args: tuple[Expr, ...]) -> Expr | None:
    return Call(args[0].type, "$passing", args)


def _failed(args: tuple[Expr, ...]) -> Expr | None:
    return Call(BOOLEAN, "$failed", args)


def _total(args: tuple[Expr, ...]) -> Expr | None:
    return Call(BIGINT, "$total", args)


def _total_text(wide: str) -> Spelling:
    """A sum from its halves, in SQL that computes units in a type wide enough."""

    def spelled(call: Call, args: tuple[str, ...]) -> str:
        units = f"(CAST({args[0]} AS {wide}) * 4294967296 + {args[1]})"
        if call.type.name != "DECIMAL":
            return f"CAST({units} AS {call.type})"
        scale = call.type.scale
        unit = f" * CAST('{Decimal(1).scaleb(-scale):f}' AS DECIMAL({scale}, {scale}))" if scale else ""
        return f"CAST(CAST({units} AS DECIMAL(20, 0)){unit} AS {call.type})"

    return spelled


define("coalesce(x [, ...])", _coalesce, kernel=True, aliases=("ifnull", "nvl"))
define("nullif(x, y)", _same_type("nullif"), kernel=True)
define("greatest(x [, ...])", _same_type("greatest"), kernel=True)
define("least(x [, ...])", _same_type("least"), kernel=True)
define("if(condition, then, otherwise)", _if, aliases=("iff",), kernel=True)
define("try(x)", _try, duckdb="TRY({0})", spark=_not_in_spark)
# what TRY is of a condition under on_error = 'row': where it fails is told elsewhere
define("$passing(x)", _passing, duckdb="TRY({0})", spark=_not_in_spark)
define("$failed(x)", _failed, duckdb="(TRY(({0}) IS NULL) IS NULL)")
# computed in columns, not in loops
define("$apart(x)", lambda args: Call(args[0].type, "$apart", args), duckdb="{0}")
# fails where a flag is set, which says what failed; the columns behind it are for ERRORS(query)
define("$sound(flag [, ...])", lambda args: Call(BOOLEAN, "$sound", args),
       duckdb="CAST(CASE WHEN {0} THEN 'failed' ELSE 'true' END AS BOOLEAN)", fails=always)  # fmt: skip
# a sum from its sum_high and sum_low, so that its overflow is the failure of a row; the keys behind them are for
# ERRORS(query)
define("$total(high, low [, ...])", _total, duckdb=_total_text("HUGEINT"), spark=_total_text("DECIMAL(19, 0)"),
       fails=always, kernel=True)  # fmt: skip
